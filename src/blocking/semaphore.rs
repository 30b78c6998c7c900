//! [`Semaphore`]: the blocking form of a semaphore.

use super::acquire::Acquire;
use super::error::{Error, flatten_result};
use super::waiting::{CloseOnDrop, wait};
use crate::client::SemaphoreStatus;
use crate::error::ClientError;
use std::sync::Arc;

/// A limit on the number of holders, across all processes; see
/// [`Semaphore`](crate::Semaphore). [`Redlock::semaphore`](super::Redlock::semaphore) creates it.
#[derive(Clone, Debug)]
pub struct Semaphore {
    inner: crate::Semaphore,
    client: Arc<CloseOnDrop>,
}

impl Semaphore {
    pub(super) fn new(inner: crate::Semaphore, client: Arc<CloseOnDrop>) -> Self {
        Self { inner, client }
    }

    /// Returns the name of the semaphore.
    pub fn name(&self) -> &[u8] {
        self.inner.name()
    }

    /// Returns the number of permits.
    pub fn permits(&self) -> usize {
        self.inner.permits()
    }

    /// Returns an [`Acquire`] that acquires a permit, and waits if all permits are held; see
    /// [`Semaphore::acquire`](crate::Semaphore::acquire).
    pub fn acquire(&self) -> Acquire {
        Acquire::new(self.inner.acquire(), self.client.clone())
    }

    /// Returns an [`Acquire`] that acquires a permit if one is free; see
    /// [`Semaphore::try_acquire`](crate::Semaphore::try_acquire).
    pub fn try_acquire(&self) -> Acquire {
        Acquire::new(self.inner.try_acquire(), self.client.clone())
    }

    /// Reads the state of all permits from each node; see
    /// [`Semaphore::status`](crate::Semaphore::status).
    ///
    /// # Errors
    /// Returns [`InsideRuntime`](Error::InsideRuntime) if called on a thread that is polling an
    /// async task. For all other errors, see [`ClientError`].
    pub fn status(&self) -> Result<SemaphoreStatus, Error<ClientError>> {
        flatten_result(wait(self.inner.status()))
    }
}
