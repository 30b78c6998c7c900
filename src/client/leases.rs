//! What a client holds.

use super::redlock::Redlock;
use crate::lease::LeaseState;
use crate::observe::FencingToken;
use crate::protocol::Tenure;
use crate::wire::Counters;
use std::fmt;
use std::time::Duration;

/// A lease that a client holds, as it was when it was asked: see [`Redlock::leases`].
#[derive(Clone, PartialEq, Eq)]
pub struct HeldLease {
    resources: Box<[Vec<u8>]>,
    class: Option<&'static str>,
    held_for: Duration,
    validity: Duration,
    token: Option<FencingToken>,
    guards: usize,
}

impl HeldLease {
    /// What `state` holds; `None` if that has ended.
    fn of(state: &LeaseState) -> Option<Self> {
        let now = state.now();
        let Tenure::Held { valid_until } = state.tenure() else { return None };
        Some(Self {
            resources: state.resources().map(<[u8]>::to_vec).collect(),
            class: state.tag().class,
            held_for: now.since(state.since()),
            validity: valid_until.since(now),
            token: state.claim().fence().and_then(Counters::token).map(FencingToken::new),
            guards: state.guards(),
        })
    }

    /// What is locked, without the key prefix; the first of several.
    pub fn resource(&self) -> &[u8] {
        self.resources.first().map_or(&[], |resource| resource)
    }

    /// All that is locked by this one lease, sorted.
    pub fn resources(&self) -> impl Iterator<Item = &[u8]> {
        self.resources.iter().map(|resource| &**resource)
    }

    /// What kind of lock it is, as told by [`Acquire::class`](crate::Acquire::class).
    pub fn class(&self) -> Option<&'static str> {
        self.class
    }

    /// Since when it is held: how long ago the attempt began that won it.
    pub fn held_for(&self) -> Duration {
        self.held_for
    }

    /// For how long it is valid, if it is not extended.
    pub fn validity(&self) -> Duration {
        self.validity
    }

    /// Its fencing token, if it has one.
    pub fn token(&self) -> Option<FencingToken> {
        self.token
    }

    /// How many guards hold it.
    pub fn guards(&self) -> usize {
        self.guards
    }
}

/// Shows no value of a lock.
impl fmt::Debug for HeldLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resources: Vec<_> = self.resources().map(String::from_utf8_lossy).collect();
        f.debug_struct("HeldLease")
            .field("resources", &resources)
            .field("class", &self.class)
            .field("held_for", &self.held_for)
            .field("validity", &self.validity)
            .field("token", &self.token)
            .field("guards", &self.guards)
            .finish()
    }
}

impl Redlock {
    /// The leases that this client and its clones hold now, by resource: what is held, since when, and for how
    /// long it is valid. A lease that was lost is not among them, though its holder may not have dropped it yet. Asks
    /// nobody; takes a moment for each lease.
    ///
    /// ```
    /// # #[cfg(feature = "test-util")]
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let nodes = quorlock::test_util::Nodes::start(3);
    /// # let redlock = nodes.client().build()?;
    /// # let _lease = redlock.acquire("orders/42").await?;
    /// for lease in redlock.leases() {
    ///     println!("{:?}: held for {:?}, valid for {:?}", lease.resource(), lease.held_for(), lease.validity());
    /// }
    /// # assert_eq!(redlock.leases().len(), 1);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "test-util"))]
    /// # fn main() {}
    /// ```
    pub fn leases(&self) -> Vec<HeldLease> {
        let held = self.inner().backing.registry.all();
        held.iter().filter_map(|state| HeldLease::of(state)).collect()
    }
}
