//! In-process nodes for tests, without servers and sockets, with faults on demand.

mod advanced_time;
mod alarm;
mod clock;
mod faults;
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

/// In-process Redis nodes, for tests of your own code. Each fault takes one line: a lock is
/// refused, lost, slow or unavailable when the test says so. `docs/TESTING.md` [shows
/// each](crate::_docs::testing).
///
/// Create a client with [`client`](Self::client), or with [`Builder::test_nodes`]. It is the
/// production client except for its sockets and its clock. The nodes reply exactly as Redis 7.0
/// does, byte for byte. The simulation of this library runs on them, and its tests compare them
/// with real servers.
///
/// Methods act on all nodes, or on the nodes that were selected with [`only`](Self::only). They
/// take effect immediately, never block, and can be called from any thread, with or without a
/// runtime.
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
/// Clients and nodes use tokio's clock. In a test with `start_paused = true`, waits take no real
/// time and every run is the same. This includes the timers of the test and of the code under test.
/// In other tests, time passes normally. [`advance`](Self::advance) advances it in both cases.
///
/// [`test_util::advance`](super::advance) does not affect these clients. A client with its [own
/// clock](Builder::clock) no longer uses the nodes' clock.
///
/// # Randomness
///
/// Each client from [`client`](Self::client) gets a different [seed](Builder::seed), in a fixed
/// order. Values, delays and tokens are therefore the same in each run.
#[derive(Clone)]
pub struct Nodes {
    network: Arc<Network>,
    chosen: Arc<[usize]>,
}

impl Nodes {
    /// Starts `count` nodes. They are healthy and empty, and have been up for a day.
    pub fn start(count: usize) -> Self {
        let network = Network::new(count, Arc::new(RuntimeClock::new()));
        Self { network, chosen: (0..count).collect() }
    }

    /// Returns a builder of a client for all nodes, with the settings of
    /// [`Redlock::builder`](crate::Redlock::builder). Several clients compete for locks like
    /// clients of several processes. The nodes' names are `node0:6379` and so on.
    pub fn client(&self) -> Builder {
        Builder::default().test_nodes(self).seed(self.network.next_seed())
    }

    /// Selects some of the nodes, for example `2`, `..3` or `[0, 4]`: the methods of the result act
    /// only on them. Numbers start at 0, and always count all nodes.
    ///
    /// # Panics
    /// If a number is out of range.
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

    /// Makes another client the holder of the lock, for `lasting` from now, regardless of the
    /// current holder. Its [metadata](crate::NodeReport::holder) is `somebody else`. `key` is the
    /// client's prefix followed by the resource.
    pub fn hold(&self, key: impl AsRef<[u8]>, lasting: Duration) {
        self.each(|network, node| network.hold(node, key.as_ref(), lasting));
    }

    /// Deletes the key, as after a release, a deletion or an eviction, regardless of the holder.
    /// Waiters are notified, and so is a holder whose lease is renewed.
    pub fn remove(&self, key: impl AsRef<[u8]>) {
        self.each(|network, node| network.remove(node, key.as_ref()));
    }

    /// Stalls the nodes: they accept connections, but do not reply. Commands queue until
    /// [`resume`](Self::resume), and are then executed.
    pub fn hang(&self) {
        self.each(Network::hang);
    }

    /// Ends a stall by [`hang`](Self::hang).
    pub fn resume(&self) {
        self.each(Network::resume);
    }

    /// Kills the nodes' processes: connections break, and new ones are refused until
    /// [`restart`](Self::restart).
    pub fn kill(&self) {
        self.each(Network::kill);
    }

    /// Restarts the nodes' processes; running ones are killed first. All keys are lost unless the
    /// nodes [persist](Self::persist) them. By the [restart guard](crate::RestartGuard), grants of
    /// a restarted node do not count for `max_ttl`.
    pub fn restart(&self) {
        self.each(Network::restart);
    }

    /// Makes the nodes keep their keys across restarts, and report so (`appendonly yes`,
    /// `appendfsync always`); see [`Builder::trust_persistence`].
    pub fn persist(&self) {
        self.each(Network::persist);
    }

    /// Delays everything that is sent to the nodes from now on by this time, so each reply takes
    /// this much longer. A delay above the [node timeout](Builder::node_timeout) has the effect of
    /// no reply.
    pub fn delay(&self, by: Duration) {
        self.each(|network, node| network.delay(node, by));
    }

    /// Makes the nodes refuse commands like a server with this trouble, with the same error
    /// messages.
    pub fn refuse(&self, trouble: Trouble) {
        self.each(|network, node| network.refuse(node, Some(trouble)));
    }

    /// Ends all faults: stalled nodes resume, killed nodes restart, delays and refusals end. Keys
    /// and clock steps remain.
    pub fn heal(&self) {
        self.each(Network::heal);
    }

    /// Steps the nodes' wall clocks forward by this time, so keys expire that much earlier.
    pub fn step_ahead(&self, by: Duration) {
        self.each(|network, node| network.step(node, micros(by)));
    }

    /// Steps the nodes' wall clocks back by this time, so keys expire that much later.
    pub fn step_back(&self, by: Duration) {
        self.each(|network, node| network.step(node, -micros(by)));
    }

    /// Number of nodes on which the key exists, regardless of its holder. Stalled nodes are
    /// included; killed nodes have no keys.
    pub fn count(&self, key: impl AsRef<[u8]>) -> usize {
        let has = |node: &&usize| self.network.has(**node, key.as_ref());
        self.chosen.iter().filter(has).count()
    }

    /// Advances the clock of all nodes and their clients, in addition to the runtime's time. Due
    /// alarms ring, and leases and keys expire, as soon as the tasks run.
    pub fn advance(&self, by: Duration) {
        self.network.clock().advance(by);
    }

    fn each(&self, act: impl Fn(&Network, usize)) {
        self.chosen.iter().for_each(|node| act(&self.network, *node));
    }
}

impl Builder {
    /// Replaces the client's nodes by in-process nodes; see [`test_util::Nodes`](Nodes). For
    /// settings from other sources, such as a file; otherwise use [`Nodes::client`]. TLS must be
    /// set before this call.
    pub fn test_nodes(self, nodes: &Nodes) -> Self {
        let urls = (0..nodes.network.count()).map(network::url);
        let builder = self.without_nodes().nodes(urls).transport(nodes.network.clone());
        builder.living_by(Clock::Other(nodes.network.clock().clone()))
    }
}

/// Shows the selected nodes and their conditions.
impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.chosen.iter().map(|node| (node, self.network.condition(*node)));
        f.debug_map().entries(shown).finish()
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
