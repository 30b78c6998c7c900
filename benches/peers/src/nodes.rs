//! The servers of one scenario.

use kit::{Cluster, Direction, Proxy};

use crate::scenario::{Fault, Scenario};

/// The servers of one scenario.
pub(crate) struct Nodes {
    cluster: Cluster,
    /// Before the node that is to be slow.
    proxy: Option<Proxy>,
}

impl Nodes {
    /// Starts what the scenario asks for.
    pub(crate) fn start(scenario: &Scenario) -> Self {
        let cluster = Cluster::start(scenario.nodes);
        let is_slow = matches!(scenario.fault, Fault::Slow(_));
        let proxy = is_slow.then(|| Proxy::start(cluster[cluster.len() / 2].addr()));
        Self { cluster, proxy }
    }

    /// The servers, to be asked what they have used up.
    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Where clients connect to.
    pub(crate) fn urls(&self) -> Vec<String> {
        let mut urls = self.cluster.urls();
        if let Some(proxy) = &self.proxy {
            let slow = urls.len() / 2;
            urls[slow] = proxy.url();
        }
        urls
    }

    /// Lets the fault happen: to the node in the middle, and those behind it.
    pub(crate) fn suffer(&self, fault: Fault) {
        let victims = || self.cluster.iter().skip(self.cluster.len() / 2);
        match fault {
            Fault::None => {}
            Fault::Killed => victims().take(1).for_each(kit::Server::kill),
            Fault::Hung(count) => victims().take(count).for_each(kit::Server::stop),
            Fault::HungBefore => victims().take(1).for_each(kit::Server::stop),
            Fault::Slow(by) => {
                self.proxy.iter().for_each(|proxy| proxy.delay(Direction::Replies, by));
            }
        }
    }
}
