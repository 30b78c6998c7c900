//! In-process nodes with fault injection, for tests without servers and sockets.

mod advanced_time;
mod alarm;
mod clock;
mod faults;
mod host;
mod lock;
mod network;
mod which;

pub use network::OpenGate;
pub use which::Which;

use crate::server_model::Trouble;
use clock::RuntimeClock;
use network::Network;
use quorlock::{Builder, Redlock, test_util};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// In-process Redis nodes for testing your own code. A single call makes a lock contended, lost,
/// slow or unavailable. The [crate documentation](crate#faults) has an example of each fault.
///
/// Create a client with [`client`](Self::client) or [`client_with`](Self::client_with). The client
/// is the same as in production, except for its sockets and its clock. The nodes reply exactly as
/// Redis 7.0 does, byte for byte. quorlock's own simulation uses the same server model, and its
/// tests compare the model with real servers.
///
/// Methods act on all nodes, or on the nodes that were selected with [`only`](Self::only). Methods
/// take effect immediately and never block. They can be called from any thread, with or without a
/// runtime.
///
/// ```
/// use quorlock::AcquireError;
/// use quorlock_test::Nodes;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let nodes = Nodes::start(5);
/// let redlock = nodes.client().build()?;
///
/// nodes.hold("orders/42", Duration::from_secs(5)); // as another client
/// let refused = redlock.try_acquire("orders/42").await;
/// assert!(matches!(refused, Err(AcquireError::Contended { .. })));
/// # Ok(())
/// # }
/// ```
///
/// # Time
///
/// Clients and nodes use tokio's clock. In a test with `start_paused = true`, waits take no real
/// time, and every run is deterministic. The same applies to the timers of the test and of the code
/// under test. In other tests, time passes normally. In both cases,
/// [`Nodes::advance`](Self::advance) advances the clock.
///
/// The function [`quorlock_test::advance`](crate::advance) does not affect these clients. A client
/// with its [own clock](Builder::clock) does not use the nodes' clock.
///
/// # Randomness
///
/// Each client from [`client`](Self::client) gets a different [seed](Builder::seed), in a fixed
/// order. Lock values, delays and tokens are therefore the same in each run.
#[derive(Clone)]
pub struct Nodes {
    network: Arc<Network>,
    chosen: Arc<[usize]>,
}

impl Nodes {
    /// Starts `count` nodes. Each node is healthy and empty, and reports an uptime of one day.
    pub fn start(count: usize) -> Self {
        let network = Network::new(count, Arc::new(RuntimeClock::new()));
        Self { network, chosen: (0..count).collect() }
    }

    /// Returns a builder for a client of all nodes, with the default settings of
    /// [`Redlock::builder`]. Several clients compete for locks like clients in different processes.
    /// The addresses of the nodes are `node0:6379`, `node1:6379` and so on.
    pub fn client(&self) -> Builder {
        self.client_with(Redlock::builder()).seed(self.network.next_seed())
    }

    /// Replaces the nodes of `builder` with these nodes, and keeps all other settings. Use this
    /// method if your code creates the builder, for example from a configuration file. Otherwise
    /// use [`client`](Self::client). TLS must be configured before this call.
    ///
    /// ```
    /// use quorlock::Redlock;
    /// use quorlock_test::Nodes;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let settings = Redlock::builder().nodes(["redis://10.0.0.1"]).ttl(Duration::from_secs(5));
    /// let nodes = Nodes::start(3);
    /// let redlock = nodes.client_with(settings).build()?;
    ///
    /// let lease = redlock.acquire("orders/42").await?;
    /// assert!(lease.validity() <= Duration::from_secs(5));
    /// # Ok(())
    /// # }
    /// ```
    pub fn client_with(&self, builder: Builder) -> Builder {
        let urls = (0..self.network.count()).map(network::url);
        test_util::replace_nodes(builder, urls).world(self.network.clone())
    }

    /// Selects some of the nodes, for example `2`, `..3` or `[0, 4]`. Methods of the returned value
    /// act only on the selected nodes. Node numbers start at 0 and refer to the full list of nodes,
    /// regardless of any earlier selection.
    ///
    /// # Panics
    /// Panics if a node number is out of range.
    #[must_use = "the returned handle acts on the selected nodes, the original on all"]
    #[track_caller]
    pub fn only(&self, which: impl Which) -> Self {
        let count = self.network.count();
        let chosen = which.node_numbers(count);
        if let Some(number) = chosen.iter().find(|number| **number >= count) {
            panic!("node {number} is out of range: there are {count} nodes, numbered from 0");
        }
        Self { network: self.network.clone(), chosen: chosen.into() }
    }

