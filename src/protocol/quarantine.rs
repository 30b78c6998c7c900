//! Excludes nodes that may have forgotten locks in a restart or a flush, until these locks have ended (I14).
//!
//! The problem, which the Redlock page solves with *delayed restarts*:
//!
//! 1. Client A holds the lock on a bare quorum: the nodes a, b and c of five.
//! 2. Node c restarts without its data.
//! 3. Nodes c, d and e grant the lock to client B: a quorum, while A holds the lock.
//!
//! The grants of a node that restarted without its data therefore do not count towards a quorum until every lock that
//! it may have forgotten has ended. With plain Redlock, the operator has to delay the restart of the server. Here, each
//! client ignores the node independently, on the client's own clock.
//!
//! A server reports its uptime when a client first connects to it. If the uptime is less than the quarantine period
//! (`period`), the server is *young*: either it was restarted, or the deployment is new and no lock was forgotten. The
//! deployment is not new if this client has known any server for longer than the period. It is also not new if any
//! server had a longer uptime at the first connection, even if that server no longer exists.
//!
//! Report each connection: [`handle_set_up`](Quarantine::handle_set_up) with the server's identity,
//! [`handle_unreachable`](Quarantine::handle_unreachable) if the client cannot connect to the node, and
//! [`handle_loss`](Quarantine::handle_loss) when a connection has ended. Report a flush with
//! [`handle_flush`](Quarantine::handle_flush), and keys that disappeared before their expiry with
//! [`handle_missing`](Quarantine::handle_missing). Only a flush together with a missing key means that locks were
//! forgotten.
//!
//! Before the first attempt, [`is_settled`](Quarantine::is_settled) returns true if the client knows enough to decide
//! which young nodes count. Then [`exclusion`](Quarantine::exclusion) and [`recent_start`](Quarantine::recent_start)
//! return why the grants of a node do not count now, and [`ends`](Quarantine::ends) returns when the grants count
//! again.

use super::quorum::{NodeId, NodeSet, Quorum};
use super::validity::Time;
use std::time::Duration;

/// How to treat nodes that were restarted and may have forgotten locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Ignore restarts: all grants count towards a quorum.
    Off,
    /// Do not count the grants of a node whose server process has changed. If the deployment is not new, do not count
    /// the grants of recently started servers either.
    Observed,
    /// Do not count the grants of recently started servers, even if the deployment is new.
    Strict,
}

/// The maximum time by which the report of a missing key can precede the report of the flush that deleted the key. The
/// two reports arrive over different connections.
const FLUSH_WINDOW: Duration = Duration::from_secs(1);

/// The maximum error of a reported uptime: `uptime_in_seconds` is a difference of whole seconds.
const UPTIME_ERROR: Duration = Duration::from_secs(1);

/// The maximum error when the increase of a server's uptime is compared with the elapsed time. It consists of the
/// errors of both uptimes and the duration of the earlier request.
const UPTIME_PAIR_ERROR: Duration = Duration::from_secs(3);

/// Clocks wander by 200 ppm. The allowed difference between two uptimes therefore grows by the time between them
/// divided by this number.
const WANDER_DIVISOR: u32 = 5_000;

