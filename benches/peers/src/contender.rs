//! The measured libraries, behind one trait.

use std::future::Future;
use std::time::Duration;

use redis::{Client, IntoConnectionInfo};
use serde::{Deserialize, Serialize};

/// Time to live of every key.
pub(crate) const TTL: Duration = Duration::from_secs(10);

/// How long quorlock waits for a contended key. rslock has no such limit.
const WAIT: Duration = Duration::from_secs(5);

/// Duration of locks that are held throughout a slice with waiters.
const LONG: Duration = Duration::from_hours(1);

/// quorlock's node timeout.
const NODE_TIMEOUT: Duration = Duration::from_millis(50);

/// The measured libraries. A worker process receives the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Library {
    /// [`Rslock`].
    Rslock,
    /// [`EagerRslock`].
    EagerRslock,
    /// [`Quorlock`].
    Quorlock,
    /// [`Floor`](crate::floor::Floor).
    Floor,
    /// [`BareLoop`](crate::bare_loop::BareLoop).
    BareLoop,
}

/// A library that can lock a key on a majority of the nodes and unlock it again.
///
/// Errors are sentences for the table. They are counted, and the first one of each kind is printed.
pub(crate) trait Contender: Sized + Send + Sync + 'static {
    const NAME: &'static str;

    /// A held lock.
    type Lock: Send;

    /// Connects a client to the nodes at `urls`.
    fn connect(urls: &[String]) -> impl Future<Output = Result<Self, String>> + Send;

    /// Acquires `key`, which is uncontended.
    fn lock(&self, key: &str) -> impl Future<Output = Result<Self::Lock, String>> + Send;

    /// Acquires `key`, and waits while other clients hold it.
    fn lock_waiting(&self, key: &str) -> impl Future<Output = Result<Self::Lock, String>> + Send {
        self.lock(key)
    }

    /// Releases a lock.
    fn unlock(&self, lock: Self::Lock) -> impl Future<Output = Result<(), String>> + Send;

    /// Acquires `key` with a fencing token.
    fn lock_fenced(&self, _key: &str) -> impl Future<Output = Result<Self::Lock, String>> + Send {
        async { Err(format!("{} has no tokens", Self::NAME)) }
    }

    /// Acquires all of `keys`, or none.
    fn lock_several(
        &self,
        _keys: &[String],
    ) -> impl Future<Output = Result<Self::Lock, String>> + Send {
        async { Err(format!("{} locks one key at a time", Self::NAME)) }
    }

    /// Extends a lock to its full time to live from now on.
    fn extend(&self, _lock: &mut Self::Lock) -> impl Future<Output = Result<(), String>> + Send {
        async { Err(format!("{} does not extend", Self::NAME)) }
    }

    /// Connects a client that can [`hold`](Self::hold) locks, and whose tasks can wait for that time.
    fn connect_patient(urls: &[String]) -> impl Future<Output = Result<Self, String>> + Send {
        Self::connect(urls)
    }

    /// Acquires `key`, which is uncontended, for an hour.
    fn hold(&self, _key: &str) -> impl Future<Output = Result<Self::Lock, String>> + Send {
        async { Err(format!("{} does not hold locks for long", Self::NAME)) }
    }

    /// Waits for `key`, which is held, for up to an hour.
    fn wait_long(&self, key: &str) -> impl Future<Output = Result<Self::Lock, String>> + Send {
        self.lock_waiting(key)
    }

    /// One acquire and one release.
    fn cycle(&self, key: &str) -> impl Future<Output = Result<(), String>> + Send {
        async {
            let lock = self.lock(key).await?;
            self.unlock(lock).await
        }
    }
}

/// rslock with one shared manager as in its README, with its default retries (3, each after up to 200 ms) and
/// its own connections. With `TCP_NODELAY` it was no faster, and slower at 512 tasks.
pub(crate) struct Rslock {
    manager: rslock::LockManager,
}

impl Contender for Rslock {
    const NAME: &'static str = "rslock";
    type Lock = rslock::Lock;

    async fn connect(urls: &[String]) -> Result<Self, String> {
        let manager = rslock::LockManager::new(urls.to_vec());
        Ok(Self { manager })
    }

    async fn lock(&self, key: &str) -> Result<Self::Lock, String> {
        self.manager.lock(key.as_bytes(), TTL).await.map_err(|error| error.to_string())
    }

