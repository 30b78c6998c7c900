//! The part of a client that its handles use.

use super::Lease;
use super::limits::Limits;
use super::release::ReleaseOutcome;
use super::state::{LeaseState, release_outcome};
use super::view::LeaseRef;
use crate::engine::{Client, Won};
use crate::error::ReleaseError;
use crate::node::Pool;
use crate::observe::Tag;
use crate::protocol::{Quorum, Ttl};
use crate::time::Clock;
use std::sync::Arc;

/// State shared by all handles of one client.
pub(crate) struct Backing {
    pub(crate) pool: Arc<Pool>,
    pub(crate) quorum: Quorum,
    pub(crate) limits: Limits,
    pub(crate) client: Arc<Client>,
    pub(crate) registry: Registry,
    /// Length of the key prefix in bytes.
    prefix: usize,
}

/// The leases that were acquired and not yet released.
pub(crate) struct Registry(Arc<Client>);

impl Backing {
    pub(crate) fn new(
        pool: Arc<Pool>,
        client: Client,
        quorum: Quorum,
        limits: Limits,
        prefix: usize,
    ) -> Self {
        let client = Arc::new(client);
        Self { pool, quorum, limits, registry: Registry(client.clone()), client, prefix }
    }

    pub(crate) fn clock(&self) -> &Clock {
        self.pool.clock()
    }

    /// The lease that a caller has taken.
    pub(crate) fn lease(&self, won: Won, ttl: Ttl, tag: Tag) -> Lease {
        let state = LeaseState::new(&self.client, won, self.limits, self.prefix, (ttl, tag));
        Lease::guard(LeaseRef::new(state))
    }

    /// Releases all leases. Returns the first resource of each lease, with the outcome.
    pub(crate) async fn release_all(&self) -> Vec<(Vec<u8>, Result<ReleaseOutcome, ReleaseError>)> {
        for lease in self.client.engine().leases() {
            lease.end_by_close();
        }
        let released = self.client.release_all().await;
        let name = |key: &[u8]| key.get(self.prefix..).unwrap_or_default().to_vec();
        released.into_iter().map(|(key, ended)| (name(&key), release_outcome(ended))).collect()
    }
}

impl Registry {
    /// True if a lease on `key` is valid in this client.
    pub(crate) fn holds(&self, key: &[u8]) -> bool {
        self.0.engine().with(|it, now| it.holds(key, now))
    }

    /// All leases, each once.
    pub(crate) fn all(&self) -> Vec<Arc<LeaseState>> {
        self.0.engine().leases()
    }

    /// Number of keys.
    pub(crate) fn count(&self) -> usize {
        self.0.engine().with(|it, _| it.held_keys())
    }
}