/// A server's report about itself when a connection was set up. `R` identifies a run of the server process.
#[derive(Clone, Debug)]
pub(crate) struct Server<R> {
    /// The ID of the server's current run, if the server reports one.
    pub(crate) run: Option<R>,
    /// The reason to report if the run is unknown.
    pub(crate) no_run_id_reason: &'static str,
    /// The ID of the server's data set (`master_replid`), if the server reports one.
    pub(crate) replid: Option<R>,
    /// The uptime in whole seconds, if the server reports one.
    pub(crate) uptime: Option<Duration>,
    /// When this client requested the report, on the client's clock.
    pub(crate) asked: Time,
    /// Whether the operator declares that the server keeps all data across restarts.
    pub(crate) is_trusted: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Quarantine<R> {
    policy: Policy,
    /// How long after a restart a holder can still rely on a forgotten lock.
    period: Duration,
    nodes: Vec<Record<R>>,
    /// The nodes to which the client has tried to connect.
    tried: NodeSet,
    /// The age of the oldest server that this client has known. The server may no longer exist.
    oldest: Option<Age>,
}

#[derive(Clone, Debug)]
struct Record<R> {
    /// The report of the latest connection.
    server: Option<Server<R>>,
    /// Whether a connection has ended since the report.
    was_lost: bool,
    exclusion: Option<Exclusion>,
    /// The exclusion of a node whose server had only recently started when the client first connected to it.
    recent_start: Option<Exclusion>,
    /// Whether the node's grants count although its server started recently, because the server belongs to a new
    /// deployment.
    is_bootstrap: bool,
    flushed_at: Option<Time>,
    missing_at: Option<Time>,
}

#[derive(Clone, Copy, Debug)]
struct Age {
    at: Time,
    age: Duration,
}

impl Age {
    fn now(self, now: Time) -> Duration {
        self.age.saturating_add(now.since(self.at))
    }
}

/// Why the grants of a node do not count towards a quorum, and the time from which they count again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exclusion {
    pub(crate) event: Event,
    /// When this client noticed the event.
    pub(crate) noticed: Time,
    /// How long before `noticed` the event happened.
    pub(crate) before: Duration,
    pub(crate) until: Time,
}

impl Exclusion {
    pub(crate) fn ago(self, now: Time) -> Duration {
        now.since(self.noticed).saturating_add(self.before)
    }
}

/// An event in which a node may have forgotten its locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Restart,
    /// The server may have been restarted. The string names the proof that is missing.
    MaybeRestart(&'static str),
    Flush,
}

/// The relation of a server to the previous server at the same address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Identity {
    First,
    Same,
    Another,
    /// The servers may be the same. The string names the proof that is missing.
    Unknown(&'static str),
}

impl<R: PartialEq> Server<R> {
    /// Compares this server with `before`, the previous server at the same address. `was_lost` is true if a connection
    /// to `before` has ended since its report.
    fn identity(&self, before: &Self, was_lost: bool, now: Time, period: Duration) -> Identity {
        match (&before.run, &self.run) {
            (Some(before), Some(run)) if before == run => Identity::Same,
            (Some(_), Some(_)) => Identity::Another,
            (Some(_), None) => Identity::Unknown(self.no_run_id_reason),
            // This arm applies even if this server reports its run: the set-up that got no run ID may have reached
            // another process.
            (None, _) if was_lost => self.identity_by_uptime(before, now, period),
            // The previous server is unknown, and no connection has ended since.
            (None, Some(_)) => Identity::First,
            (None, None) => Identity::Same,
        }
    }

    /// Returns the [`identity`](Self::identity) of a server if the runs cannot be compared. A server that was already
    /// up when `before` reported is the same server. A server that has been up for the whole quarantine period has
    /// forgotten no lock that still counts. Two errors are possible: a wrong clock makes the uptime wrong, or another
    /// server has taken over the address. Therefore:
    ///
    /// - Both uptimes must agree on the start. If a machine boots with a wrong clock that is set while the server runs,
    ///   the server's uptime is an arbitrary number.
    /// - The ID of the data set must be unchanged: a restarted master and a promoted replica take new IDs. An unchanged
    ///   ID alone is no proof. Some versions restore the ID with their data, which may lack the latest writes.
    fn identity_by_uptime(&self, before: &Self, now: Time, period: Duration) -> Identity {
        let (Some(uptime), Some(known)) = (self.uptime, before.uptime) else {
            let is_named = self.run.is_some();
            return Identity::Unknown(if is_named {
                before.no_run_id_reason
            } else {
                self.no_run_id_reason
            });
        };
        let elapsed = now.since(before.asked);
        if uptime.saturating_sub(UPTIME_ERROR) < elapsed.min(period) {
            return Identity::Another;
        }
        let apart = uptime.abs_diff(known.saturating_add(elapsed));
        if self.replid != before.replid {
            Identity::Unknown("INFO reports no run_id, and master_replid has changed")
        } else if apart > UPTIME_PAIR_ERROR.saturating_add(elapsed / WANDER_DIVISOR) {
            Identity::Unknown("INFO reports no run_id, and the uptime is inconsistent")
        } else {
            Identity::Same
        }
    }
}

