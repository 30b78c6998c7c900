//! Credentials that change while the client runs.

use super::builder::Builder;
use crate::node::{CredentialSource, Credentials};
use std::fmt;

impl Builder {
    /// Calls `ask` for the user and password before each connection to a node. They replace the ones in the node's URL;
    /// the database is still taken from the URL. Use it for passwords that are rotated and for short-lived cloud
    /// tokens: a change needs no new client. Default: the credentials in the URLs.
    ///
    /// `ask` receives the node's name as it appears in reports (`10.0.0.1:6379`). It returns user and password as a
    /// pair of texts, or [`Credentials`] if there is no user:
    ///
    /// ```
    /// use quorlock::{ConfigError, Credentials, Redlock};
    ///
    /// async fn token(node: String) -> Result<(String, String), std::io::Error> {
    ///     // …request a token, or read the file with the current password…
    /// #   drop(node);
    ///     Ok(("locks".to_owned(), "a token".to_owned()))
    /// }
    ///
    /// # fn main() -> Result<(), ConfigError> {
    /// let nodes = ["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"];
    /// let redlock = Redlock::builder().nodes(nodes).credentials(token).build()?;
    ///
    /// // The same with a closure, which shares what it needs with the future:
    /// let (changes, current) = tokio::sync::watch::channel("secret".to_owned());
    /// let password = move |_node| {
    ///     let password = Credentials::password(current.borrow().clone());
    ///     async { Ok::<_, std::convert::Infallible>(password) }
    /// };
    /// let redlock = Redlock::builder().nodes(nodes).credentials(password).build()?;
    /// # drop((redlock, changes));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// - **Existing connections are kept** when the password changes, because Redis keeps them, too. New connections
    ///   call `ask`: replacements, the connections of [`check`](crate::Redlock::check), and the connections of other
    ///   runtimes.
    /// - **After a refusal (`WRONGPASS`), the next attempt calls `ask` again**, after the usual pause. Rotate passwords
    ///   without a gap: either let the server accept both passwords for some time (`ACL SETUSER` with a second
    ///   `>password`), or make `ask` return the new password from the moment of the change. Leases are still extended
    ///   during the rotation as long as a majority of the nodes is connected.
    /// - **An error fails the connection**, which is then retried. Reports and logs show the first line of the error's
    ///   text, so **the text must not contain a secret**. A panic is treated as an error without a text.
    /// - **The time of the call is part of the [connect timeout](Self::connect_timeout)**: a call that takes longer is
    ///   dropped and has failed. All nodes call `ask` concurrently, and again after each failure, so cache results that
    ///   are expensive. `ask` runs on the runtime of the connections and must not block.
    pub fn credentials<F, Fut, C, E>(mut self, ask: F) -> Self
    where
        F: Fn(String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<C, E>> + Send + 'static,
        C: Into<Credentials>,
        E: fmt::Display,
    {
        self.credentials = Some(CredentialSource::new(ask));
        self
    }
}
