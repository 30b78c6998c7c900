//! The parts of a client, made from checked settings.

use super::settings::Settings;
use crate::client::address::{self, Place};
use crate::node::{
    Clocks, CredentialSource, Endpoint, Environment, Guard, Login, NodeShared, PushSink,
    RestartGuard, Siblings, Timings,
};
use crate::protocol::Quorum;
use crate::wire::Fingerprint;
use std::sync::Arc;
use tokio::runtime::Handle;

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
    pub(super) fn fingerprint(&self) -> Fingerprint {
        let Settings { limits, prefix, .. } = &self.settings;
        address::fingerprint(&self.places, self.quorum, limits.max_ttl, prefix)
    }

    pub(super) fn timings(&self) -> Timings {
        let Settings { limits, connect_timeout, .. } = &self.settings;
        Timings { answer: limits.node_timeout, connect: *connect_timeout }
    }

    /// The nodes of the client. `pushes` receives their notifications.
    pub(super) fn nodes(&mut self, pushes: &Arc<dyn PushSink>) -> Box<[Arc<NodeShared>]> {
        let (quorum, fingerprint, timings) = (self.quorum, self.fingerprint(), self.timings());
        let siblings = Arc::new(Siblings::new(self.names.clone()));
        let Settings { limits, term, .. } = &self.settings;
        let guard = Guard::new(quorum, self.restart_guard, *term);
        let guard = Arc::new(guard.trusting_persistence(self.trusts_persistence));
        let clocks = Arc::new(Clocks::new(quorum, limits.drift, *term));
        let places = std::mem::take(&mut self.places).into_iter().zip(self.names.clone());
        let nodes = quorum.ids().zip(places).map(|(id, ((address, login), name))| {
            let login = Login::new(login, self.credentials.clone(), fingerprint);
            let environment = self.environment.clone();
            let endpoint = Endpoint { name, address, login, environment };
            let (siblings, pushes) = (siblings.clone(), pushes.clone());
            let (guard, clocks) = (guard.clone(), clocks.clone());
            Arc::new(NodeShared::new(id, endpoint, timings, siblings, pushes, guard, clocks))
        });
        nodes.collect()
    }
}
