//! I14: which nodes may have forgotten locks in a restart or a flush, and for how long their grants do not
//! count.
//!
//! The problem (the Redlock page answers it with *delayed restarts*):
//! 1. A holds the lock on a bare quorum: the nodes a, b and c of five.
//! 2. c restarts, and comes back empty.
//! 3. c, d and e grant the lock to B: a quorum, while A holds it.
//!
//! So the grants of a node that came back without its data do not count until every lock that it may have
//! forgotten has ended. With plain Redlock the operator has to delay the restart of the server. Here each
//! client ignores the node by itself, on its own clock.
//!
//! A server reports its uptime when a client first connects to it. If the uptime is less than the quarantine period
//! (`period`), the server is *young*: it may have been restarted, or the deployment is new and no lock was forgotten.
//! The deployment is not new if this client has known any server for longer than the period, or if any server had a
//! longer uptime when it was first met. It does not matter whether that server still exists.
//!
//! Report each connection: [`handle_set_up`](Quarantine::handle_set_up) with the server's identity,
//! [`handle_unreachable`](Quarantine::handle_unreachable) if the node cannot be connected to, and
//! [`handle_loss`](Quarantine::handle_loss) when a connection has ended. Report a flush with
//! [`handle_flush`](Quarantine::handle_flush), and keys that disappeared before their expiry with
//! [`handle_missing`](Quarantine::handle_missing): only both together mean that locks were forgotten.
//!
//! Before a first attempt, [`is_settled`](Quarantine::is_settled) returns whether it is known which young nodes count.
//! Then [`exclusion`](Quarantine::exclusion) and [`recent_start`](Quarantine::recent_start) return why the grants of a
//! node do not count now; [`ends`](Quarantine::ends) is when they count again.

use super::quorum::{NodeId, NodeSet, Quorum};
use super::validity::Time;
use std::time::Duration;

/// How nodes are treated that were restarted, and may have forgotten locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Restarts are ignored.
    Off,
    /// Nodes with another server process than before do not count. Young nodes do not count either, unless
    /// the deployment is new.
    Observed,
    /// Young nodes never count.
    Strict,
}

/// A flush and the missing keys are reported over different connections. Reports within this time of each other, in
/// either order, belong together.
const FLUSH_WINDOW: Duration = Duration::from_secs(1);

/// `uptime_in_seconds` is a difference of whole seconds.
const UPTIME_ERROR: Duration = Duration::from_secs(1);

/// How far two uptimes of one run can differ from the time between them: the errors of both, and the duration of the
/// earlier request.
const UPTIME_PAIR_ERROR: Duration = Duration::from_secs(3);

/// One part in this many of that time is added: clocks wander by 200 ppm.
const WANDER_DIVISOR: u32 = 5_000;

/// A server's report about itself when a connection was set up. `R` identifies its runs.
#[derive(Clone, Debug)]
pub(crate) struct Server<R> {
    /// The run of the server, if it reports one.
    pub(crate) run: Option<R>,
    /// Why the run is unknown.
    pub(crate) unnamed: &'static str,
    /// The ID of its data set (`master_replid`), if it reports one.
    pub(crate) replid: Option<R>,
    /// Its uptime in whole seconds, if it reports one.
    pub(crate) uptime: Option<Duration>,
    /// When the set-up was sent, by this client's clock.
    pub(crate) asked: Time,
    /// True if its operator declares that it keeps all data over a restart.
    pub(crate) is_trusted: bool,
}

/// Restarts and flushes of a client's nodes.
#[derive(Clone, Debug)]
pub(crate) struct Quarantine<R> {
    policy: Policy,
    /// How long after a restart a holder can still rely on a forgotten lock.
    period: Duration,
    nodes: Vec<Record<R>>,
    /// Nodes that were connected to, or could not be.
    tried: NodeSet,
    /// The age of the oldest server that was met, whether or not it still exists.
    oldest: Option<Age>,
}

#[derive(Clone, Debug)]
struct Record<R> {
    /// The report of the latest connection.
    server: Option<Server<R>>,
    /// A connection has ended since the report.
    was_lost: bool,
    exclusion: Option<Exclusion>,
    /// Set while the node is young.
    recent_start: Option<Exclusion>,
    /// The node counts although it is young: it was there when the deployment was new.
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

/// Why the grants of a node do not count, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exclusion {
    pub(crate) event: Event,
    /// When the event was noticed, and how long before that it had happened.
    pub(crate) noticed: Time,
    pub(crate) before: Duration,
    pub(crate) until: Time,
}

impl Exclusion {
    /// How long ago the event happened.
    pub(crate) fn ago(self, now: Time) -> Duration {
        now.since(self.noticed).saturating_add(self.before)
    }
}

/// An event in which a node may have forgotten locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Restart,
    /// The server does not show whether it was restarted. Names the missing proof.
    MaybeRestart(&'static str),
    Flush,
}

/// Relation of a server to the previous one at the same address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Identity {
    /// No previous server is known.
    First,
    Same,
    Another,
    /// It may be the same. Names the missing proof.
    Unknown(&'static str),
}

