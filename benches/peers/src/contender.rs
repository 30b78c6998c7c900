//! The compared libraries, behind a common trait.

use std::future::Future;
use std::time::Duration;

use redis::{Client, IntoConnectionInfo};
use serde::{Deserialize, Serialize};

pub(crate) const TTL: Duration = Duration::from_secs(10);

/// How long quorlock waits for a contended key. rslock has no such limit.
const WAIT: Duration = Duration::from_secs(5);

/// The TTL of locks that another client holds during the whole measurement of waiting tasks.
const LONG: Duration = Duration::from_hours(1);

const NODE_TIMEOUT: Duration = Duration::from_millis(50);

/// A compared library. The main process sends this value to its worker processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Library {
    Rslock,
    EagerRslock,
    Quorlock,
    RawFanOut,
    BareLoop,
}

/// A library that can lock and unlock a key on a majority of the nodes.
///
/// Errors are sentences for the report, which counts them by kind and prints the first error of each kind.
pub(crate) trait Contender: Sized + Send + Sync + 'static {
    const NAME: &'static str;

    type Lock: Send;

    fn connect(urls: &[String]) -> impl Future<Output = Result<Self, String>> + Send;

    /// Acquires `key`, which no other client holds.
    fn lock(&self, key: &str) -> impl Future<Output = Result<Self::Lock, String>> + Send;

    /// Acquires `key`, and waits while another client holds it.
    fn lock_waiting(&self, key: &str) -> impl Future<Output = Result<Self::Lock, String>> + Send {
        self.lock(key)
    }

    fn unlock(&self, lock: Self::Lock) -> impl Future<Output = Result<(), String>> + Send;

    fn lock_fenced(&self, _key: &str) -> impl Future<Output = Result<Self::Lock, String>> + Send {
        async { Err(format!("{} has no tokens", Self::NAME)) }
    }

    fn lock_several(
        &self,
        _keys: &[String],
    ) -> impl Future<Output = Result<Self::Lock, String>> + Send {
        async { Err(format!("{} locks one key at a time", Self::NAME)) }
    }

    /// Extends a lock to its full TTL, starting now.
    fn extend(&self, _lock: &mut Self::Lock) -> impl Future<Output = Result<(), String>> + Send {
        async { Err(format!("{} does not extend", Self::NAME)) }
    }

    /// Connects a client whose tasks can hold locks and wait for an hour.
    fn connect_patient(urls: &[String]) -> impl Future<Output = Result<Self, String>> + Send {
        Self::connect(urls)
    }

    /// Acquires `key` for an hour. No other client holds the key.
    fn hold(&self, _key: &str) -> impl Future<Output = Result<Self::Lock, String>> + Send {
        async { Err(format!("{} does not hold locks for long", Self::NAME)) }
    }

    /// Waits up to an hour for `key`, which another client holds.
    fn wait_long(&self, key: &str) -> impl Future<Output = Result<Self::Lock, String>> + Send {
        self.lock_waiting(key)
    }

    fn cycle(&self, key: &str) -> impl Future<Output = Result<(), String>> + Send {
        async {
            let lock = self.lock(key).await?;
            self.unlock(lock).await
        }
    }
}

/// rslock as in its README: one shared manager, its own connections, and the default of 3 retries, each after up to 200
/// ms. rslock was no faster with `TCP_NODELAY`, and slower at 512 tasks.
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
        self.manager.unlock(&lock).await; // `unlock` returns no result.
        Ok(())
    }
}

/// rslock with retries after up to 10 ms instead of 200 ms. The retry delay is rslock's only setting, and this
/// contender shows how the setting affects waiting.
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

/// quorlock with one shared client, the TTL of all contenders, and [`NODE_TIMEOUT`]. Other settings have their
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

/// Creates a client whose connections use `TCP_NODELAY`, as quorlock's connections do.
pub(crate) fn nodelay_client(url: &str) -> Result<Client, String> {
    let tcp = redis::io::tcp::TcpSettings::default().set_nodelay(true);
    let info = url.into_connection_info().map_err(|error| error.to_string())?.set_tcp_settings(tcp);
    Client::open(info).map_err(|error| error.to_string())
}
