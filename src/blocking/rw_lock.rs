//! [`RwLock`]: the blocking form of a reader-writer lock.

use super::acquire::Acquire;
use super::waiting::CloseOnDrop;
use std::sync::Arc;

/// A lock that either any number of readers or one writer hold, across all processes; see
/// [`RwLock`](crate::RwLock). [`Redlock::rw_lock`](super::Redlock::rw_lock) creates it.
#[derive(Clone, Debug)]
pub struct RwLock {
    inner: crate::RwLock,
    client: Arc<CloseOnDrop>,
}

impl RwLock {
    pub(super) fn new(inner: crate::RwLock, client: Arc<CloseOnDrop>) -> Self {
        Self { inner, client }
    }

    /// Returns the resource of the lock.
    pub fn resource(&self) -> &[u8] {
        self.inner.resource()
    }

    /// Returns an [`Acquire`] that acquires the lock for reading, and waits for writers; see
    /// [`RwLock::read`](crate::RwLock::read).
    pub fn read(&self) -> Acquire {
        self.wrap(self.inner.read())
    }

    /// Returns an [`Acquire`] that tries once to acquire the lock for reading; see
    /// [`RwLock::try_read`](crate::RwLock::try_read).
    pub fn try_read(&self) -> Acquire {
        self.wrap(self.inner.try_read())
    }

    /// Returns an [`Acquire`] that acquires the lock for writing, and waits for readers and writers;
    /// see [`RwLock::write`](crate::RwLock::write).
    pub fn write(&self) -> Acquire {
        self.wrap(self.inner.write())
    }

    /// Returns an [`Acquire`] that tries once to acquire the lock for writing; see
    /// [`RwLock::try_write`](crate::RwLock::try_write).
    pub fn try_write(&self) -> Acquire {
        self.wrap(self.inner.try_write())
    }

    fn wrap(&self, inner: crate::Acquire) -> Acquire {
        Acquire::new(inner, self.client.clone())
    }
}
