//! The servers on which a scenario runs.

use kit::{Cluster, Direction, Proxy};

use crate::scenario::{Fault, Scenario};

pub(crate) struct Nodes {
    cluster: Cluster,
    /// The proxy in front of the slow node, if the scenario has one.
    proxy: Option<Proxy>,
}

impl Nodes {
    pub(crate) fn start(scenario: &Scenario) -> Self {
        let cluster = Cluster::start(scenario.nodes);
        let is_slow = matches!(scenario.fault, Fault::Slow(_));
        let proxy = is_slow.then(|| Proxy::start(cluster[cluster.len() / 2].addr()));
        Self { cluster, proxy }
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Returns the URLs of the nodes. The slow node is reached through its proxy.
    pub(crate) fn urls(&self) -> Vec<String> {
        let mut urls = self.cluster.urls();
        if let Some(proxy) = &self.proxy {
            let slow = urls.len() / 2;
            urls[slow] = proxy.url();
        }
        urls
    }

    /// Injects the fault into the middle node. A fault of several nodes also affects the nodes after it.
    pub(crate) fn inject(&self, fault: Fault) {
        let victims = || self.cluster.iter().skip(self.cluster.len() / 2);
        match fault {
            Fault::None => {}
            Fault::Killed => victims().take(1).for_each(kit::Server::kill),
            Fault::Stopped(count) => victims().take(count).for_each(kit::Server::stop),
            Fault::StoppedBefore => victims().take(1).for_each(kit::Server::stop),
            Fault::Slow(by) => {
                self.proxy.iter().for_each(|proxy| proxy.delay(Direction::Replies, by));
            }
        }
    }
}
