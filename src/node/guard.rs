//! What nodes may have forgotten in a restart or a flush, as a client is told of it.

use crate::protocol::{Event, Exclusion, NodeId, Policy, Quarantine, Quorum, Server, Time};
use crate::sync::lock;
use crate::wire::{NodeFailure, ServerInfo};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What is done about nodes that were restarted, and may have forgotten locks in that.
///
/// A node that counts as restarted is quarantined: it is sent everything as before, it is released
/// and extended, and that counts; but what it grants to an acquire or an adoption does not, until
/// every lock that it can have forgotten has ended: for
/// [`max_ttl`](crate::Builder::max_ttl) x (1 + 2 x [drift factor](crate::Builder::drift_factor)) +
/// 1 s on this client's clock, called *the term* below. The same goes for a node that was emptied
/// (`FLUSHALL`, `FLUSHDB`), once a lock that this client had there is found missing.
///
/// No node is exempt because of its configuration: `appendfsync always` does not prove that the disk is
/// the same as before, or that the process behind the address is no replica that was promoted. Where you
/// know that, say so: [`trust_persistence`](crate::Builder::trust_persistence).
///
/// A server that reports no `run_id` is the same as before if it was up before the client last connected to it,
/// by `uptime_in_seconds`, and its `master_replid` has not changed. Where `INFO` reports no uptime either, or is
/// not permitted, a connection that was lost and made again counts as a restart, and a
/// first one as a server that has just been started: permit it (`+info`). Or use the client on one runtime
/// only. The connections of a second one may be to a server that was restarted, while those of the first
/// have not found that out yet: for up to 5 s and the node timeout, if the machine went without a word.
/// The age of a server is what `INFO` tells; it follows the wall clock of the node.
///
/// # What no client can see, and what to do about it
/// - *A client that is new after a failover behind one address*: nothing that a promoted server tells
///   dates its promotion. A node must be one server, never an address that moves between servers;
///   [`check`](crate::Redlock::check) warns of replicas.
/// - *A client that is new while a majority is young and the old nodes are silent*: it takes the
///   deployment for new. Bring the old nodes back first, or use [`Strict`](Self::Strict).
/// - *All nodes lose power at once*: clients that run wait for the term, new ones do not. Start the nodes
///   a term later, or use [`Strict`](Self::Strict).
/// - *Growing from one node to three, or replacing two of three*, costs the term: the new nodes are young.
///
/// So restart one node at a time, and the next one when [`max_ttl`](crate::Builder::max_ttl) and a second
/// have passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RestartGuard {
    /// Nothing: what restarted and flushed nodes grant counts. For nodes whose start is delayed by other
    /// means, and for tests. Nodes whose [clock](NodeFailure::Suspect) is not to be trusted are left
    /// out all the same.
    Off,
    /// A node is quarantined when this client sees that it is another process than before. One that is
    /// younger than the term when this client first connects to it does not count for the rest of it,
    /// unless the deployment itself is new: unless this client knows of no node that is older, or was.
    /// What was known of a node stays known when it hangs or dies.
    ///
    /// So a new deployment works at once, and goes on to, also when its nodes are started up to a
    /// [`max_ttl`](crate::Builder::max_ttl) apart and some are dead. To judge that, the first attempts of
    /// a client wait until every node was connected to or could not be, at most for the
    /// [connect timeout](crate::Builder::connect_timeout), while those that it knows are young.
    #[default]
    Observed,
    /// Also a node that is as young at first sight is quarantined, whatever the others are: a new
    /// deployment grants nothing before that time.
    Strict,
}

/// What all nodes of a client may have forgotten.
pub(crate) struct Guard {
    /// True if the owner of the nodes vouches for what they write to their disks.
    trusts_persistence: bool,
    /// When each node's last term ends: looked at with each vote.
    ends: Box<[AtomicU64]>,
    quarantine: Mutex<Quarantine<Arc<str>>>,
}

impl Guard {
    /// Whatever was forgotten in a restart has ended after `term`.
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

    /// A connection to `node` was made, and the server behind it said this before `now`.
    pub(super) fn handle_set_up(&self, node: NodeId, info: &ServerInfo, asked: Time, now: Time) {
        let server = self.server(info, asked);
        self.change(|quarantine| quarantine.handle_set_up(node, server, now));
    }

    /// A server that reported `info` when it was asked at `asked`.
    fn server(&self, info: &ServerInfo, asked: Time) -> Server<Arc<str>> {
        Server {
            run: info.run_id.clone(),
            unnamed: info.unnamed,
            replid: info.replid.clone(),
            uptime: info.uptime,
            asked,
            // What is known to forget is not trusted, whoever vouches for it.
            is_trusted: self.trusts_persistence && info.is_durable != Some(false),
        }
    }

    /// Each node's failure at `now`, if new connections reached `servers`, or failed (`None`). Leaves the guard as it is.
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

    /// True once it is clear which nodes count: a client that is new waits for that.
    pub(super) fn is_settled(&self, now: Time) -> bool {
        lock(&self.quarantine).is_settled(now)
    }

    /// Why a grant of `node` does not count now.
    pub(super) fn failure(&self, node: NodeId, now: Time) -> Option<NodeFailure> {
        if now.as_nanos() >= self.ends[node.index()].load(Ordering::Acquire) {
            return None;
        }
        lock(&self.quarantine).failure(node, now)
    }

    /// For how long `node` has been up, and how long it does not count for that alone.
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
        exclusion.map(|it| it.failure(now))
    }
}

impl Exclusion {
    fn ago(self, now: Time) -> Duration {
        now.since(self.noticed).saturating_add(self.before)
    }

    fn failure(self, now: Time) -> NodeFailure {
        let (ago, counts_in) = (self.ago(now), self.until.since(now));
        match self.event {
            Event::Restart => NodeFailure::Restarted { ago, counts_in },
            Event::MaybeRestart(missing) => NodeFailure::MaybeRestarted { ago, counts_in, missing },
            Event::Flush => NodeFailure::Flushed { ago, counts_in },
        }
    }
}