    async fn lock_waiting(&self, key: &str) -> Result<Self::Lock, String> {
        self.manager.acquire_no_guard(key.as_bytes(), TTL).await.map_err(|error| error.to_string())
    }

    async fn hold(&self, key: &str) -> Result<Self::Lock, String> {
        self.manager.lock(key.as_bytes(), LONG).await.map_err(|error| error.to_string())
    }

    async fn extend(&self, lock: &mut Self::Lock) -> Result<(), String> {
        *lock = self.manager.extend(lock, TTL).await.map_err(|error| error.to_string())?;
        Ok(())
    }

    async fn unlock(&self, lock: Self::Lock) -> Result<(), String> {
        self.manager.unlock(&lock).await; // returns no result
        Ok(())
    }
}

/// rslock with retries after up to 10 ms instead of 200 ms: the effect of its only setting on waiting.
pub(crate) struct EagerRslock(Rslock);

impl Contender for EagerRslock {
    const NAME: &'static str = "rslock, retry 10 ms";
    type Lock = rslock::Lock;

    async fn connect(urls: &[String]) -> Result<Self, String> {
        let mut rslock = Rslock::connect(urls).await?;
        rslock.manager.set_retry(3, Duration::from_millis(10));
        Ok(Self(rslock))
    }

    async fn lock(&self, key: &str) -> Result<Self::Lock, String> {
        self.0.lock(key).await
    }

    async fn lock_waiting(&self, key: &str) -> Result<Self::Lock, String> {
        self.0.lock_waiting(key).await
    }

    async fn unlock(&self, lock: Self::Lock) -> Result<(), String> {
        self.0.unlock(lock).await
    }
}

/// quorlock with one shared client, the common ttl, the node timeout above, and other settings at their
/// defaults.
pub(crate) struct Quorlock {
    redlock: quorlock::Redlock,
}

impl Contender for Quorlock {
    const NAME: &'static str = "quorlock";
    type Lock = quorlock::Lease;

    async fn connect(urls: &[String]) -> Result<Self, String> {
        let redlock = quorlock::Redlock::builder()
            .nodes(urls)
            .ttl(TTL)
            .node_timeout(NODE_TIMEOUT)
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self { redlock })
    }

    async fn lock(&self, key: &str) -> Result<Self::Lock, String> {
        self.redlock.try_acquire(key).await.map_err(|error| error.to_string())
    }

    async fn lock_waiting(&self, key: &str) -> Result<Self::Lock, String> {
        self.redlock.acquire(key).wait(WAIT).await.map_err(|error| error.to_string())
    }

    async fn connect_patient(urls: &[String]) -> Result<Self, String> {
        let builder = quorlock::Redlock::builder().nodes(urls).max_ttl(LONG).ttl(LONG);
        // Ten thousand acquires start at once, for which a busy machine needs more than 50 ms.
        let redlock = builder.node_timeout(NODE_TIMEOUT * 10).build();
        Ok(Self { redlock: redlock.map_err(|error| error.to_string())? })
    }

    async fn hold(&self, key: &str) -> Result<Self::Lock, String> {
        self.redlock.acquire(key).wait(LONG).await.map_err(|error| error.to_string())
    }

    async fn wait_long(&self, key: &str) -> Result<Self::Lock, String> {
        self.redlock.acquire(key).wait(LONG).await.map_err(|error| error.to_string())
    }

    async fn lock_fenced(&self, key: &str) -> Result<Self::Lock, String> {
        self.redlock.try_acquire(key).fenced().await.map_err(|error| error.to_string())
    }

    async fn lock_several(&self, keys: &[String]) -> Result<Self::Lock, String> {
        self.redlock.try_acquire_all(keys).await.map_err(|error| error.to_string())
    }

    async fn extend(&self, lock: &mut Self::Lock) -> Result<(), String> {
        lock.extend(TTL).await.map_err(|error| error.to_string())
    }

    async fn unlock(&self, lock: Self::Lock) -> Result<(), String> {
        match lock.release().await {
            Ok(quorlock::ReleaseOutcome::Released) => Ok(()),
            Ok(outcome) => Err(format!("release returned {outcome:?}")),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// A client whose connections use `TCP_NODELAY`, as quorlock's do.
pub(crate) fn nodelay_client(url: &str) -> Result<Client, String> {
    let tcp = redis::io::tcp::TcpSettings::default().set_nodelay(true);
    let info = url.into_connection_info().map_err(|error| error.to_string())?.set_tcp_settings(tcp);
    Client::open(info).map_err(|error| error.to_string())
}
