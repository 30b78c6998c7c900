//! [`Redlock`]: the blocking client.

use super::acquire::Acquire;
use super::background::Background;
use super::error::{Error, InsideRuntime, joined};
use super::lease::Lease;
use crate::check::NodeCheck;
use crate::client::{Builder, HeldLease, NodeInfo, Status, TryUsingError, UsingError};
use crate::error::{ClientError, CloseError, ConfigError, ReleaseError};
use crate::lease::ReleaseOutcome;
use crate::observe::Report;
use std::task::Poll;

/// A client of N independent Redis servers, for callers without a runtime; see
/// [`Redlock`](crate::Redlock). Created by [`Builder::build_blocking`].
#[derive(Clone, Debug)]
pub struct Redlock {
    // Field order matters: the background must outlive `inner` to deliver its releases.
    pub(super) inner: crate::Redlock,
    pub(super) background: Background,
}

impl Builder {
    /// Checks the settings and creates a client for callers without a runtime. Connections run on a
    /// dedicated thread. If a [runtime](Self::runtime) was set, they run there, and other threads
    /// must drive it.
    ///
    /// # Errors
    /// The invalid setting, or the settings that conflict. [`NoThread`](ConfigError::NoThread) if
    /// the thread or its runtime cannot be started.
    pub fn build_blocking(self) -> Result<Redlock, ConfigError> {
        let background = match self.given_runtime() {
            Some(handle) => Background::on(handle.clone()),
            None => Background::start(self.given_connect_timeout())
                .map_err(|error| ConfigError::NoThread { reason: error.to_string() })?,
        };
        let inner = self.runtime(background.handle().clone()).build()?;
        Ok(Redlock { inner, background })
    }
}

impl Redlock {
    pub(super) fn sharing(inner: crate::Redlock, background: Background) -> Self {
        Self { inner, background }
    }

    fn made(&self, inner: crate::Acquire) -> Acquire {
        Acquire::new(inner, self.background.clone())
    }

    /// An acquire with one attempt; see [`Redlock::try_acquire`](crate::Redlock::try_acquire).
    pub fn try_acquire(&self, resource: impl AsRef<[u8]>) -> Acquire {
        self.made(self.inner.try_acquire(resource))
    }

    /// An acquire that waits for the lock; see [`Redlock::acquire`](crate::Redlock::acquire).
    pub fn acquire(&self, resource: impl AsRef<[u8]>) -> Acquire {
        self.made(self.inner.acquire(resource))
    }

    /// An acquire of several resources with one attempt; see
    /// [`Redlock::try_acquire_all`](crate::Redlock::try_acquire_all).
    pub fn try_acquire_all<I>(&self, resources: I) -> Acquire
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        self.made(self.inner.try_acquire_all(resources))
    }

    /// An acquire of several resources that waits for them; see
    /// [`Redlock::acquire_all`](crate::Redlock::acquire_all).
    pub fn acquire_all<I>(&self, resources: I) -> Acquire
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        self.made(self.inner.acquire_all(resources))
    }

    /// An acquire that takes over a lock by its value; see
    /// [`Redlock::adopt`](crate::Redlock::adopt).
    pub fn adopt(&self, resource: impl AsRef<[u8]>, value: impl AsRef<str>) -> Acquire {
        self.made(self.inner.adopt(resource, value))
    }

    /// Runs `work` while holding the lock on `resource`; see [`Acquire::using`].
    ///
    /// # Errors
    /// As for [`Acquire::using`].
    pub fn using<T>(
        &self,
        resource: impl AsRef<[u8]>,
        work: impl FnOnce(&Lease) -> T,
    ) -> Result<T, Error<UsingError<T>>> {
        self.acquire(resource).using(work)
    }

    /// Runs `work`, which can fail, while holding the lock on `resource`; see
    /// [`Acquire::try_using`].
    ///
    /// # Errors
    /// As for [`Acquire::try_using`].
    pub fn try_using<T, E>(
        &self,
        resource: impl AsRef<[u8]>,
        work: impl FnOnce(&Lease) -> Result<T, E>,
    ) -> Result<T, Error<TryUsingError<T, E>>> {
        self.acquire(resource).try_using(work)
    }

    /// Returns the holder of `resource`; see [`Redlock::status`](crate::Redlock::status).
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn status(&self, resource: impl AsRef<[u8]>) -> Result<Status, Error<ClientError>> {
        joined(self.background.wait(self.inner.status(resource)))
    }

    /// Checks the configuration of each node; see [`Redlock::check`](crate::Redlock::check).
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn check(&self) -> Result<Vec<NodeCheck>, Error<ClientError>> {
        joined(self.background.wait(self.inner.check()))
    }

    /// Deletes the lock on `resource`, regardless of its holder; see
    /// [`Redlock::force_release`](crate::Redlock::force_release).
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn force_release(&self, resource: impl AsRef<[u8]>) -> Result<Report, Error<ClientError>> {
        joined(self.background.wait(self.inner.force_release(resource)))
    }

    /// Releases all leases of this client; see
    /// [`Redlock::release_all`](crate::Redlock::release_all).
    ///
    /// # Errors
    /// [`InsideRuntime`] on a thread that is polling an async task.
    #[allow(clippy::type_complexity)] // It is that of the async client, in a result.
    pub fn release_all(
        &self,
    ) -> Result<Vec<(Vec<u8>, Result<ReleaseOutcome, ReleaseError>)>, InsideRuntime> {
        self.background.wait(self.inner.release_all())
    }

    /// Closes the client; see [`Redlock::close`](crate::Redlock::close). On a thread that is
    /// polling an async task, it does not wait for pending releases, which continue in the
    /// background.
    ///
    /// # Errors
    /// The nodes that still have pending releases.
    pub fn close(&self) -> Result<(), CloseError> {
        let mut closing = std::pin::pin!(self.inner.close());
        self.background.wait(closing.as_mut()).unwrap_or_else(|_| {
            // The first poll closes the client and sends the releases.
            match self.background.begin(closing.as_mut()) {
                Poll::Ready(closed) => closed,
                Poll::Pending => Err(self.inner.remains()),
            }
        })
    }

    /// Returns the state of each node; see [`Redlock::nodes`](crate::Redlock::nodes).
    pub fn nodes(&self) -> Vec<NodeInfo> {
        self.inner.nodes()
    }

    /// Returns the leases that this client holds; see [`Redlock::leases`](crate::Redlock::leases).
    pub fn leases(&self) -> Vec<HeldLease> {
        self.inner.leases()
    }

    /// Returns the async client, which uses the same connections.
    pub fn inner(&self) -> &crate::Redlock {
        &self.inner
    }
}
