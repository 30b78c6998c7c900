//! Nodes inside of a test's process: no server, no socket, and every fault when the test says so.

mod alarm;
mod clock;
mod host;
mod network;
mod stream;
mod which;

pub use stream::{Carrier, Phase, StreamEnd, Wire};
pub use which::Which;

use crate::client::Builder;
use crate::server_model::Trouble;
use crate::time::Clock;
use clock::RuntimeClock;
use network::Network;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Redis nodes in this process, for tests of your own code: locks on them are refused, lost, slow or not to be
/// had when the test says so, in one line. `docs/TESTING.md` [shows each](crate::_docs::testing).
///
/// A client is made for them by [`client`](Self::client), or by [`Builder::test_nodes`]. It is the same client
/// as in production, all of it but for its sockets and its clock. The nodes answer as Redis 7.0 does, byte by
/// byte: they are what the simulation of this library runs on, and its tests compare them with real servers.
///
/// The verbs are for all nodes, or for those that [`only`](Self::only) names. They take effect at once, can be
/// called from any thread, with or without a runtime, and wait for nothing.
///
/// ```
/// use quorlock::{AcquireError, test_util::Nodes};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let nodes = Nodes::start(5);
/// let redlock = nodes.client().build()?;
///
/// nodes.hold("orders/42", Duration::from_secs(5)); // somebody else has it
/// let refused = redlock.try_acquire("orders/42").await;
/// assert!(matches!(refused, Err(AcquireError::Contended { .. })));
/// # Ok(())
/// # }
/// ```
///
/// # Time
///
/// Clients and nodes live by tokio's clock. In a test with `start_paused = true` all waits take no time, and
/// what happens is the same in each run; the test's own timers and those of the code under test are part of it.
/// In other tests time passes as it does. [`advance`](Self::advance) moves it ahead in either.
///
/// [`test_util::advance`](super::advance) does not reach these clients; and one that is given a
/// [clock of its own](Builder::clock) does not live by that of the nodes any more.
///
/// # Chance
///
/// Each client of [`client`](Self::client) has a [seed](Builder::seed) of its own, the first of the nodes' clients
/// always the same. So values, delays and tokens are the same in each run.
#[derive(Clone)]
pub struct Nodes {
    network: Arc<Network>,
    chosen: Arc<[usize]>,
}

impl Nodes {
    /// So many nodes. All are well, empty, and have been up for a day.
    pub fn start(count: usize) -> Self {
        let network = Network::new(count, Arc::new(RuntimeClock::new()));
        Self { network, chosen: (0..count).collect() }
    }

    /// A client of all nodes, with the settings of [`Redlock::builder`](crate::Redlock::builder). Several clients
    /// compete for locks as those of several processes do. Nodes are called `node0:6379` and so on.
    pub fn client(&self) -> Builder {
        Builder::default().test_nodes(self).seed(self.network.next_seed())
    }

    /// The same nodes, of which the verbs are for these only: `2`, `..3`, `[0, 4]`. They are counted from 0, and
    /// always from the first of all.
    ///
    /// # Panics
    /// If there is no node of that number.
    #[must_use = "the verbs of what it returns are for these nodes"]
    #[track_caller]
    pub fn only(&self, which: impl Which) -> Self {
        let count = self.network.count();
        let chosen = which.places(count);
        if let Some(place) = chosen.iter().find(|place| **place >= count) {
            panic!("there is no node {place}: there are {count}, counted from 0");
        }
        Self { network: self.network.clone(), chosen: chosen.into() }
    }

    /// Somebody else holds the lock from now on, for so long, whoever held it before. A [holder's
    /// metadata](crate::NodeReport::holder) is `somebody else`. The key is the client's prefix and the resource.
    pub fn hold(&self, key: impl AsRef<[u8]>, lasting: Duration) {
        self.each(|network, node| network.hold(node, key.as_ref(), lasting));
    }

    /// The lock is free, whoever held it: let go of, deleted, or evicted. Who waits for it is told, and so is a
    /// holder who renews it.
    pub fn remove(&self, key: impl AsRef<[u8]>) {
        self.each(|network, node| network.remove(node, key.as_ref()));
    }

    /// They hang: connections are accepted, and nothing is answered. What is sent waits until
    /// [`resume`](Self::resume), and is done then.
    pub fn hang(&self) {
        self.each(Network::hang);
    }

    /// They go on after [`hang`](Self::hang).
    pub fn resume(&self) {
        self.each(Network::resume);
    }

    /// Their processes end: connections break, and others are refused, until [`restart`](Self::restart).
    pub fn kill(&self) {
        self.each(Network::kill);
    }

    /// Their processes end, if they have not ended yet, and start anew. All keys are gone, unless they
    /// [persist](Self::persist): what such a node grants does not count for `max_ttl`, by the
    /// [restart guard](crate::RestartGuard).
    pub fn restart(&self) {
        self.each(Network::restart);
    }

    /// From now on they keep all keys through a restart, and say so (`appendonly yes`, `appendfsync always`);
    /// see [`Builder::trust_persistence`].
    pub fn persist(&self) {
        self.each(Network::persist);
    }

    /// What is sent to them arrives so much later from now on: an answer takes so long. Longer than the
    /// [node timeout](Builder::node_timeout) is as good as none.
    pub fn delay(&self, by: Duration) {
        self.each(|network, node| network.delay(node, by));
    }

    /// They refuse from now on what a server with this trouble refuses, with its words.
    pub fn refuse(&self, trouble: Trouble) {
        self.each(|network, node| network.refuse(node, Some(trouble)));
    }

    /// All is well again: who hangs goes on, who is dead starts anew, nobody is slow or refuses. Keys, and
    /// clocks that have stepped, stay as they are.
    pub fn heal(&self) {
        self.each(Network::heal);
    }

    /// Their wall clocks jump ahead, and keys end so much earlier.
    pub fn step_ahead(&self, by: Duration) {
        self.each(|network, node| network.step(node, micros(by)));
    }

    /// Their wall clocks jump back, and keys end so much later.
    pub fn step_back(&self, by: Duration) {
        self.each(|network, node| network.step(node, -micros(by)));
    }

    /// On how many of them the key stands, whoever set it. Those that hang are looked into, too; those that are
    /// dead have none.
    pub fn count(&self, key: impl AsRef<[u8]>) -> usize {
        let has = |node: &&usize| self.network.has(**node, key.as_ref());
        self.chosen.iter().filter(has).count()
    }

    /// Time passes for all nodes and their clients: alarms ring, leases and keys end, as tasks get to run. It is
    /// added to the time of the runtime.
    pub fn advance(&self, by: Duration) {
        self.network.clock().advance(by);
    }

    fn each(&self, act: impl Fn(&Network, usize)) {
        self.chosen.iter().for_each(|node| act(&self.network, *node));
    }
}

impl Builder {
    /// Puts the client on nodes in this process, in place of those that it was given; see
    /// [`test_util::Nodes`](Nodes). It is for settings that come from elsewhere; else use [`Nodes::client`]. TLS has to be
    /// set before it.
    pub fn test_nodes(self, nodes: &Nodes) -> Self {
        let urls = (0..nodes.network.count()).map(network::url);
        let builder = self.without_nodes().nodes(urls).transport(nodes.network.clone());
        builder.living_by(Clock::Other(nodes.network.clock().clone()))
    }
}

/// Names the nodes that the verbs are for.
impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.chosen.iter().map(|node| (node, self.network.condition(*node)));
        f.debug_map().entries(shown).finish()
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
