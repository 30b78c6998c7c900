//! State that all handles of a client share, and the creation of leases.

use super::Lease;
use super::calls::release_outcome;
use super::limits::Limits;
use super::registry::LeaseRegistry;
use super::release::ReleaseOutcome;
use super::state::{LeaseContext, LeaseState};
use super::view::LeaseRef;
use crate::coordinator::PermitsDifference;
use crate::engine::{AcquiredLease, Client, Engine, LeaseListener};
use crate::error::ReleaseError;
use crate::node::Pool;
use crate::observe::AcquireTag;
use crate::protocol::{Quorum, Ttl};
use crate::time::Clock;
use crate::wire::{NodeFailure, ServerInfo, main_key};
use std::any::Any;
use std::sync::Arc;

/// Creates the leases of a client, and can release all of them. All handles of the client share it. Of its
/// parts, a lease keeps only the client and the context.
pub(crate) struct Backing {
    pub(crate) pool: Arc<Pool>,
    pub(crate) quorum: Quorum,
    pub(crate) client: Arc<Client>,
    context: Arc<LeaseContext>,
}

impl Backing {
    pub(crate) fn new(
        pool: Arc<Pool>,
        client: Arc<Client>,
        quorum: Quorum,
        limits: Limits,
        prefix: usize,
    ) -> Self {
        let (clock, observers) = (pool.clock().clone(), pool.observers().clone());
        let context = Arc::new(LeaseContext { clock, observers, limits, prefix });
        Self { pool, quorum, client, context }
    }

    pub(crate) fn clock(&self) -> &Clock {
        self.pool.clock()
    }

    pub(crate) fn registry(&self) -> Arc<LeaseRegistry> {
        registry(self.client.engine())
    }

    pub(crate) fn lease(&self, acquired: AcquiredLease, ttl: Ttl, tag: AcquireTag) -> Lease {
        let registry = registry(&acquired.engine);
        let engine = acquired.engine.clone();
        let state = LeaseState::new(&self.client, acquired, &self.context, (ttl, tag));
        registry.enter(&state);
        if engine.has_panicked() {
            state.handle_failure();
        }
        Lease::guard(LeaseRef::new(state))
    }

    /// Predicts how the restart guard would treat the nodes if the client connected to `servers`
    /// now. An entry of `servers` is `None` if the node could not be reached. For each node, the
    /// result contains the reason why the node's grants would not count towards the quorum, or
    /// `None` if they would count.
    pub(crate) fn preview_guard(&self, servers: &[Option<ServerInfo>]) -> Vec<Option<NodeFailure>> {
        self.client.engine().with(|it, now| it.preview_guard(servers, now)).unwrap_or_default()
    }

    /// Returns the semaphores that other clients use with another number of permits, each by its name.
    pub(crate) fn differing_permits(&self) -> Vec<(Vec<u8>, PermitsDifference)> {
        let found = self.client.engine().with(|it, _| it.differing_permits()).unwrap_or_default();
        let name = |key| main_key(key).get(self.context.prefix..).unwrap_or_default().to_vec();
        found.iter().map(|(key, difference)| (name(key), *difference)).collect()
    }

    /// Releases all leases. Returns the first resource of each lease, and the outcome of its release.
    pub(crate) async fn release_all(&self) -> Vec<(Vec<u8>, Result<ReleaseOutcome, ReleaseError>)> {
        self.registry().handle_close();
        let released = self.client.release_all().await;
        let name = |key: &[u8]| key.get(self.context.prefix..).unwrap_or_default().to_vec();
        let now = self.clock().now();
        released.into_iter().map(|(key, ended)| (name(&key), release_outcome(ended, now))).collect()
    }
}

/// Returns the registry of `engine`. A client whose engine was replaced has several registries.
fn registry(engine: &Engine) -> Arc<LeaseRegistry> {
    let leases: Arc<dyn Any + Send + Sync> = engine.leases().clone();
    leases.downcast().unwrap_or_default()
}
