//! The parts of a client whose driver acquires.

use super::assembly::Parts;
use super::listeners::Listeners;
use super::redlock::Redlock;
use crate::acquire::{Driver, WaitQueues};
use crate::error::ConfigError;
use crate::lease::{Backing, LeaseRegistry};
use crate::node::{Pool, PushSink};
use crate::protocol::ClientId;
use std::sync::Arc;

impl Parts {
    #[expect(clippy::unnecessary_wraps, reason = "with the coordinator, it can fail")]
    pub(super) fn assemble(mut self) -> Result<Redlock, ConfigError> {
        let waiters = WaitQueues::new(self.quorum, &self.environment);
        let registry = Arc::new(LeaseRegistry::default());
        let listeners: Arc<dyn PushSink> =
            Arc::new(Listeners { waiters: waiters.clone(), registry: registry.clone() });
        let (timings, nodes) = (self.timings(), self.nodes(&listeners));
        let Self { quorum, runtime, environment, settings, .. } = self;
        let client = ClientId::from_random(environment.random.number());
        let pool = Arc::new(Pool::new(nodes, runtime, environment));
        let driver =
            Driver::new(client, quorum, settings.limits.drift, timings, pool.clone(), waiters);
        let (limits, prefix) = (settings.limits, settings.prefix.len());
        let backing = Backing::new(pool, registry, quorum, limits, prefix);
        Ok(Redlock::new(Arc::new(driver), Arc::new(backing), settings))
    }
}
