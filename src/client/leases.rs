//! The leases that a client holds.

use super::redlock::Redlock;
use crate::lease::LeaseState;
use crate::observe::FencingToken;
use crate::observe::event::LockInfo;
use crate::protocol::LeaseStatus;
use crate::wire::Counters;
use std::time::Duration;

/// A snapshot of a lease that a client holds; see [`Redlock::leases`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldLease {
    lock: LockInfo,
    held_for: Duration,
    validity: Duration,
    token: Option<FencingToken>,
    guards: usize,
}

impl HeldLease {
    fn of(state: &LeaseState) -> Option<Self> {
        let now = state.now();
        let LeaseStatus::Held { valid_until } = state.status() else { return None };
        Some(Self {
            lock: state.lock_info(),
            held_for: now.since(state.since()),
            validity: valid_until.since(now),
            token: state.claim().fence().and_then(Counters::token).map(FencingToken::new),
            guards: state.guards(),
        })
    }

    /// Returns the locked resource, without the key prefix. If the lease has several resources, returns the first one.
    pub fn resource(&self) -> &[u8] {
        self.resources().next().unwrap_or_default()
    }

    /// Returns all resources of the lease, sorted and without the key prefix.
    pub fn resources(&self) -> impl Iterator<Item = &[u8]> {
        self.lock.resources.iter()
    }

    /// Returns the class of the lock, if one was set; see [`Acquire::class`](crate::Acquire::class).
    pub fn class(&self) -> Option<&'static str> {
        self.lock.class
    }

    /// Returns how long the lease had been held at the time of this snapshot, measured from the start of the attempt
    /// that acquired the lease.
    pub fn held_for(&self) -> Duration {
        self.held_for
    }

    /// Returns the validity that remained at the time of this snapshot. Later extensions do not change this value.
    pub fn validity(&self) -> Duration {
        self.validity
    }

    /// Returns the lease's fencing token, if it has one.
    pub fn token(&self) -> Option<FencingToken> {
        self.token
    }

    /// Returns the number of guards that hold the lease; see [`reenter`](crate::LeaseRef::reenter).
    pub fn guards(&self) -> usize {
        self.guards
    }
}

impl Redlock {
    /// Returns a snapshot of each lease that this client and its clones hold, ordered by resource. Lost leases are
    /// excluded, even if their holders have not dropped them yet. Does no I/O; the cost is proportional to the number
    /// of leases.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let nodes = quorlock_test::Nodes::start(3);
    /// # let redlock = nodes.client().build()?;
    /// # let _lease = redlock.acquire("orders/42").await?;
    /// for lease in redlock.leases() {
    ///     println!("{:?}: held for {:?}, valid for {:?}", lease.resource(), lease.held_for(), lease.validity());
    /// }
    /// # assert_eq!(redlock.leases().len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn leases(&self) -> Vec<HeldLease> {
        let mut held = self.inner.backing.registry().all();
        held.sort_by(|one, other| one.claim().keys().first().cmp(other.claim().keys().first()));
        held.iter().filter_map(|state| HeldLease::of(state)).collect()
    }
}
