//! Credentials that change while the client runs.

use super::builder::Builder;
use crate::node::{CredentialSource, Credentials};
use std::fmt;

impl Builder {
    /// Sets a function that returns the user and the password for each new connection to a node. These credentials
    /// replace the user and the password in the node's URL, but not the database. Use this for passwords that are
    /// rotated and for short-lived cloud tokens: changed credentials do not require a new client. Default: the
    /// credentials in the URLs.
    ///
    /// `ask` receives the node's name as it appears in reports (`10.0.0.1:6379`), and returns the user and the password
    /// as a pair of strings. For a password without a user, `ask` returns [`Credentials`]:
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
    /// // A closure that reads the current password from a channel:
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
    /// - **Existing connections are kept** when the password changes, because Redis also keeps them. The client calls
    ///   `ask` for every new connection: when it replaces a broken connection, for the connections of
    ///   [`check`](crate::Redlock::check), and if the connections move to another runtime.
    /// - **After a rejected login (`WRONGPASS`), the next connection attempt calls `ask` again**, after the usual
    ///   delay. Rotate passwords without a gap. Either configure the server to accept both passwords for some time
    ///   (`ACL SETUSER` with a second `>password`), or make `ask` return the new password from the moment of the
    ///   change. During the rotation, leases are still extended as long as a majority of the nodes is connected.
    /// - **If `ask` returns an error, the connection attempt fails** and is retried later. Reports and logs show the
    ///   first line of the error's text, so **the text must not contain a secret**. A panic in `ask` is treated as an
    ///   error, and its message is not shown.
    /// - **The [connect timeout](Self::connect_timeout) includes the call to `ask`**: a call that takes longer is
    ///   dropped, and the connection attempt fails. The client calls `ask` concurrently for all nodes, and again after
    ///   each failure, so cache results that are expensive to obtain. `ask` may block: it runs on a thread for blocking
    ///   code, in the context of the runtime of the connections, which needs timers only if `ask` uses them. A call
    ///   that blocks for longer than the timeout keeps its thread, and each node occupies at most two such threads.
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