impl<R: PartialEq + Clone> Quarantine<R> {
    pub(crate) fn new(quorum: Quorum, policy: Policy, period: Duration) -> Self {
        let record = |_| Record {
            server: None,
            was_lost: false,
            exclusion: None,
            recent_start: None,
            is_bootstrap: false,
            flushed_at: None,
            missing_at: None,
        };
        let nodes = quorum.ids().map(record).collect();
        Self { policy, period, nodes, tried: NodeSet::default(), oldest: None }
    }

    /// Records that a connection to `node` was set up. `server` is the server's report about itself.
    pub(crate) fn handle_set_up(&mut self, node: NodeId, server: Server<R>, now: Time) {
        let age = server.uptime.map(|uptime| uptime.saturating_sub(UPTIME_ERROR));
        let record = &mut self.nodes[node.index()];
        let was_lost = std::mem::take(&mut record.was_lost);
        let known = record.server.as_ref();
        let identity = known
            .map_or(Identity::First, |known| server.identity(known, was_lost, now, self.period));
        if let Some(age) = age
            && self.oldest.is_none_or(|oldest| oldest.now(now) < age)
        {
            self.oldest = Some(Age { at: now, age });
            // The age of a known server may seem to have just reached the quarantine period. However, the age has only
            // become more precise, because uptimes are in whole seconds.
            if age >= self.period && identity != Identity::Same {
                // An old server that was unreachable before shows that the deployment is not new.
                self.nodes.iter_mut().for_each(|record| record.is_bootstrap = false);
            }
        }
        self.update_exclusion(node, server, identity, now);
        self.tried.insert(node);
        self.mark_bootstrap_nodes(now);
    }

    pub(crate) fn handle_unreachable(&mut self, node: NodeId, now: Time) {
        self.tried.insert(node);
        self.mark_bootstrap_nodes(now);
    }

    /// Stores the report of `server`. Excludes `node` until the quarantine period has passed, unless `server` is the
    /// same as before or is trusted, or the policy is [`Policy::Off`].
    fn update_exclusion(&mut self, node: NodeId, server: Server<R>, identity: Identity, now: Time) {
        let record = &mut self.nodes[node.index()];
        let was_trusted = record.server.as_ref().is_none_or(|before| before.is_trusted);
        let is_trusted = server.is_trusted && was_trusted;
        let event = match identity {
            Identity::Unknown(missing) => Event::MaybeRestart(missing),
            _ if server.run.is_none() && server.uptime.is_none() => {
                Event::MaybeRestart(server.no_run_id_reason)
            }
            _ => Event::Restart,
        };
        // For a possible restart, only the time of the new connection is known.
        let uptime = server.uptime.filter(|_| event == Event::Restart).unwrap_or_default();
        record.server = Some(server);
        if identity == Identity::Same || is_trusted || self.policy == Policy::Off {
            return;
        }
        let is_first = identity == Identity::First;
        let age = if is_first { uptime.saturating_sub(UPTIME_ERROR) } else { Duration::ZERO };
        let until = now.after(self.period.saturating_sub(age));
        let exclusion = Exclusion { event, noticed: now, before: uptime, until };
        if is_first && self.policy == Policy::Observed {
            (record.recent_start, record.is_bootstrap) = (Some(exclusion), false);
        } else {
            record.exclude(exclusion);
        }
    }