    /// Makes another client the holder of the lock for the duration `lasting`. A current holder
    /// loses the lock. The [metadata](quorlock::NodeReport::holder) of the other client's lock is
    /// `somebody else`. `key` is the client's key prefix followed by the resource.
    pub fn hold(&self, key: impl AsRef<[u8]>, lasting: Duration) {
        self.each(|network, node| network.hold(node, key.as_ref(), lasting));
    }

    /// Deletes the key regardless of its holder, to simulate a release, a `DEL` command or an
    /// eviction. The nodes notify the waiters. They also notify the holder if its lease is renewed
    /// in the background.
    pub fn remove(&self, key: impl AsRef<[u8]>) {
        self.each(|network, node| network.remove(node, key.as_ref()));
    }

    /// Stalls the nodes: they accept connections, but do not reply. Each node queues the commands
    /// that it receives, and executes them when [`resume`](Self::resume) is called.
    pub fn hang(&self) {
        self.each(Network::hang);
    }

    /// Resumes the nodes that were stalled with [`hang`](Self::hang).
    pub fn resume(&self) {
        self.each(Network::resume);
    }

    /// Kills the nodes' processes. Existing connections are closed, and new connections are refused
    /// until [`restart`](Self::restart) is called.
    pub fn kill(&self) {
        self.each(Network::kill);
    }

    /// Restarts the nodes' processes. Running processes are killed first. All keys are lost unless
    /// the nodes [persist](Self::persist) them. Because of the [restart
    /// guard](quorlock::RestartGuard), grants of a restarted node do not count for about `max_ttl`.
    pub fn restart(&self) {
        self.each(Network::restart);
    }

    /// Makes the nodes keep their keys across restarts, and report a matching configuration
    /// (`appendonly yes`, `appendfsync always`). See [`Builder::trust_persistence`].
    pub fn persist(&self) {
        self.each(Network::persist);
    }

    /// Delays all data that clients send to the nodes from now on, so each reply takes longer by the
    /// given duration. A delay above the [node timeout](Builder::node_timeout) has the same effect
    /// as a missing reply.
    pub fn delay(&self, by: Duration) {
        self.each(|network, node| network.delay(node, by));
    }

    /// Makes the nodes refuse commands with the errors that a real server returns in the state
    /// `trouble`.
    pub fn refuse(&self, trouble: Trouble) {
        self.each(|network, node| network.refuse(node, Some(trouble)));
    }

    /// Ends all faults: stalled nodes resume, killed nodes restart, and delays and refusals end.
    ///
    /// Killed nodes lose their keys unless the nodes [persist](Self::persist) them. Other nodes keep
    /// their keys. Clocks that were stepped are not set back.
    pub fn heal(&self) {
        self.each(Network::heal);
    }

    /// Steps the nodes' wall clocks forward by the given duration. Existing keys then expire earlier
    /// by this duration.
    pub fn step_ahead(&self, by: Duration) {
        self.each(|network, node| network.step(node, micros(by)));
    }

    /// Steps the nodes' wall clocks back by the given duration. Existing keys then expire later by
    /// this duration.
    pub fn step_back(&self, by: Duration) {
        self.each(|network, node| network.step(node, -micros(by)));
    }

    /// Returns the number of nodes on which the key exists, regardless of its holder. Keys of
    /// stalled nodes are counted, keys of killed nodes are not.
    pub fn count(&self, key: impl AsRef<[u8]>) -> usize {
        let has = |node: &&usize| self.network.has(**node, key.as_ref());
        self.chosen.iter().filter(has).count()
    }

    /// Advances the clock of all nodes and their clients by the given duration, even if only some
    /// nodes are [selected](Self::only). The time of the runtime does not change. Leases and keys
    /// expire, and the clients' timers fire, as soon as the tasks run.
    pub fn advance(&self, by: Duration) {
        self.network.clock().advance(by);
    }

    fn each(&self, act: impl Fn(&Network, usize)) {
        self.chosen.iter().for_each(|node| act(&self.network, *node));
    }
}

/// Formats the selected nodes as a map from node number to condition.
impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.chosen.iter().map(|node| (node, self.network.condition(*node)));
        f.debug_map().entries(shown).finish()
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
