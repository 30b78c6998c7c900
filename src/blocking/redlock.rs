//! The client.

use super::acquire::Acquire;
use super::background::Background;
use super::error::{Error, InsideRuntime, joined};
use super::lease::Lease;
use super::profile::Profile;
use crate::check::NodeCheck;
use crate::client::{Builder, HeldLease, NodeInfo, Status, TryUsingError, UsingError};
use crate::error::{ClientError, CloseError, ConfigError, ReleaseError};
use crate::lease::ReleaseOutcome;
use crate::observe::Report;
use std::task::Poll;

/// A client of N independent Redis masters, for callers without a runtime; see
/// [`Redlock`](crate::Redlock). Made by [`Builder::build_blocking`].
#[derive(Clone, Debug)]
pub struct Redlock {
    // Dropped in this order: what is released is delivered by the background.
    inner: crate::Redlock,
    background: Background,
}

impl Builder {
    /// Checks the settings and makes a client for callers without a runtime, with a thread for its
    /// connections; or on the [runtime](Self::runtime) that was given, which must then be driven by
    /// other threads.
    ///
    /// # Errors
    /// Says what cannot work, by name.
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

    /// Starts a profile: the same client with other settings for one kind of use; see
    /// [`Redlock::profile`](crate::Redlock::profile).
    pub fn profile(&self) -> Profile {
        Profile::new(self.inner.profile(), self.background.clone())
    }

    fn made(&self, inner: crate::Acquire) -> Acquire {
        Acquire::new(inner, self.background.clone())
    }

    /// See [`Redlock::try_acquire`](crate::Redlock::try_acquire).
    pub fn try_acquire(&self, resource: impl AsRef<[u8]>) -> Acquire {
        self.made(self.inner.try_acquire(resource))
    }

    /// See [`Redlock::acquire`](crate::Redlock::acquire).
    pub fn acquire(&self, resource: impl AsRef<[u8]>) -> Acquire {
        self.made(self.inner.acquire(resource))
    }

    /// See [`Redlock::try_acquire_all`](crate::Redlock::try_acquire_all).
    pub fn try_acquire_all<I>(&self, resources: I) -> Acquire
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        self.made(self.inner.try_acquire_all(resources))
    }

    /// See [`Redlock::acquire_all`](crate::Redlock::acquire_all).
    pub fn acquire_all<I>(&self, resources: I) -> Acquire
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        self.made(self.inner.acquire_all(resources))
    }

    /// See [`Redlock::adopt`](crate::Redlock::adopt).
    pub fn adopt(&self, resource: impl AsRef<[u8]>, value: impl AsRef<str>) -> Acquire {
        self.made(self.inner.adopt(resource, value))
    }

    /// Does `work` under the lock of `resource`; see [`Acquire::using`].
    ///
    /// # Errors
    /// See [`UsingError`].
    pub fn using<T>(
        &self,
        resource: impl AsRef<[u8]>,
        work: impl FnOnce(&Lease) -> T,
    ) -> Result<T, Error<UsingError<T>>> {
        self.acquire(resource).using(work)
    }

    /// Does `work` that can fail under the lock of `resource`; see [`Acquire::try_using`].
    ///
    /// # Errors
    /// See [`TryUsingError`].
    pub fn try_using<T, E>(
        &self,
        resource: impl AsRef<[u8]>,
        work: impl FnOnce(&Lease) -> Result<T, E>,
    ) -> Result<T, Error<TryUsingError<T, E>>> {
        self.acquire(resource).try_using(work)
    }

    /// Who holds `resource`; see [`Redlock::status`](crate::Redlock::status).
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn status(&self, resource: impl AsRef<[u8]>) -> Result<Status, Error<ClientError>> {
        joined(self.background.wait(self.inner.status(resource)))
    }

    /// Looks at each node; see [`Redlock::check`](crate::Redlock::check).
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn check(&self) -> Result<Vec<NodeCheck>, Error<ClientError>> {
        joined(self.background.wait(self.inner.check()))
    }

    /// Takes the lock of `resource` away; see
    /// [`Redlock::force_release`](crate::Redlock::force_release).
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn force_release(&self, resource: impl AsRef<[u8]>) -> Result<Report, Error<ClientError>> {
        joined(self.background.wait(self.inner.force_release(resource)))
    }

    /// Releases all leases of this client; see [`Redlock::release_all`](crate::Redlock::release_all).
    ///
    /// # Errors
    /// [`InsideRuntime`].
    #[allow(clippy::type_complexity)] // It is that of the async client, in a result.
    pub fn release_all(
        &self,
    ) -> Result<Vec<(Vec<u8>, Result<ReleaseOutcome, ReleaseError>)>, InsideRuntime> {
        self.background.wait(self.inner.release_all())
    }

    /// Ends the client; see [`Redlock::close`](crate::Redlock::close). Inside of a runtime it does not
    /// wait for the deliveries, which go on.
    ///
    /// # Errors
    /// Names the nodes that are still owed releases.
    pub fn close(&self) -> Result<(), CloseError> {
        let mut closing = std::pin::pin!(self.inner.close());
        self.background.wait(closing.as_mut()).unwrap_or_else(|_| {
            // It is closed, and the releases are sent.
            match self.background.begin(closing.as_mut()) {
                Poll::Ready(closed) => closed,
                Poll::Pending => Err(self.inner.remains()),
            }
        })
    }

    /// How the client stands with each of its nodes; see [`Redlock::nodes`](crate::Redlock::nodes).
    pub fn nodes(&self) -> Vec<NodeInfo> {
        self.inner.nodes()
    }

    /// See [`Redlock::leases`](crate::Redlock::leases).
    pub fn leases(&self) -> Vec<HeldLease> {
        self.inner.leases()
    }

    /// The client for async code, on the same connections.
    pub fn inner(&self) -> &crate::Redlock {
        &self.inner
    }
}