impl<R: PartialEq> Server<R> {
    /// Compares with the server `before`. `was_lost` is true if a connection to that one has ended since.
    fn identity(&self, before: &Self, was_lost: bool, now: Time, period: Duration) -> Identity {
        match (&before.run, &self.run) {
            (Some(before), Some(run)) if before == run => Identity::Same,
            (Some(_), Some(_)) => Identity::Another,
            (Some(_), None) => Identity::Unknown(self.unnamed),
            // Also if this one reports its run: the set-up without `INFO` may have reached another process.
            (None, _) if was_lost => self.identity_by_uptime(before, now, period),
            // The previous server is unknown, and no connection has ended since.
            (None, Some(_)) => Identity::First,
            (None, None) => Identity::Same,
        }
    }

    /// [`identity`](Self::identity) of servers that do not both report a run. A server that was up at the set-up of
    /// `before` is the same one. A server that has been up for the period has forgotten no lock that still counts.
    /// There are two exceptions: a wrong clock makes the uptime wrong, or another server has taken over the address.
    /// Hence:
    ///
    /// - Both uptimes must agree on the start. A machine can boot with a wrong clock that is set while the server
    ///   runs: its uptime is then an arbitrary number.
    /// - The ID of the data set must not have changed: a restarted master and a promoted replica take new ones. An
    ///   unchanged ID alone is no proof, because some versions restore it with their data, which may lack the latest
    ///   writes.
    fn identity_by_uptime(&self, before: &Self, now: Time, period: Duration) -> Identity {
        let (Some(uptime), Some(known)) = (self.uptime, before.uptime) else {
            let is_named = self.run.is_some();
            return Identity::Unknown(if is_named { before.unnamed } else { self.unnamed });
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
    /// No node was met yet.
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

    /// A connection to `node` was set up before `now`, and `server` is its report.
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
            // A known server only reports its age more precisely: an uptime is in whole seconds.
            if age >= self.period && identity != Identity::Same {
                // An old server that was unreachable before: the deployment is not new.
                self.nodes.iter_mut().for_each(|record| record.is_bootstrap = false);
            }
        }
        self.update_exclusion(node, server, identity, now);
        self.tried.insert(node);
        self.mark_bootstrap_nodes(now);
    }

    /// The node cannot be connected to.
    pub(crate) fn handle_unreachable(&mut self, node: NodeId, now: Time) {
        self.tried.insert(node);
        self.mark_bootstrap_nodes(now);
    }

    /// Excludes `node` for the period, unless `server` is the same as before or is trusted.
    fn update_exclusion(&mut self, node: NodeId, server: Server<R>, identity: Identity, now: Time) {
        let record = &mut self.nodes[node.index()];
        let was_trusted = record.server.as_ref().is_none_or(|before| before.is_trusted);
        let is_trusted = server.is_trusted && was_trusted;
        let event = match identity {
            Identity::Unknown(missing) => Event::MaybeRestart(missing),
            _ if server.run.is_none() && server.uptime.is_none() => {
                Event::MaybeRestart(server.unnamed)
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

    /// Once every node was tried, it is known whether the deployment is new. Then the young nodes are its first
    /// servers and count, even after the first of them has become old.
    fn mark_bootstrap_nodes(&mut self, now: Time) {
        if self.tried.len() == self.nodes.len() && self.is_new(now) {
            self.nodes
                .iter_mut()
                .for_each(|record| record.is_bootstrap = record.recent_start.is_some());
        }
    }

    /// True if no known server is older than the period.
    fn is_new(&self, now: Time) -> bool {
        self.oldest.is_none_or(|oldest| oldest.now(now) < self.period)
    }

    /// True if it is known which young nodes count: every node was tried, or one of them is old. Nodes that were
    /// not met yet may be young.
    pub(crate) fn is_settled(&self, now: Time) -> bool {
        self.tried.len() == self.nodes.len() || !self.is_new(now) || self.policy != Policy::Observed
    }

    pub(crate) fn handle_loss(&mut self, node: NodeId) {
        self.nodes[node.index()].was_lost = true;
    }

    /// `node` pushed a flush, maybe of another database.
    pub(crate) fn handle_flush(&mut self, node: NodeId, now: Time) {
        let record = &mut self.nodes[node.index()];
        record.flushed_at = Some(now);
        if record.missing_at.is_some_and(|at| now.since(at) < FLUSH_WINDOW) {
            self.exclude_after_flush(node, now);
        }
    }

    /// A key was missing that `node` had granted, that was not released, and whose ttl has not ended. Another client
    /// may have deleted it, or it was flushed.
    pub(crate) fn handle_missing(&mut self, node: NodeId, now: Time) {
        let record = &mut self.nodes[node.index()];
        record.missing_at = Some(now);
        match record.flushed_at {
            // Locks that an earlier flush deleted have ended.
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

    /// Why the grants of `node` do not count at `now` after a restart or a flush.
    pub(crate) fn exclusion(&self, node: NodeId, now: Time) -> Option<Exclusion> {
        self.nodes[node.index()].exclusion.filter(|exclusion| now < exclusion.until)
    }

    /// Why the grants of `node` do not count at `now` because it was young when it was first met.
    pub(crate) fn recent_start(&self, node: NodeId, now: Time) -> Option<Exclusion> {
        let record = &self.nodes[node.index()];
        record.recent_start.filter(|exclusion| !record.is_bootstrap && now < exclusion.until)
    }

    /// When the grants of `node` count again, as known now.
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
