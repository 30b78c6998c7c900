//! Implementation of [`Builder::build`]: validates the settings, and creates the client from them.

use super::address;
use super::builder::Builder;
use super::redlock::Redlock;
use super::settings::Settings;
use crate::coordinator::{self, Coordinator, NodeSettings};
use crate::engine::{Client, Engine};
use crate::error::ConfigError;
use crate::lease::{Backing, LeaseRegistry};
use crate::node::{Environment, Login, Node, Pool, Timings};
use crate::observe::Observers;
use crate::protocol::{ClientId, MAX_NODES, Quorum, Ttl};
use std::sync::Arc;
use std::time::Duration;

/// Time by which the coordinator's opening timeout exceeds the connect timeout, if the application supplies the
/// credentials in a callback. The margin allows the client to report why the callback failed.
const CREDENTIALS_MARGIN: Duration = Duration::from_millis(250);

impl Builder {
    /// Validates the settings and creates the client. Reads certificate files, but does no other I/O and does not
    /// require a runtime. The client connects to the nodes when it is first used, for example by the first acquire.
    ///
    /// # Errors
    /// Returns a [`ConfigError`] that names the invalid setting.
    pub fn build(self) -> Result<Redlock, ConfigError> {
        #[cfg(feature = "tls-rustls")]
        let this = self.with_tls_files()?;
        #[cfg(not(feature = "tls-rustls"))]
        let this = self;
        let Self { nodes, config, prefix, runtime, observer, environment, credentials } = this;
        let places = nodes.into_iter().collect::<Result<Vec<_>, _>>()?;
        let quorum = match places.len() {
            0 => return Err(ConfigError::NoNodes),
            given if given > MAX_NODES => {
                return Err(ConfigError::TooManyNodes { given, most: MAX_NODES });
            }
            count => Quorum::majority(count),
        };
        let settings = Settings::new(&config, prefix)?;
        let names = address::distinct_names(&places)?;
        let observers = Observers::new(observer, &names, &environment.clock);
        let environment = Environment { observers, ..environment };
        let (limits, prefix) = (settings.limits, settings.prefix.len());
        let margin = if credentials.is_some() { CREDENTIALS_MARGIN } else { Duration::ZERO };
        let timings = Timings { answer: limits.node_timeout, connect: settings.connect_timeout };
        let places = places.into_iter().zip(names);
        let nodes = quorum.ids().zip(places).map(|(id, ((address, login), name))| {
            let login = Login::new(login, credentials.clone());
            Arc::new(Node::new(id, name, address, login, timings, environment.clone()))
        });
        let nodes: Box<[_]> = nodes.collect();
        let node_settings = nodes.iter().map(|node| {
            let (hint_if_closed, hint_if_silent) = node.hints();
            NodeSettings { name: node.name.clone(), hint_if_closed, hint_if_silent }
        });
        let of_coordinator = coordinator::Settings {
            quorum,
            drift: limits.drift,
            node_timeout: timings.answer,
            connect_timeout: timings.connect,
            opening_timeout: timings.connect.saturating_add(margin),
            max_ttl: Ttl::covering(limits.max_ttl),
            policy: config.restart_guard.unwrap_or_default().into(),
            trusts_persistence: config.trust_persistence.unwrap_or_default(),
            client: ClientId::from_random(0),
            nodes: node_settings.collect(),
            prefix,
        };
        let random = environment.random.clone();
        let pool = Arc::new(Pool::new(nodes, runtime, environment));
        let nodes = pool.clone();
        let client = Arc::new(Client::new(move || {
            let client = ClientId::from_random(random.number());
            let settings = coordinator::Settings { client, ..of_coordinator.clone() };
            let coordinator = Coordinator::new(settings, random.clone());
            Engine::new(coordinator, nodes.clone(), Arc::new(LeaseRegistry::default()))
        }));
        let backing = Backing::new(pool, client.clone(), quorum, limits, prefix);
        Ok(Redlock::new(client, Arc::new(backing), settings))
    }
}
