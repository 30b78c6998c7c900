//! A semaphore: a limit on the number of holders, across all processes.

use super::acquire::Acquire;
use super::inner::Inner;
use super::lock_admin::status;
use super::permits::Permits;
use super::redlock::Redlock;
use super::semaphore_status::SemaphoreStatus;
use super::settings::MAX_RESOURCES;
use super::status::Status;
use crate::error::{ClientError, ConfigError};
use crate::observe::escape_name;
use crate::wire::{Key, Keys};
use futures::future::join_all;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// A limit on the number of holders, across all processes: at most [`permits`](Self::permits) leases of the semaphore
/// are valid at the same time. [`Redlock::semaphore`] creates it. Cheap to clone.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let nodes = quorlock_test::Nodes::start(3);
/// # let redlock = nodes.client().build()?;
/// let downloads = redlock.semaphore("downloads", 2)?;
/// let first = downloads.acquire().await?;
/// let second = downloads.acquire().await?;
/// assert!(downloads.try_acquire().await.is_err());
///
/// drop(first); // released in the background
/// let third = downloads.acquire().await?;
/// # let _ = (second, third);
/// # Ok(())
/// # }
/// ```
///
/// # How it works
/// Each permit is a separate lock, and a holder has the same permit on a quorum of nodes. The [guarantee of a
/// lock](crate#guides) therefore holds for each permit. Counting the holders on each node would not suffice: with five
/// nodes and two permits, three clients could each be counted by three nodes.
///
/// An acquire tries the permits in rotation from a random one, up to 16 in one request. While it waits, it is notified
/// when a permit is released. Waiting acquires of this client are served in order. Between clients, the order is
/// approximate.
///
/// # Different numbers of permits
/// Clients must use the same number. If they do not, at most as many clients hold a permit as the largest number in use
/// permits. A client that finds a permit held by a client with another number emits
/// [`PermitsDiffer`](crate::event::Event::PermitsDiffer) once. [`status`](Self::status) and [`Redlock::check`] also show
/// the other number.
#[derive(Clone)]
pub struct Semaphore {
    client: Arc<Inner>,
    name: Key,
    permits: Arc<Permits>,
}

impl Redlock {
    /// Returns the semaphore `name`, which at most `permits` clients hold at the same time. The names of semaphores and
    /// of locks are independent of each other. Contacts no node.
    ///
    /// # Errors
    /// Returns a [`ConfigError`] if the number of permits is not between 1 and 1000, or if the name is not valid.
    pub fn semaphore(
        &self,
        name: impl AsRef<[u8]>,
        permits: usize,
    ) -> Result<Semaphore, ConfigError> {
        let (client, name) = (self.inner.clone(), Key::from(name.as_ref()));
        let keys = client.settings.permit_keys(&name, 0..permits)?;
        Ok(Semaphore { client, name, permits: Arc::new(Permits::new(keys)) })
    }
}

impl Semaphore {
    /// Returns the name that was passed to [`Redlock::semaphore`].
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Returns the number of permits.
    pub fn permits(&self) -> usize {
        self.permits.keys.len()
    }

    /// Acquires a permit. If all are held, the acquire waits until one becomes free, for at most its [wait
    /// time](Acquire::wait). The lease ends as usual: by its release or drop, or with its validity unless it is
    /// [extended](Acquire::auto_extend). [`Lease::resource`](crate::LeaseRef::resource) returns the name of the permit.
    /// A permit can be neither [adopted](Redlock::adopt) nor released [by force](Redlock::force_release).
    ///
    /// A [fencing token](Acquire::fenced) orders only the holders of the same permit.
    ///
    /// # Errors
    /// See [`AcquireError`](crate::AcquireError). [`Contended`](crate::AcquireError::Contended) means that no permit was
    /// free on a quorum of nodes.
    ///
    /// # Cancel safety
    /// See [`Acquire`].
    pub fn acquire(&self) -> Acquire {
        Acquire::permit(self.client.clone(), self.permits.clone())
    }

    /// Acquires a permit if one is free. Tries each permit once, unless an attempt fails for another reason than held
    /// permits. See [`acquire`](Self::acquire).
    ///
    /// # Errors
    /// See [`AcquireError`](crate::AcquireError).
    ///
    /// # Cancel safety
    /// See [`Acquire`].
    pub fn try_acquire(&self) -> Acquire {
        self.acquire().once()
    }

    /// Reads the state of all permits from each node: the holders and the number of free permits. If a holder uses a
    /// larger number of permits, also reads the permits above this client's number. Takes at most two node timeouts.
    ///
    /// # Errors
    /// Returns a [`ClientError`] if the nodes cannot be contacted, for example because the client is closed. The
    /// failure of a single node is not an error.
    ///
    /// # Cancel safety
    /// The future can be dropped at any time.
    pub async fn status(&self) -> Result<SemaphoreStatus, ClientError> {
        self.client.driver.check_ready()?;
        let own = self.permits();
        let found = SemaphoreStatus::new(own, self.read(0..own).await?);
        let most = found.other_permits().unwrap_or(own).min(MAX_RESOURCES);
        if most <= own {
            return Ok(found);
        }
        Ok(found.with_more(self.read(own..most).await?))
    }

    async fn read(&self, permits: Range<usize>) -> Result<Vec<Status>, ClientError> {
        let keys = self.client.settings.permit_keys(&self.name, permits)?;
        let read = |key: &Key| {
            let keys = Keys::one(key.clone());
            async { status(&self.client, keys).await }
        };
        join_all(keys.iter().map(read)).await.into_iter().collect()
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = escape_name(&self.name);
        f.debug_struct("Semaphore")
            .field("name", &name)
            .field("permits", &self.permits())
            .finish_non_exhaustive()
    }
}
