//! A reader-writer lock: many readers, or one writer.

use super::acquire::Acquire;
use super::inner::Inner;
use super::redlock::Redlock;
use crate::coordinator::SharingTerms;
use crate::error::ConfigError;
use crate::observe::escape_name;
use crate::wire::{Key, SharedKeys};
use std::fmt;
use std::sync::Arc;

/// A lock that either any number of readers or one writer hold, across all processes. [`Redlock::rw_lock`] creates it.
/// Cheap to clone.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let nodes = quorlock_test::Nodes::start(3);
/// # let redlock = nodes.client().build()?;
/// let catalog = redlock.rw_lock("catalog")?;
/// let first = catalog.read().await?;
/// let second = catalog.read().await?;
/// assert!(catalog.try_write().await.is_err());
/// drop((first, second)); // released in the background
///
/// let writer = catalog.write().await?;
/// assert!(catalog.try_read().await.is_err());
/// # Ok(())
/// # }
/// ```
///
/// # Readers, writers and ordinary locks
/// The writer holds the ordinary lock on the resource. Readers and writers therefore also exclude
/// [`Redlock::acquire`] and other programs that lock the same resource.
///
/// Each reader has its own TTL. A reader that crashes delays a writer only until its own TTL has passed.
///
/// # Order
/// A waiting writer makes new readers wait. It waits at most until the readers that hold the lock have released it, plus
/// one TTL of the writer, unless a reader extends its lease beyond that. If the writer has not acquired the lock within
/// its TTL, readers can acquire the lock again, and no writer can make them wait for another TTL. If the writer gives up
/// earlier, readers can acquire the lock at once. After a writer has released the lock, waiting readers go first: the
/// next writer leaves the lock to them for 20 ms and two of their round trips to the nodes.
///
/// A task that holds the lock for reading and acquires it for reading again can wait for that TTL of a waiting writer.
///
/// # Upgrade and downgrade
/// A writer can [become a reader](crate::LeaseRef::downgrade) without releasing the lock. A reader cannot become a
/// writer: two readers that want to would wait for each other.
#[derive(Clone)]
pub struct RwLock {
    client: Arc<Inner>,
    resource: Key,
    key: Key,
    keys: Arc<SharedKeys>,
}

impl Redlock {
    /// Returns the reader-writer lock on `resource`. Contacts no node.
    ///
    /// # Errors
    /// Returns a [`ConfigError`] if the name of the resource is not valid.
    pub fn rw_lock(&self, resource: impl AsRef<[u8]>) -> Result<RwLock, ConfigError> {
        let (client, resource) = (self.inner.clone(), Key::from(resource.as_ref()));
        let key = client.settings.key(resource.clone())?;
        let Some(keys) = SharedKeys::for_key(&key) else {
            return Err(ConfigError::NoReaders { resource: escape_name(&resource) });
        };
        Ok(RwLock { client, resource, key, keys: Arc::new(keys) })
    }
}

impl RwLock {
    /// Returns the resource that was passed to [`Redlock::rw_lock`].
    pub fn resource(&self) -> &[u8] {
        &self.resource
    }

    /// Acquires the lock for reading. If a writer holds the lock or waits for it, the acquire waits, for at most its
    /// [wait time](Acquire::wait). The lease ends as usual: by its release or drop, or with its validity unless it is
    /// [extended](Acquire::auto_extend). Unlike other leases, it is not notified at once if another program deletes the
    /// key: the next extension detects that.
    ///
    /// With [`fenced`](Acquire::fenced), the lease has a token that is not below the token of any earlier writer, or
    /// none if no writer has had a token. Several readers can have the same token. A resource compares a reader's token
    /// with the highest token that it has seen, but does not store it: the next writer's token can be lower.
    ///
    /// # Errors
    /// See [`AcquireError`](crate::AcquireError). [`Contended`](crate::AcquireError::Contended) means that a writer
    /// holds the lock or waits for it.
    ///
    /// # Cancel safety
    /// See [`Acquire`].
    pub fn read(&self) -> Acquire {
        self.acquire(true)
    }

    /// Tries once to acquire the lock for reading. See [`read`](Self::read).
    ///
    /// # Errors
    /// See [`AcquireError`](crate::AcquireError).
    ///
    /// # Cancel safety
    /// See [`Acquire`].
    pub fn try_read(&self) -> Acquire {
        self.read().once()
    }

    /// Acquires the lock for writing. If other clients hold the lock, the acquire waits, for at most its [wait
    /// time](Acquire::wait), and makes new readers wait. See [Order](Self#order).
    ///
    /// # Errors
    /// See [`AcquireError`](crate::AcquireError). [`Contended`](crate::AcquireError::Contended) means that readers or
    /// another holder have the lock.
    ///
    /// # Cancel safety
    /// See [`Acquire`]. A dropped acquire no longer makes new readers wait. If its process ends, they wait for at most its
    /// TTL.
    pub fn write(&self) -> Acquire {
        self.acquire(false)
    }

    /// Tries once to acquire the lock for writing. Does not make readers wait. See [`write`](Self::write).
    ///
    /// # Errors
    /// See [`AcquireError`](crate::AcquireError).
    ///
    /// # Cancel safety
    /// See [`Acquire`].
    pub fn try_write(&self) -> Acquire {
        self.write().once()
    }

    fn acquire(&self, is_reader: bool) -> Acquire {
        let sharing = SharingTerms { keys: self.keys.clone(), is_reader };
        Acquire::shared(self.client.clone(), self.key.clone(), sharing)
    }
}

impl fmt::Debug for RwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resource = escape_name(&self.resource);
        f.debug_struct("RwLock").field("resource", &resource).finish_non_exhaustive()
    }
}
