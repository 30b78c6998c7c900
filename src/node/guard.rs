//! Restart guard: excludes votes of nodes that may have lost keys in a restart or a flush.

use crate::protocol::{NodeId, Policy, Quarantine, Quorum, Server, Time};
use crate::sync::lock;
use crate::wire::{NodeFailure, ServerInfo};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Policy for nodes that were restarted and may have lost locks.
///
/// A client quarantines a node that may have restarted: the node's grants to acquires and adoptions
/// do not count towards the quorum. The node still receives every command, and its votes on
/// extensions and releases count. The quarantine ends when every lock that the node may have lost
/// has expired. Its length, called *the quarantine period* below, is
/// [`max_ttl`](crate::Builder::max_ttl) x (1 + 2 x [drift factor](crate::Builder::drift_factor)) +
/// 1 s on this client's clock. A client also quarantines a node whose keys were flushed
/// (`FLUSHALL`, `FLUSHDB`), once it finds that the node has lost a lock of this client.
///
/// Persistence settings of the server do not exempt a node from the quarantine. `appendfsync always`
/// does not prove that the node still has the same disk, or that the process behind its address is
/// not a promoted replica. If you can guarantee both, exempt the nodes with
/// [`trust_persistence`](crate::Builder::trust_persistence).
///
/// If a server reports no `run_id`, the client assumes that it is the same server as before only if
/// its `uptime_in_seconds` shows that it was already running when the client last connected to it,
/// and its `master_replid` has not changed.
///
/// If `INFO` reports no uptime either, or is not permitted, the client treats each reconnect as a
/// restart, and each first connection as a connection to a server that has just started. To avoid
/// this, permit `INFO` (`+info`). Otherwise use the client on one runtime only. With two runtimes,
/// the connections of the second may reach a restarted server before those of the first have
/// detected the restart. If the machine failed silently, detection takes up to 5 s plus the node
/// timeout.
///
/// The age of a server is its uptime according to `INFO`. It depends on the node's wall clock.
///
/// If a deployment grows from one node to three, or two of its three nodes are replaced, no client
/// can acquire a lock for a quarantine period, because the new nodes started recently.
///
/// # Limits of detection
///
/// - **A failover behind one address.** A client that connects for the first time cannot detect it,
///   because a promoted replica does not report when it was promoted. Each address must belong to
///   one server and never move to another. [`check`](crate::Redlock::check) warns of replicas.
/// - **A recent start of a majority of nodes, while the older nodes are unresponsive.** A new
///   client assumes that the deployment is new. Bring the older nodes back first, or use
///   [`Strict`](Self::Strict).
/// - **A power failure of all nodes.** Running clients wait for the quarantine period, but clients
///   that start later do not. After a power failure, wait for one quarantine period before you
///   start the nodes, or use [`Strict`](Self::Strict).
///
/// Therefore restart one node at a time, and wait for [`max_ttl`](crate::Builder::max_ttl) plus one
/// second before you restart the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RestartGuard {
    /// Does not quarantine nodes: the grants of restarted and flushed nodes count. Use it for
    /// tests, and for nodes whose start is delayed by other means. Nodes with an unreliable
    /// [clock](NodeFailure::Suspect) are still excluded.
    Off,
    /// Quarantines a node when this client detects that the node's server process has changed. Also
    /// quarantines a young node, unless the deployment is new. A node is young if its server
    /// started less than a quarantine period before this client first connected to it. The
    /// quarantine of a young node lasts for the rest of that period.
    ///
    /// The deployment is new if this client knows of no node that is, or was, older than the
    /// quarantine period. The client keeps this knowledge when a node stalls or crashes. A new
    /// deployment therefore works at once, even if its nodes start up to a
    /// [`max_ttl`](crate::Builder::max_ttl) apart and some are down.
    ///
    /// To determine whether the deployment is new, the first attempts of a client wait while all
    /// known nodes are young. They wait until the client has connected to each node or failed to
    /// connect to it, for at most the [connect timeout](crate::Builder::connect_timeout).
    #[default]
    Observed,
    /// Like [`Observed`](Self::Observed), but also quarantines each young node in a new deployment.
    /// A new deployment therefore grants no locks until its nodes have been running for a
    /// quarantine period.
    Strict,
}

/// Tracks restarts and flushes of all nodes of a client.
pub(crate) struct Guard {
    /// Set by [`trust_persistence`](crate::Builder::trust_persistence).
    trusts_persistence: bool,
    /// When each node's exclusion ends, in nanoseconds. A copy of the state in `quarantine`, which
    /// each vote reads without the mutex.
    ends: Box<[AtomicU64]>,
    quarantine: Mutex<Quarantine<Arc<str>>>,
}

