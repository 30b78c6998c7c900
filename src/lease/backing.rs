//! The part of a client that its leases use.

use super::limits::Limits;
use super::registry::LeaseRegistry;
use super::release::ReleaseOutcome;
use super::sending::release;
use crate::error::ReleaseError;
use crate::node::{NodeShared, Pool};
use crate::observe::Observers;
use crate::protocol::Quorum;
use crate::time::Clock;
use crate::wire::{NodeFailure, ServerInfo};
use futures::future::join_all;
use std::sync::Arc;

/// State shared by all leases of one client. A lease keeps it until it is released.
pub(crate) struct Backing {
    pub(crate) pool: Arc<Pool>,
    pub(crate) registry: Arc<LeaseRegistry>,
    pub(crate) quorum: Quorum,
    pub(crate) limits: Limits,
    origin: Arc<Origin>,
}

/// The part of a client that a lease keeps after its release. Keeps no connection open.
pub(super) struct Origin {
    pub(super) clock: Clock,
    pub(super) nodes: Arc<[Arc<NodeShared>]>,
    /// Length of the key prefix in bytes.
    pub(super) prefix: usize,
    pub(super) observers: Observers,
}

impl Backing {
    /// Creates the shared state. `prefix` is the length of the key prefix in bytes.
    pub(crate) fn new(
        pool: Arc<Pool>,
        registry: Arc<LeaseRegistry>,
        quorum: Quorum,
        limits: Limits,
        prefix: usize,
    ) -> Self {
        let (clock, observers) = (pool.clock().clone(), pool.observers().clone());
        let origin = Origin { clock, nodes: pool.all().clone(), prefix, observers };
        Self { pool, registry, quorum, limits, origin: Arc::new(origin) }
    }

    pub(crate) fn registry(&self) -> &LeaseRegistry {
        &self.registry
    }

    pub(super) fn origin(&self) -> &Arc<Origin> {
        &self.origin
    }

    pub(crate) fn clock(&self) -> &Clock {
        self.pool.clock()
    }

    /// Why the grants of each node would not count if new connections reached `servers`.
    pub(crate) fn preview_guard(&self, servers: &[Option<ServerInfo>]) -> Vec<Option<NodeFailure>> {
        self.pool.shared()[0].preview_guard(servers)
    }

    /// Releases all leases. Returns the first resource of each lease, with the outcome.
    pub(crate) async fn release_all(&self) -> Vec<(Vec<u8>, Result<ReleaseOutcome, ReleaseError>)> {
        let held = self.registry.all();
        let under_way = held.iter().filter_map(|state| {
            let released = release(state.close()?, None);
            let resource = state.resources().next().unwrap_or_default().to_vec();
            Some(async move { (resource, released.await) })
        });
        // Collect first: all releases must be in the mailboxes before the first one is awaited.
        join_all(under_way.collect::<Vec<_>>()).await
    }

    /// Rejects new leases, and releases the existing ones in the background.
    pub(crate) fn close(&self) {
        for state in self.registry.close() {
            drop(state.close());
        }
    }
}