    /// If the deployment is new and the client has tried to connect to every node, marks the recently started nodes as
    /// bootstrap nodes, that is, the initial servers of the deployment. Their grants continue to count after the oldest
    /// of these servers has become older than the quarantine period.
    fn mark_bootstrap_nodes(&mut self, now: Time) {
        if self.tried.len() == self.nodes.len() && self.is_new(now) {
            self.nodes
                .iter_mut()
                .for_each(|record| record.is_bootstrap = record.recent_start.is_some());
        }
    }

    /// Returns true if the deployment may be new, because no known server is older than the quarantine period.
    fn is_new(&self, now: Time) -> bool {
        self.oldest.is_none_or(|oldest| oldest.now(now) < self.period)
    }

    /// Returns true if this client knows enough to decide which recently started nodes count. It must have tried to
    /// connect to every node, or know a server that is older than the quarantine period. Otherwise, nodes that the
    /// client has not yet reached may have started recently too. Always returns true unless the policy is
    /// [`Policy::Observed`].
    pub(crate) fn is_settled(&self, now: Time) -> bool {
        self.tried.len() == self.nodes.len() || !self.is_new(now) || self.policy != Policy::Observed
    }

    pub(crate) fn handle_loss(&mut self, node: NodeId) {
        self.nodes[node.index()].was_lost = true;
    }

    /// Records that `node` sent a push about a flush, possibly of another database.
    pub(crate) fn handle_flush(&mut self, node: NodeId, now: Time) {
        let record = &mut self.nodes[node.index()];
        record.flushed_at = Some(now);
        if record.missing_at.is_some_and(|at| now.since(at) < FLUSH_WINDOW) {
            self.exclude_after_flush(node, now);
        }
    }

    /// Records that `node` no longer has a key that it had granted. The key was not released, and its ttl has not
    /// ended: either another client deleted the key, or it was flushed.
    pub(crate) fn handle_missing(&mut self, node: NodeId, now: Time) {
        let record = &mut self.nodes[node.index()];
        record.missing_at = Some(now);
        match record.flushed_at {
            // If the flush is older than the quarantine period, the locks that it deleted have ended.
            Some(at) if now.since(at) < self.period => self.exclude_after_flush(node, at),
            _ => {}
        }
    }

    fn exclude_after_flush(&mut self, node: NodeId, at: Time) {
        if self.policy != Policy::Off {
            let (noticed, until) = (at, at.after(self.period));
            let exclusion =
                Exclusion { event: Event::Flush, noticed, before: Duration::ZERO, until };
            self.nodes[node.index()].exclude(exclusion);
        }
    }

    /// Returns the exclusion of `node` because of a restart or a flush, or `None` if no such exclusion applies at
    /// `now`.
    pub(crate) fn exclusion(&self, node: NodeId, now: Time) -> Option<Exclusion> {
        self.nodes[node.index()].exclusion.filter(|exclusion| now < exclusion.until)
    }

    /// Returns the exclusion of `node` because its server had only recently started at the first connection. Returns
    /// `None` if no such exclusion applies at `now`.
    pub(crate) fn recent_start(&self, node: NodeId, now: Time) -> Option<Exclusion> {
        let record = &self.nodes[node.index()];
        record.recent_start.filter(|exclusion| !record.is_bootstrap && now < exclusion.until)
    }

    /// Returns when the last known exclusion of `node` ends. The time can be in the past.
    pub(crate) fn ends(&self, node: NodeId) -> Time {
        let record = &self.nodes[node.index()];
        let both = [record.exclusion, record.recent_start].into_iter().flatten();
        both.map(|exclusion| exclusion.until).max().unwrap_or_default()
    }
}

impl<R> Record<R> {
    fn exclude(&mut self, exclusion: Exclusion) {
        if self.exclusion.is_none_or(|known| known.until < exclusion.until) {
            self.exclusion = Some(exclusion);
        }
    }
}

#[cfg(test)]
#[path = "quarantine_tests.rs"]
mod tests;
