//! [`Redlock`]: the blocking client.

use super::acquire::Acquire;
use super::election::ElectionBuilder;
use super::error::{Error, InsideRuntime, flatten_result};
use super::job::Once;
use super::lease::Lease;
use super::rw_lock::RwLock;
use super::semaphore::Semaphore;
use super::waiting::{CloseOnDrop, begin, wait};
use crate::check::NodeCheck;
use crate::client::{Builder, HeldLease, NodeInfo, Status, TryUsingError, UsingError};
use crate::error::{ClientError, CloseError, ConfigError, ReleaseError};
use crate::lease::ReleaseOutcome;
use crate::observe::Report;
use std::sync::Arc;
use std::task::Poll;

/// Blocking client for locks on N independent Redis servers, for callers without an async runtime;
/// see [`Redlock`](crate::Redlock). [`Builder::build_blocking`] creates it.
#[derive(Clone, Debug)]
pub struct Redlock {
    inner: crate::Redlock,
    client: Arc<CloseOnDrop>,
}

impl Builder {
    /// Validates the settings and creates a blocking client, for callers without an async runtime.
    /// If a [runtime](Self::runtime) was set, other threads must drive it.
    ///
    /// # Errors
    /// Returns a [`ConfigError`] that names the invalid setting, or the settings that conflict.
    pub fn build_blocking(mut self) -> Result<Redlock, ConfigError> {
        self.environment.is_blocking = true;
        let inner = self.build()?;
        Ok(Redlock { client: Arc::new(CloseOnDrop(inner.clone())), inner })
    }
}

impl Redlock {
    fn wrap(&self, inner: crate::Acquire) -> Acquire {
        Acquire::new(inner, self.client.clone())
    }

    /// Returns an [`Acquire`] that tries once to lock `resource`; see
    /// [`Redlock::try_acquire`](crate::Redlock::try_acquire).
    pub fn try_acquire(&self, resource: impl AsRef<[u8]>) -> Acquire {
        self.wrap(self.inner.try_acquire(resource))
    }

    /// Returns an [`Acquire`] that locks `resource`, and waits if the lock is held; see
    /// [`Redlock::acquire`](crate::Redlock::acquire).
    pub fn acquire(&self, resource: impl AsRef<[u8]>) -> Acquire {
        self.wrap(self.inner.acquire(resource))
    }

