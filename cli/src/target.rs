//! The locks that a command acquires: resources, a reader-writer lock for reading, or a permit of a semaphore.

use crate::exit::Failure;
use crate::nodes::Client;
use crate::settings::AvailableOptions;
use crate::{quarantine, resource};
use quorlock::{Acquire, Holder, RwLock, Semaphore, SemaphoreStatus};
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt as _;

#[derive(Clone, Copy)]
pub(crate) enum Target<'a> {
    /// Resources that are locked together: all or none.
    Resources(&'a [&'a [u8]]),
    /// A lock that is acquired for reading.
    Shared(&'a RwLock),
    /// Any one permit of a semaphore.
    Permit(&'a Semaphore),
}

/// The maximum number of holders that a message about a semaphore names.
const NAMED_HOLDERS: usize = 3;

impl Target<'_> {
    /// Builds the acquire. It makes one attempt if `once` is set, and otherwise waits.
    pub(crate) fn acquire(self, client: &Client, once: bool) -> Acquire {
        let redlock = &client.redlock;
        match (self, once) {
            (Self::Resources([name]), true) => redlock.try_acquire(name),
            (Self::Resources([name]), false) => redlock.acquire(name),
            (Self::Resources(several), true) => redlock.try_acquire_all(several),
            (Self::Resources(several), false) => redlock.acquire_all(several),
            (Self::Shared(lock), true) => lock.try_read(),
            (Self::Shared(lock), false) => lock.read(),
            (Self::Permit(semaphore), true) => semaphore.try_acquire(),
            (Self::Permit(semaphore), false) => semaphore.acquire(),
        }
    }

    /// Returns the names of the resources, one per line, or the name of the semaphore.
    pub(crate) fn lines(self) -> OsString {
        OsString::from_vec(match self {
            Self::Resources(names) => names.join(&b'\n'),
            Self::Shared(lock) => lock.resource().to_owned(),
            Self::Permit(semaphore) => semaphore.name().to_owned(),
        })
    }

    /// Describes the first resource for which a majority of the nodes reports the same holder, or the holders of a
    /// semaphore without a free permit. Returns `None` if the nodes report no such conflict.
    pub(crate) async fn conflict(self, client: &Client) -> Option<String> {
        match self {
            Self::Resources(names) => {
                for name in names {
                    let Ok(status) = client.redlock.status(name).await else { continue };
                    if let Some(holder) = status.holder() {
                        let name = resource::display_name(name);
                        return Some(format!("{name} is {}", described(&holder)));
                    }
                }
                None
            }
            Self::Shared(lock) => {
                let holder = client.redlock.status(lock.resource()).await.ok()?.holder()?;
                // Readers do not block a reader, but a writer that waits for them does.
                let reason = if holder.is_readers() {
                    "held by readers, and a writer waits for it".to_owned()
                } else {
                    described(&holder)
                };
                Some(format!("{self} is {reason}"))
            }
            Self::Permit(semaphore) => {
                let status = semaphore.status().await.ok()?;
                let is_full = status.free() == 0 && !status.holders().is_empty();
                is_full.then(|| format!("{self} has no free permit: {}", holders(&status)))
            }
        }
    }
}

impl fmt::Display for Target<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&match self {
            Self::Resources(names) => resource::display_names(names),
            Self::Shared(lock) => resource::display_name(lock.resource()),
            Self::Permit(semaphore) => resource::display_name(semaphore.name()),
        })
    }
}

/// Creates the lock of `--shared`.
///
/// # Errors
/// Fails with a usage error if the lock cannot have readers.
pub(crate) fn rw_lock(client: &Client, name: &[u8]) -> Result<RwLock, Failure> {
    let created = client.redlock.rw_lock(name);
    created.map_err(|error| Failure::setting(&error, AvailableOptions::Nodes))
}

/// Creates the semaphore of `--permits`.
///
/// # Errors
/// Fails with a usage error if the number of permits or the name is invalid.
pub(crate) fn semaphore(
    client: &Client,
    name: &[u8],
    permits: usize,
) -> Result<Semaphore, Failure> {
    let created = client.redlock.semaphore(name, permits);
    created.map_err(|error| Failure::setting(&error, AvailableOptions::Nodes))
}

/// Describes a lock that is held or cooling down. In the second case, the key remains without a holder until its TTL
/// ends.
pub(crate) fn described(holder: &Holder) -> String {
    if !holder.is_cooling_down() {
        return format!("held by {holder}");
    }
    let left =
        holder.ttl().map_or_else(String::new, |ttl| format!(" for {}", quarantine::seconds(ttl)));
    format!("cooling down{left} (released; no client holds it)")
}

/// Names the first few holders of a semaphore's permits.
fn holders(status: &SemaphoreStatus) -> String {
    let all = status.holders();
    let named: Vec<_> = all.iter().take(NAMED_HOLDERS).map(described).collect();
    let more = all.len().saturating_sub(NAMED_HOLDERS);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{}{more}", named.join(", "))
}