impl Guard {
    /// Every key that a restart can lose has expired after `term`.
    pub(crate) fn new(quorum: Quorum, guard: RestartGuard, term: Duration) -> Self {
        let rule = match guard {
            RestartGuard::Off => Policy::Off,
            RestartGuard::Observed => Policy::Observed,
            RestartGuard::Strict => Policy::Strict,
        };
        let ends = quorum.ids().map(|_| AtomicU64::new(0)).collect();
        let quarantine = Mutex::new(Quarantine::new(quorum, rule, term));
        Self { trusts_persistence: false, ends, quarantine }
    }

    pub(crate) fn trusting_persistence(self, trusts_persistence: bool) -> Self {
        Self { trusts_persistence, ..self }
    }

    /// A server at `node` reported `info` on a new connection. The request was sent at `asked`.
    pub(super) fn handle_set_up(&self, node: NodeId, info: &ServerInfo, asked: Time, now: Time) {
        let server = self.server(info, asked);
        self.change(|quarantine| quarantine.handle_set_up(node, server, now));
    }

    fn server(&self, info: &ServerInfo, asked: Time) -> Server<Arc<str>> {
        Server {
            run: info.run_id.clone(),
            unnamed: info.unnamed,
            replid: info.replid.clone(),
            uptime: info.uptime,
            asked,
            // A server that is known not to persist is never trusted.
            is_trusted: self.trusts_persistence && info.is_durable != Some(false),
        }
    }

    /// Each node's failure at `now`, if new connections reached `servers` or failed (`None`). Does
    /// not change the guard.
    pub(super) fn preview(
        &self,
        servers: &[Option<ServerInfo>],
        now: Time,
    ) -> Vec<Option<NodeFailure>> {
        let mut quarantine = lock(&self.quarantine).clone();
        let nodes = || (0..servers.len()).map(NodeId::new);
        for (node, info) in nodes().zip(servers) {
            match info {
                Some(info) => quarantine.handle_set_up(node, self.server(info, now), now),
                None => quarantine.handle_unreachable(node, now),
            }
        }
        nodes().map(|node| quarantine.failure(node, now)).collect()
    }

    /// No connection to `node` could be made.
    pub(super) fn handle_unreachable(&self, node: NodeId, now: Time) {
        self.change(|quarantine| quarantine.handle_unreachable(node, now));
    }

    /// A connection to `node` has ended.
    pub(super) fn handle_loss(&self, node: NodeId) {
        lock(&self.quarantine).handle_loss(node);
    }

    /// `node` has pushed that keys were flushed.
    pub(super) fn handle_flush(&self, node: NodeId, now: Time) {
        self.change(|quarantine| quarantine.handle_flush(node, now));
    }

    /// A key was missing that `node` had promised to keep.
    pub(super) fn handle_missing(&self, node: NodeId, now: Time) {
        self.change(|quarantine| quarantine.handle_missing(node, now));
    }

    fn change(&self, change: impl FnOnce(&mut Quarantine<Arc<str>>)) {
        let mut quarantine = lock(&self.quarantine);
        change(&mut quarantine);
        for (index, ends) in self.ends.iter().enumerate() {
            ends.store(quarantine.ends(NodeId::new(index)).as_nanos(), Ordering::Release);
        }
    }

    /// True once the age of the deployment is known. The first attempts of a new client wait for
    /// this.
    pub(super) fn is_settled(&self, now: Time) -> bool {
        lock(&self.quarantine).is_settled(now)
    }

    /// The reason why a grant of `node` does not count at `now`.
    pub(super) fn failure(&self, node: NodeId, now: Time) -> Option<NodeFailure> {
        if now.as_nanos() >= self.ends[node.index()].load(Ordering::Acquire) {
            return None;
        }
        lock(&self.quarantine).failure(node, now)
    }

    /// Uptime of `node` and remaining exclusion, if a recent start is the only reason for the
    /// exclusion.
    pub(super) fn recent_start(&self, node: NodeId, now: Time) -> Option<(Duration, Duration)> {
        let quarantine = lock(&self.quarantine);
        let recent_start = quarantine
            .recent_start(node, now)
            .filter(|_| quarantine.exclusion(node, now).is_none())?;
        Some((recent_start.ago(now), recent_start.until.since(now)))
    }
}

impl Quarantine<Arc<str>> {
    fn failure(&self, node: NodeId, now: Time) -> Option<NodeFailure> {
        let exclusion = self.exclusion(node, now).or_else(|| self.recent_start(node, now));
        exclusion.map(|it| NodeFailure::excluded(it, now))
    }
}