    /// Returns an [`Acquire`] that tries once to lock several resources with one lease; see
    /// [`Redlock::try_acquire_all`](crate::Redlock::try_acquire_all).
    pub fn try_acquire_all<I>(&self, resources: I) -> Acquire
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        self.wrap(self.inner.try_acquire_all(resources))
    }

    /// Returns an [`Acquire`] that locks several resources with one lease, and waits if one of them
    /// is held; see [`Redlock::acquire_all`](crate::Redlock::acquire_all).
    pub fn acquire_all<I>(&self, resources: I) -> Acquire
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        self.wrap(self.inner.acquire_all(resources))
    }

    /// Returns an [`Acquire`] that tries once to lock any one of several resources; see
    /// [`Redlock::try_acquire_any`](crate::Redlock::try_acquire_any).
    pub fn try_acquire_any<I>(&self, resources: I) -> Acquire
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        self.wrap(self.inner.try_acquire_any(resources))
    }

    /// Returns an [`Acquire`] that locks any one of several resources, and waits if all of them are
    /// held; see [`Redlock::acquire_any`](crate::Redlock::acquire_any).
    pub fn acquire_any<I>(&self, resources: I) -> Acquire
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        self.wrap(self.inner.acquire_any(resources))
    }

    /// Returns the reader-writer lock on `resource`; see
    /// [`Redlock::rw_lock`](crate::Redlock::rw_lock).
    ///
    /// # Errors
    /// Returns a [`ConfigError`] if the name of the resource is not valid.
    pub fn rw_lock(&self, resource: impl AsRef<[u8]>) -> Result<RwLock, ConfigError> {
        Ok(RwLock::new(self.inner.rw_lock(resource)?, self.client.clone()))
    }

    /// Returns the semaphore `name`; see [`Redlock::semaphore`](crate::Redlock::semaphore).
    ///
    /// # Errors
    /// Returns a [`ConfigError`] if the number of permits is not between 1 and 1000, or if the name
    /// is not valid.
    pub fn semaphore(
        &self,
        name: impl AsRef<[u8]>,
        permits: usize,
    ) -> Result<Semaphore, ConfigError> {
        Ok(Semaphore::new(self.inner.semaphore(name, permits)?, self.client.clone()))
    }

    /// Returns the settings of the election `name`; see
    /// [`Redlock::election`](crate::Redlock::election).
    pub fn election(&self, name: impl AsRef<[u8]>) -> ElectionBuilder {
        ElectionBuilder::new(self.inner.election(name), self.client.clone())
    }

    /// Names a scheduled job that runs once per period; see [`Redlock::once`](crate::Redlock::once).
    pub fn once(&self, name: impl AsRef<[u8]>) -> Once {
        Once::new(self.inner.once(name), self.client.clone())
    }

    /// Returns an [`Acquire`] that takes over the lock on `resource` from the lease with the value
    /// `value`; see [`Redlock::adopt`](crate::Redlock::adopt).
    pub fn adopt(&self, resource: impl AsRef<[u8]>, value: impl AsRef<str>) -> Acquire {
        self.wrap(self.inner.adopt(resource, value))
    }

    /// Runs `work` while holding the lock on `resource`; see [`Acquire::using`].
    ///
    /// # Errors
    /// See [`Acquire::using`].
    pub fn using<T>(
        &self,
        resource: impl AsRef<[u8]>,
        work: impl FnOnce(&Lease) -> T,
    ) -> Result<T, Error<UsingError<T>>> {
        self.acquire(resource).using(work)
    }

    /// Runs `work`, which returns a `Result`, while holding the lock on `resource`; see
    /// [`Acquire::try_using`].
    ///
    /// # Errors
    /// See [`Acquire::try_using`].
    pub fn try_using<T, E>(
        &self,
        resource: impl AsRef<[u8]>,
        work: impl FnOnce(&Lease) -> Result<T, E>,
    ) -> Result<T, Error<TryUsingError<T, E>>> {
        self.acquire(resource).try_using(work)
    }

    /// Reads the state of the lock on `resource` from each node; see
    /// [`Redlock::status`](crate::Redlock::status).
    ///
    /// # Errors
    /// Returns [`InsideRuntime`](Error::InsideRuntime) if called on a thread that is polling an
    /// async task. For all other errors, see [`ClientError`].
    pub fn status(&self, resource: impl AsRef<[u8]>) -> Result<Status, Error<ClientError>> {
        flatten_result(wait(self.inner.status(resource)))
    }

    /// Checks the configuration of each node; see [`Redlock::check`](crate::Redlock::check).
    ///
    /// # Errors
    /// Returns [`InsideRuntime`](Error::InsideRuntime) if called on a thread that is polling an
    /// async task. For all other errors, see [`ClientError`].
    pub fn check(&self) -> Result<Vec<NodeCheck>, Error<ClientError>> {
        flatten_result(wait(self.inner.check()))
    }

    /// Deletes the lock on `resource`, regardless of its holder; see
    /// [`Redlock::force_release`](crate::Redlock::force_release).
    ///
    /// # Errors
    /// Returns [`InsideRuntime`](Error::InsideRuntime) if called on a thread that is polling an
    /// async task. For all other errors, see [`ClientError`].
    pub fn force_release(&self, resource: impl AsRef<[u8]>) -> Result<Report, Error<ClientError>> {
        flatten_result(wait(self.inner.force_release(resource)))
    }

    /// Releases all leases of this client; see
    /// [`Redlock::release_all`](crate::Redlock::release_all).
    ///
    /// # Errors
    /// Returns [`InsideRuntime`] if called on a thread that is polling an async task.
    #[allow(clippy::type_complexity)] // Same type as in the async client, in a `Result`.
    pub fn release_all(
        &self,
    ) -> Result<Vec<(Vec<u8>, Result<ReleaseOutcome, ReleaseError>)>, InsideRuntime> {
        wait(self.inner.release_all())
    }

    /// Closes the client and waits for its pending releases; see
    /// [`Redlock::close`](crate::Redlock::close). On a thread that is polling an async task, this
    /// method does not wait, and the releases continue in the background.
    ///
    /// # Errors
    /// Returns a [`CloseError`] that names the nodes with pending releases.
    pub fn close(&self) -> Result<(), CloseError> {
        let mut closing = std::pin::pin!(self.inner.close());
        wait(closing.as_mut()).unwrap_or_else(|_| {
            // The first poll closes the client and sends the releases.
            match begin(closing.as_mut()) {
                Poll::Ready(closed) => closed,
                Poll::Pending => Err(self.inner.remains()),
            }
        })
    }

    /// Returns the last known state of each node; see [`Redlock::nodes`](crate::Redlock::nodes).
    pub fn nodes(&self) -> Vec<NodeInfo> {
        self.inner.nodes()
    }

    /// Returns a snapshot of each lease that this client holds; see
    /// [`Redlock::leases`](crate::Redlock::leases).
    pub fn leases(&self) -> Vec<HeldLease> {
        self.inner.leases()
    }

    /// Returns the async client that this client wraps. Both use the same connections.
    pub fn inner(&self) -> &crate::Redlock {
        &self.inner
    }
}
