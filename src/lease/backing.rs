//! What leases need of their client for as long as they are held.

use super::limits::Limits;
use super::registry::LeaseRegistry;
use super::release::{ReleaseOutcome, release};
use crate::error::ReleaseError;
use crate::node::{NodeShared, Pool};
use crate::observe::Observers;
use crate::protocol::Quorum;
use crate::time::Clock;
use futures::future::join_all;
use std::sync::Arc;

/// What all leases of one client have in common.
pub(crate) struct Backing {
    pub(crate) pool: Arc<Pool>,
    pub(crate) registry: Arc<LeaseRegistry>,
    pub(crate) quorum: Quorum,
    pub(crate) limits: Limits,
    origin: Arc<Origin>,
}

/// Where leases are from: what they keep of their client also when they have ended. It keeps no connection.
pub(super) struct Origin {
    pub(super) clock: Clock,
    /// Who the nodes are.
    pub(super) nodes: Arc<[Arc<NodeShared>]>,
    /// How much of each key is the prefix.
    pub(super) prefix: usize,
    /// Who is told what happens.
    pub(super) observers: Observers,
}

impl Backing {
    /// For a client whose keys begin with so many bytes of a `prefix`.
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

    pub(super) fn origin(&self) -> &Arc<Origin> {
        &self.origin
    }

    /// The client's clock.
    pub(crate) fn clock(&self) -> &Clock {
        self.pool.clock()
    }

    /// Releases all leases, with what the nodes say of each.
    pub(crate) async fn release_all(&self) -> Vec<(Vec<u8>, Result<ReleaseOutcome, ReleaseError>)> {
        let held = self.registry.all();
        let under_way = held.iter().filter_map(|state| {
            let released = release(state.close()?, None);
            let resource = state.resources().next().unwrap_or_default().to_vec();
            Some(async move { (resource, released.await) })
        });
        // All are in the mailboxes before the first is waited for.
        join_all(under_way.collect::<Vec<_>>()).await
    }

    /// Takes no more leases, and gives up those that there are.
    pub(crate) fn close(&self) {
        for state in self.registry.close() {
            drop(state.close());
        }
    }
}
