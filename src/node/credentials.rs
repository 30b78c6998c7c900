//! The credentials for one node: from its URL, or from `Builder::credentials` before each connection.

use super::shield::first_line;
use crate::time::Clock;
use crate::wire::{NodeFailure, short};
#[cfg(feature = "test-util")]
use futures::FutureExt;
use futures::future::BoxFuture;
use redis::RedisConnectionInfo;
use std::borrow::Cow;
use std::fmt;
#[cfg(feature = "test-util")]
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};

/// The user name and password for a node; see [`Builder::credentials`](crate::Builder::credentials). A pair of strings
/// converts into this type. `Debug` prints only `Credentials(..)`.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user name, or `None` for the user `default`.
    user: Option<String>,
    password: String,
}

impl Credentials {
    /// Creates credentials from a user name and a password, for a user created with `ACL SETUSER`.
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: Some(user.into()), password: password.into() }
    }

    /// Creates credentials from a password only, for a server with `requirepass`.
    pub fn password(password: impl Into<String>) -> Self {
        Self { user: None, password: password.into() }
    }

    fn login(self, database: i64) -> RedisConnectionInfo {
        let login = RedisConnectionInfo::default().set_db(database).set_password(self.password);
        self.user.into_iter().fold(login, RedisConnectionInfo::set_username)
    }
}

impl<U: Into<String>, P: Into<String>> From<(U, P)> for Credentials {
    fn from((user, password): (U, P)) -> Self {
        Self::new(user, password)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(..)")
    }
}

type Asking = BoxFuture<'static, Result<Credentials, String>>;

/// The application's callback that returns the credentials for a node. Its argument is the node's name.
#[derive(Clone)]
pub(crate) struct CredentialSource(Arc<dyn Fn(String) -> Asking + Send + Sync>);

impl CredentialSource {
    pub(crate) fn new<F, Fut, C, E>(ask: F) -> Self
    where
        F: Fn(String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<C, E>> + Send + 'static,
        C: Into<Credentials>,
        E: fmt::Display,
    {
        Self(Arc::new(move |node| {
            let asked = ask(node);
            let credentials = async { asked.await.map(Into::into).map_err(|why| why.to_string()) };
            Box::pin(credentials)
        }))
    }
}

pub(crate) struct Login {
    /// User, password and database from the node's URL.
    by_address: RedisConnectionInfo,
    /// Callback whose result replaces the user and the password from the URL. `None` if the application set no
    /// callback.
    source: Option<CredentialSource>,
    /// Permits that bound the number of concurrent calls of the callback (I12). A call that blocks keeps its permit.
    asking: Arc<Semaphore>,
}

/// The maximum number of concurrent calls of the callback for one node: one for the client's connection and one for a
/// check.
const MAX_CALLS: usize = 2;

impl Login {
    pub(crate) fn new(by_address: RedisConnectionInfo, source: Option<CredentialSource>) -> Self {
        let asking = Arc::new(Semaphore::new(MAX_CALLS));
        Self { by_address, source, asking }
    }

    /// Returns the credentials for a new connection to the node `name`, and the time that remains of `limit`. Fails if
    /// the callback returns an error, panics or exceeds `limit`.
    ///
    /// # Cancel safety
    /// Dropping the future drops the callback's future.
    pub(super) async fn obtain(
        &self,
        name: &str,
        limit: Duration,
        clock: &Clock,
    ) -> Result<(Cow<'_, RedisConnectionInfo>, Duration), NodeFailure> {
        let Self { by_address, source, .. } = self;
        let Some(CredentialSource(ask)) = source else {
            return Ok((Cow::Borrowed(by_address), limit));
        };
        let (ask, name) = (ask.clone(), name.to_owned());
        let asking = async move { ask(name).await };
        // The callback is application code and may panic.
        let asking = async {
            match clock {
                Clock::Machine => self.call_on_blocking_thread(asking).await,
                #[cfg(feature = "test-util")]
                Clock::Other(_) => AssertUnwindSafe(asking).catch_unwind().await.ok(),
            }
        };
        let why = match clock.timeout(limit, asking).await {
            Some((Some(Ok(credentials)), left)) => {
                return Ok((Cow::Owned(credentials.login(by_address.db())), left));
            }
            Some((Some(Err(why)), _)) => {
                first_line(&why).unwrap_or("the callback failed").to_owned()
            }
            // The error omits the panic message, which may contain a secret.
            Some((None, _)) => "the callback panicked".to_owned(),
            None => format!("no result within {}", short(limit)),
        };
        Err(NodeFailure::Unreachable(format!("no credentials: {why}").into()))
    }

    /// Awaits `asking`, the callback's future, on a thread for blocking code, because the callback may block. Returns
    /// `None` if the callback panics.
    ///
    /// # Cancel safety
    /// If this future is dropped, the callback's future is dropped as soon as it is not blocking its thread.
    async fn call_on_blocking_thread<T: Send + 'static>(
        &self,
        asking: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let permit = self.asking.clone().acquire_owned().await.ok()?;
        let (mut tell, told) = oneshot::channel();
        let runtime = Handle::current();
        tokio::task::spawn_blocking(move || {
            let answer = runtime.block_on(async {
                tokio::select! {
                    answer = asking => Some(answer),
                    () = tell.closed() => None,
                }
            });
            drop(permit);
            // Sending fails if the caller no longer waits for the credentials.
            let _ = tell.send(answer);
        });
        told.await.ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn login_has_its_credentials_and_the_database_of_the_url() {
        let login = Credentials::from(("me", "secret".to_owned())).login(7);
        assert_eq!((login.username(), login.password()), (Some("me"), Some("secret")));
        assert_eq!(login.db(), 7);
        let login = Credentials::password("secret").login(0);
        assert_eq!((login.username(), login.password()), (None, Some("secret")));
        let shown = format!("{:?}", Credentials::new("walter", "secret"));
        assert_eq!(shown, "Credentials(..)");
    }
}
