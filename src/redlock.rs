//! The client.

use crate::acquire::Acquire;
use crate::builder::{Builder, Settings};
use crate::driver::Driver;
use crate::error::CloseError;
use crate::lease::Lease;
use crate::node::NodeState;
use crate::using::UsingError;
use std::fmt;
use std::sync::Arc;

/// A client of N independent Redis masters.
///
/// Cloning is cheap, and clones share connections. A client can be used from any number of tasks,
/// threads and runtimes at once, also as a `static`; each runtime gets connections of its own.
#[derive(Clone)]
pub struct Redlock {
    inner: Arc<Inner>,
}

/// What clones of a client and its leases share.
pub(crate) struct Inner {
    pub(crate) driver: Driver,
    pub(crate) settings: Settings,
}

/// How a client stands with one of its nodes, as last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    name: String,
    state: NodeState,
    version: Option<String>,
    evicting: Option<String>,
}

impl Redlock {
    /// Starts a configuration.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn new(driver: Driver, settings: Settings) -> Self {
        Self { inner: Arc::new(Inner { driver, settings }) }
    }

    /// One attempt to lock `resource`, which takes at most one node timeout.
    ///
    /// A resource is any sequence of bytes; its key is the [prefix](Builder::key_prefix) and it.
    ///
    /// # Errors
    /// See [`AcquireError`](crate::AcquireError).
    ///
    /// # Cancel safety
    /// See [`Acquire`].
    pub fn try_acquire(&self, resource: impl AsRef<[u8]>) -> Acquire {
        Acquire::once(self.inner.clone(), resource.as_ref())
    }

    /// Locks `resource`, and waits for it if it is held, within the [wait bound](Acquire::wait).
    ///
    /// # Errors
    /// See [`AcquireError`](crate::AcquireError).
    ///
    /// # Cancel safety
    /// See [`Acquire`].
    pub fn acquire(&self, resource: impl AsRef<[u8]>) -> Acquire {
        Acquire::patient(self.inner.clone(), resource.as_ref())
    }

    /// Does `work` under the lock of `resource`: short for [`acquire`](Self::acquire) and
    /// [`using`](Acquire::using).
    ///
    /// # Errors
    /// See [`UsingError`].
    ///
    /// # Cancel safety
    /// See [`Acquire::using`].
    pub async fn using<T, F>(&self, resource: impl AsRef<[u8]>, work: F) -> Result<T, UsingError<T>>
    where
        F: AsyncFnOnce(&Lease) -> T,
    {
        self.acquire(resource).using(work).await
    }

    /// Ends the client for all its clones: further acquires are refused with
    /// [`Closed`](crate::AcquireError::Closed), and the releases of dropped leases and given-up
    /// attempts are delivered before it returns. Leases that are still held are left alone.
    ///
    /// Call it before a short-lived process ends, so that nothing stays locked until its ttl. Takes
    /// at most one [connect timeout](Builder::connect_timeout).
    ///
    /// # Errors
    /// Names the nodes that did not take their releases in time. Their keys expire by themselves.
    ///
    /// # Cancel safety
    /// If the future is dropped the client stays closed, and deliveries go on in the background.
    pub async fn close(&self) -> Result<(), CloseError> {
        let undelivered = self.inner.driver.close(self.inner.settings.connect_timeout).await;
        if undelivered.is_empty() {
            return Ok(());
        }
        let name = |(name, count): (Arc<str>, usize)| (name.to_string(), count);
        Err(CloseError { undelivered: undelivered.into_iter().map(name).collect() })
    }

    /// How the client stands with each of its nodes, as last seen; asks nobody.
    pub fn nodes(&self) -> Vec<NodeInfo> {
        let nodes = self.inner.driver.pool.shared().iter();
        nodes
            .map(|node| {
                let (state, info) = node.status();
                NodeInfo {
                    name: node.name.to_string(),
                    state,
                    version: info.version.as_deref().map(str::to_owned),
                    evicting: info.evicting.as_deref().map(str::to_owned),
                }
            })
            .collect()
    }
}

impl NodeInfo {
    /// The node's address, without user and password.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is connected and answers.
    pub fn state(&self) -> &NodeState {
        &self.state
    }

    /// The server's version, if it told.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// The eviction policy, if the server may evict keys to save memory: **it can forget locks.**
    /// Set `maxmemory-policy noeviction` there.
    pub fn evicting(&self) -> Option<&str> {
        self.evicting.as_deref()
    }
}

impl fmt::Debug for Redlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redlock")
            .field("nodes", &self.nodes())
            .field("settings", &self.inner.settings)
            .finish()
    }
}
