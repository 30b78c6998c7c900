//! The servers on which a scenario runs.

use kit::{Cluster, Direction, Proxy};

use crate::scenario::{Fault, Scenario};

pub(crate) struct Nodes {
    cluster: Cluster,
    /// The proxies in front of delayed nodes, with the indices of their nodes.
    proxies: Vec<(usize, Proxy)>,
}

impl Nodes {
    pub(crate) fn start(scenario: &Scenario) -> Self {
        let cluster = Cluster::start(scenario.nodes);
        let delayed = match scenario.fault {
            Fault::Slow(_) => cluster.len() / 2..cluster.len() / 2 + 1,
            Fault::Distant(_) => 0..cluster.len(),
            _ => 0..0,
        };
        let proxies = delayed.map(|index| (index, Proxy::start(cluster[index].addr()))).collect();
        Self { cluster, proxies }
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Returns the URLs of the nodes, or of their proxies if the nodes are delayed.
    pub(crate) fn urls(&self) -> Vec<String> {
        let mut urls = self.cluster.urls();
        for (index, proxy) in &self.proxies {
            urls[*index] = proxy.url();
        }
        urls
    }

    /// Injects the fault into the middle node. If the fault affects several nodes, the next nodes are also affected.
    pub(crate) fn inject(&self, fault: Fault) {
        let victims = || self.cluster.iter().skip(self.cluster.len() / 2);
        match fault {
            Fault::None => {}
            Fault::Killed => victims().take(1).for_each(kit::Server::kill),
            Fault::Stopped(count) => victims().take(count).for_each(kit::Server::stop),
            Fault::StoppedBefore => victims().take(1).for_each(kit::Server::stop),
            Fault::Slow(by) | Fault::Distant(by) => {
                self.proxies.iter().for_each(|(_, proxy)| proxy.delay(Direction::Replies, by));
            }
        }
    }
}
