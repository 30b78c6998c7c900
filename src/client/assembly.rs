//! The parts of a client, made from checked settings.

use super::address::{self, Place};
use super::redlock::Redlock;
use super::restart_guard::RestartGuard;
use super::settings::Settings;
use crate::coordinator::{self, Coordinator, NodeSettings};
use crate::engine::{Client, Engine};
use crate::lease::{Backing, LeaseRegistry};
use crate::node::{CredentialSource, Environment, Login, Node, Pool, Timings};
use crate::protocol::{ClientId, Quorum};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// Added to the connect timeout while the application's call for credentials is pending.
const CREDENTIALS_MARGIN: Duration = Duration::from_millis(250);

/// The checked settings of a client, and its environment.
pub(super) struct Parts {
    pub(super) quorum: Quorum,
    pub(super) places: Vec<Place>,
    pub(super) names: Vec<Arc<str>>,
    pub(super) restart_guard: RestartGuard,
    pub(super) trusts_persistence: bool,
    pub(super) runtime: Option<Handle>,
    pub(super) environment: Environment,
    pub(super) credentials: Option<CredentialSource>,
    pub(super) settings: Settings,
}

impl Parts {
    pub(super) fn assemble(self) -> Redlock {
        let limits = self.settings.limits;
        let timings =
            Timings { answer: limits.node_timeout, connect: self.settings.connect_timeout };
        let prefix = &self.settings.prefix;
        let fingerprint = address::fingerprint(&self.places, self.quorum, limits.max_ttl, prefix);
        let prefix = prefix.len();
        let places = self.places.into_iter().zip(self.names);
        let nodes = self.quorum.ids().zip(places).map(|(id, ((address, login), name))| {
            let login = Login::new(login, self.credentials.clone(), fingerprint);
            Arc::new(Node::new(id, name, address, login, timings, self.environment.clone()))
        });
        let nodes: Box<[_]> = nodes.collect();
        let node_settings = nodes.iter().map(|node| {
            let (hint_if_closed, hint_if_silent) = node.hints();
            NodeSettings { name: node.name.clone(), hint_if_closed, hint_if_silent }
        });
        let credentials_margin =
            if self.credentials.is_some() { CREDENTIALS_MARGIN } else { Duration::ZERO };
        let settings = coordinator::Settings {
            quorum: self.quorum,
            drift: limits.drift,
            node_timeout: timings.answer,
            connect_timeout: timings.connect,
            opening_timeout: timings.connect.saturating_add(credentials_margin),
            max_ttl: self.settings.max_ttl,
            policy: self.restart_guard.into(),
            trusts_persistence: self.trusts_persistence,
            client: ClientId::from_random(0),
            fingerprint,
            nodes: node_settings.collect(),
            prefix,
        };
        let random = self.environment.random.clone();
        let pool = Arc::new(Pool::new(nodes, self.runtime, self.environment));
        let nodes = pool.clone();
        let client = Arc::new(Client::new(move || {
            let mut settings = settings.clone();
            settings.client = ClientId::from_random(random.number());
            let coordinator = Coordinator::new(settings, random.clone());
            Engine::new(coordinator, nodes.clone(), Arc::new(LeaseRegistry::default()))
        }));
        let backing = Backing::new(pool, client.clone(), self.quorum, limits, prefix);
        Redlock::new(client, Arc::new(backing), self.settings)
    }
}
