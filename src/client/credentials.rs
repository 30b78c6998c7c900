//! Users and passwords that change.

use super::builder::Builder;
use crate::node::{CredentialSource, Credentials};
use std::fmt;

impl Builder {
    /// Asks `ask` for user and password before each connection to a node, in place of what its URL says of
    /// them; the database is still the URL's. For passwords that are rotated, and for tokens of clouds that
    /// live for minutes: a new one needs no new client.
    ///
    /// It is given the node's name as reports have it (`10.0.0.1:6379`), and returns a pair of texts, or
    /// [`Credentials`] where there is no user's name:
    ///
    /// ```
    /// use quorlock::{ConfigError, Credentials, Redlock};
    ///
    /// async fn token(node: String) -> Result<(String, String), std::io::Error> {
    ///     // …ask the cloud, or read the file that is written anew…
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
    /// - **A connection that stands is kept** when the password changes, as Redis keeps it. Its
    ///   successor, the connections of [`check`](crate::Redlock::check), and those of other runtimes ask.
    /// - **What a server refuses (`WRONGPASS`) is asked for anew** with the next try, after the usual pause.
    ///   So rotate without a gap: either let the server accept both passwords for a while (`ACL SETUSER`
    ///   with a second `>password`), or see to it that `ask` tells the new one from then on. Locks are kept
    ///   up meanwhile, as long as a majority of the nodes is connected.
    /// - **An error is a connection that failed**: it is tried again, and reports and logs show the first
    ///   line of its text. **Let it name no secret.** A panic is an error without a text.
    /// - **It counts to the [connect timeout](Self::connect_timeout)**: what takes longer is dropped, and
    ///   has failed. All nodes ask at once, and again after each failure, so let it remember what is dear.
    ///   It runs on the runtime of the connections, and must not block.
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
