//! The parts of a client whose coordinator decides.

use super::assembly::Parts;
use super::redlock::Redlock;
use crate::coordinator::{self, Coordinator, NodeSettings};
use crate::engine::{Client, Engine};
use crate::error::ConfigError;
use crate::lease::{Backing, LeaseRegistry, to_ttl};
use crate::node::{Pool, PushSink, RestartGuard};
use crate::protocol::{ClientId, NodeId, Policy, Time};
use std::sync::Arc;
use std::time::Duration;

/// Added to the connect timeout while the application's call for credentials is pending.
const CREDENTIALS_MARGIN: Duration = Duration::from_millis(250);

/// The coordinator reads all pushes itself.
struct NoPushes;

impl PushSink for NoPushes {
    fn handle_push(&self, _: NodeId, _: Option<&[u8]>) {}
    fn handle_step(&self, _: NodeId, _: Duration, _: Time) {}
}

impl Parts {
    pub(super) fn assemble(mut self) -> Result<Redlock, ConfigError> {
        let limits = self.settings.limits;
        let (fingerprint, timings) = (self.fingerprint(), self.timings());
        let pushes: Arc<dyn PushSink> = Arc::new(NoPushes);
        let shared = self.nodes(&pushes);
        let prefix = self.settings.prefix.len();
        let nodes = shared.iter().map(|node| {
            let (hint_if_closed, hint_if_silent) = node.hints();
            NodeSettings { name: node.name.clone(), hint_if_closed, hint_if_silent }
        });
        let policy = match self.restart_guard {
            RestartGuard::Off => Policy::Off,
            RestartGuard::Observed => Policy::Observed,
            RestartGuard::Strict => Policy::Strict,
        };
        let credentials_margin =
            if self.credentials.is_some() { CREDENTIALS_MARGIN } else { Duration::ZERO };
        let settings = coordinator::Settings {
            quorum: self.quorum,
            drift: limits.drift,
            node_timeout: timings.answer,
            connect_timeout: timings.connect,
            opening_timeout: timings.connect.saturating_add(credentials_margin),
            max_ttl: to_ttl("max_ttl", limits.max_ttl)?,
            policy,
            trusts_persistence: self.trusts_persistence,
            client: ClientId::from_random(0),
            fingerprint,
            nodes: nodes.collect(),
            prefix,
        };
        let random = self.environment.random.clone();
        let pool = Arc::new(Pool::new(shared, self.runtime, self.environment));
        let nodes = pool.clone();
        let client = Arc::new(Client::new(move || {
            let mut settings = settings.clone();
            settings.client = ClientId::from_random(random.number());
            let coordinator = Coordinator::new(settings, random.clone());
            Engine::new(coordinator, nodes.clone(), Arc::new(LeaseRegistry::default()))
        }));
        let backing = Backing::new(pool, client.clone(), self.quorum, limits, prefix);
        Ok(Redlock::new(client, Arc::new(backing), self.settings))
    }
}
