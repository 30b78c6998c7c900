//! I14: what nodes may have forgotten in a restart or a flush, and for how long their grants do not
//! count.
//!
//! Why (the trace that the Redlock page answers with *delayed restarts*):
//! 1. A holds the lock on a bare quorum, the nodes a, b and c of five.
//! 2. c is restarted, and comes back empty.
//! 3. B is granted the lock by c, d and e: a quorum, while A holds it.
//!
//! So a node that came back without its memory grants nothing that counts until every lock that it
//! may have forgotten has ended. Redlock leaves it to the operator not to start the server before;
//! here each client sees to it by itself, on its own clock.
//!
//! A server that a client meets for the first time tells how long it has been up. If that is less than
//! the term, it is *young*: it may have been restarted, or its deployment is new and nothing was
//! forgotten. What speaks against the second is any server that this client has known for longer than
//! the term, or that had been up for longer when it was met, whatever has become of it since.
//!
//! Report each connection: [`handle_set_up`](Quarantine::handle_set_up) with what the server said of itself,
//! [`handle_unreachable`](Quarantine::handle_unreachable) if none could be made, and
//! [`handle_loss`](Quarantine::handle_loss) when one has ended. Report a flush by
//! [`handle_flush`](Quarantine::handle_flush), and keys that went before their time by
//! [`handle_missing`](Quarantine::handle_missing): only both together mean that locks were forgotten.
//!
//! Before a first attempt, [`is_settled`](Quarantine::is_settled) says whether it is clear which nodes count.
//! Then [`sentence`](Quarantine::sentence) and [`recent_start`](Quarantine::recent_start) say why what a node
//! grants does not count now; [`ends`](Quarantine::ends) is when all of it counts again.

use super::quorum::{NodeId, NodeSet, Quorum};
use super::validity::Time;
use std::time::Duration;

/// What is done about nodes that were restarted, and may have forgotten locks in that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Nothing.
    Off,
    /// Nodes that are seen to be another process than before do not count, and young ones do not, unless
    /// the deployment is new.
    Observed,
    /// Young ones never count.
    Strict,
}

/// A missing lock and the push of a flush come by different ways: so far apart they belong together
/// in whichever order.
const TOGETHER: Duration = Duration::from_secs(1);

/// `uptime_in_seconds` is a difference of whole seconds.
const UPTIME_ERROR: Duration = Duration::from_secs(1);

/// How far two uptimes of one run can be apart from the time between them: the errors of both, and the time that
/// the earlier answer took.
const UPTIMES_ERROR: Duration = Duration::from_secs(3);

/// By how much more, as a share of that time: clocks wander by 200 ppm.
const WANDER: u32 = 5_000;

/// What a server said of itself when a connection to it was set up. `R` tells its runs apart.
#[derive(Clone, Debug)]
pub(crate) struct Server<R> {
    /// Which run of the server it is, if it tells.
    pub(crate) run: Option<R>,
    /// Why that is unknown.
    pub(crate) unnamed: &'static str,
    /// The name of its data set, if it reports one.
    pub(crate) replid: Option<R>,
    /// How long it has been up, in whole seconds, if it tells.
    pub(crate) uptime: Option<Duration>,
    /// When the set-up was sent, by our clock.
    pub(crate) asked: Time,
    /// True if its owner vouches that it keeps all it has promised when it is restarted.
    pub(crate) is_trusted: bool,
}

/// What a client knows of its nodes' memories.
#[derive(Clone, Debug)]
pub(crate) struct Quarantine<R> {
    rule: Rule,
    /// How long after a restart something that was forgotten can still be believed in.
    term: Duration,
    nodes: Vec<Record<R>>,
    /// Nodes that a connection was set up to, or could not be.
    tried: NodeSet,
    /// The age of the oldest server that was met, as it was then.
    oldest: Option<Age>,
}

#[derive(Clone, Debug)]
struct Record<R> {
    /// What the server said when it was last connected to.
    server: Option<Server<R>>,
    /// A connection has ended since.
    was_lost: bool,
    sentence: Option<Sentence>,
    /// While it is young.
    recent_start: Option<Sentence>,
    /// It counts though it is young: it was there when the deployment was new.
    is_native: bool,
    flushed: Option<Time>,
    missed: Option<Time>,
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

/// For how long grants do not count, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sentence {
    pub(crate) event: Event,
    /// When it was noticed, and how long it had been so by then.
    pub(crate) noticed: Time,
    pub(crate) before: Duration,
    pub(crate) until: Time,
}

/// What a node may have forgotten locks in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Restart,
    /// The server does not show whether it was restarted; with the missing proof.
    MaybeRestart(&'static str),
    Flush,
}

/// How a server is related to the previous one behind the same address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Identity {
    /// None is known.
    First,
    Same,
    Another,
    /// It may be the same; with the missing proof.
    Unknown(&'static str),
}

impl<R: PartialEq> Server<R> {
    /// Whether this is `before`. A connection to that one has ended since, if it `was_lost`.
    fn identity(&self, before: &Self, was_lost: bool, now: Time, term: Duration) -> Identity {
        match (&before.run, &self.run) {
            (Some(before), Some(run)) if before == run => Identity::Same,
            (Some(_), Some(_)) => Identity::Another,
            (Some(_), None) => Identity::Unknown(self.unnamed),
            // Also if this one reports its run: a set-up without `INFO` can follow one that was to another process.
            (None, _) if was_lost => self.identity_by_uptime(before, now, term),
            // The previous server is unknown; this one reports its uptime.
            (None, Some(_)) => Identity::First,
            (None, None) => Identity::Same,
        }
    }

    /// [`identity`](Self::identity) of servers that do not both report a run. A server that was up at the set-up of
    /// `before` is the same, and one that has been up for a term has forgotten no lock that still counts; unless the clock of the node makes its
    /// uptime wrong, or another server has taken over the address:
    ///
    /// - Both uptimes have to agree on the start. A machine can boot with a wrong clock, which is set once the server
    ///   runs: its uptime is then any number.
    /// - The name of the data set must not have changed: a master that is restarted, and a replica that is promoted,
    ///   take new ones. An unchanged name alone is no proof, as some versions restore it with their data, of
    ///   which the last may be missing.
    fn identity_by_uptime(&self, before: &Self, now: Time, term: Duration) -> Identity {
        let (Some(uptime), Some(known)) = (self.uptime, before.uptime) else {
            let is_named = self.run.is_some();
            return Identity::Unknown(if is_named { before.unnamed } else { self.unnamed });
        };
        let elapsed = now.since(before.asked);
        if uptime.saturating_sub(UPTIME_ERROR) < elapsed.min(term) {
            return Identity::Another;
        }
        let apart = uptime.abs_diff(known.saturating_add(elapsed));
        if self.replid != before.replid {
            Identity::Unknown("INFO reports no run_id, and another master_replid")
        } else if apart > UPTIMES_ERROR.saturating_add(elapsed / WANDER) {
            Identity::Unknown("INFO reports no run_id, and an uptime of another start")
        } else {
            Identity::Same
        }
    }
}

impl<R: PartialEq + Clone> Quarantine<R> {
    /// Nodes that were not met yet.
    pub(crate) fn new(quorum: Quorum, rule: Rule, term: Duration) -> Self {
        let record = |_| Record {
            server: None,
            was_lost: false,
            sentence: None,
            recent_start: None,
            is_native: false,
            flushed: None,
            missed: None,
        };
        let nodes = quorum.ids().map(record).collect();
        Self { rule, term, nodes, tried: NodeSet::default(), oldest: None }
    }

    /// A connection to `node` was set up, and the server behind it said this before `now`.
    pub(crate) fn handle_set_up(&mut self, node: NodeId, server: Server<R>, now: Time) {
        let age = server.uptime.map(|uptime| uptime.saturating_sub(UPTIME_ERROR));
        let record = &mut self.nodes[node.index()];
        let was_lost = std::mem::take(&mut record.was_lost);
        let known = record.server.as_ref();
        let identity =
            known.map_or(Identity::First, |known| server.identity(known, was_lost, now, self.term));
        if let Some(age) = age
            && self.oldest.is_none_or(|oldest| oldest.now(now) < age)
        {
            self.oldest = Some(Age { at: now, age });
            // One that is known only says better how old it is: an uptime is in whole seconds.
            if age >= self.term && identity != Identity::Same {
                // It was there all the time, and could not be asked.
                self.nodes.iter_mut().for_each(|record| record.is_native = false);
            }
        }
        self.judge(node, server, identity, now);
        self.tried.insert(node);
        self.settle(now);
    }

    /// No connection to `node` could be made by `now`.
    pub(crate) fn handle_unreachable(&mut self, node: NodeId, now: Time) {
        self.tried.insert(node);
        self.settle(now);
    }

    /// Excludes `node` for a term, unless `server` is the same as before.
    fn judge(&mut self, node: NodeId, server: Server<R>, identity: Identity, now: Time) {
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
        // Of one that may have been restarted only the connection is known to be new.
        let uptime = server.uptime.filter(|_| event == Event::Restart).unwrap_or_default();
        record.server = Some(server);
        if identity == Identity::Same || is_trusted || self.rule == Rule::Off {
            return;
        }
        let is_first = identity == Identity::First;
        let age = if is_first { uptime.saturating_sub(UPTIME_ERROR) } else { Duration::ZERO };
        let until = now.after(self.term.saturating_sub(age));
        let sentence = Sentence { event, noticed: now, before: uptime, until };
        if is_first && self.rule == Rule::Observed {
            (record.recent_start, record.is_native) = (Some(sentence), false);
        } else {
            record.pass(sentence);
        }
    }

    /// Once every node was tried, it is known whether the deployment is new: then those that are young
    /// are its first servers, and count, also when the first of them is old.
    fn settle(&mut self, now: Time) {
        if self.tried.len() == self.nodes.len() && self.is_new(now) {
            self.nodes
                .iter_mut()
                .for_each(|record| record.is_native = record.recent_start.is_some());
        }
    }

    /// True if no server is known that has been up for longer than anything stands.
    fn is_new(&self, now: Time) -> bool {
        self.oldest.is_none_or(|oldest| oldest.now(now) < self.term)
    }

    /// True if it is clear which of the young nodes count: it is not before every node was tried, unless
    /// one is old. Who was not met yet may be young.
    pub(crate) fn is_settled(&self, now: Time) -> bool {
        self.tried.len() == self.nodes.len() || !self.is_new(now) || self.rule != Rule::Observed
    }

    /// A connection to `node` has ended.
    pub(crate) fn handle_loss(&mut self, node: NodeId) {
        self.nodes[node.index()].was_lost = true;
    }

    /// `node` pushed, by `now`, that keys were flushed: maybe those of another database.
    pub(crate) fn handle_flush(&mut self, node: NodeId, now: Time) {
        let record = &mut self.nodes[node.index()];
        record.flushed = Some(now);
        if record.missed.is_some_and(|at| now.since(at) < TOGETHER) {
            self.handle_amnesia(node, now);
        }
    }

    /// A key was missing at `now` that `node` had granted, that nobody has released, and whose time is
    /// not over. Somebody may have taken it away; or it went in a flush.
    pub(crate) fn handle_missing(&mut self, node: NodeId, now: Time) {
        let record = &mut self.nodes[node.index()];
        record.missed = Some(now);
        match record.flushed {
            // What went in an earlier one has ended by now.
            Some(at) if now.since(at) < self.term => self.handle_amnesia(node, at),
            _ => {}
        }
    }

    fn handle_amnesia(&mut self, node: NodeId, at: Time) {
        if self.rule != Rule::Off {
            let (noticed, until) = (at, at.after(self.term));
            let sentence = Sentence { event: Event::Flush, noticed, before: Duration::ZERO, until };
            self.nodes[node.index()].pass(sentence);
        }
    }

    /// Why what `node` grants does not count at `now`: it was restarted or flushed.
    pub(crate) fn sentence(&self, node: NodeId, now: Time) -> Option<Sentence> {
        self.nodes[node.index()].sentence.filter(|sentence| now < sentence.until)
    }

    /// The same, as the node was young when it was met first.
    pub(crate) fn recent_start(&self, node: NodeId, now: Time) -> Option<Sentence> {
        let record = &self.nodes[node.index()];
        record.recent_start.filter(|sentence| !record.is_native && now < sentence.until)
    }

    /// When everything that `node` grants counts again, as far as it is known now.
    pub(crate) fn ends(&self, node: NodeId) -> Time {
        let record = &self.nodes[node.index()];
        let both = [record.sentence, record.recent_start].into_iter().flatten();
        both.map(|sentence| sentence.until).max().unwrap_or_default()
    }
}

impl<R> Record<R> {
    fn pass(&mut self, sentence: Sentence) {
        if self.sentence.is_none_or(|known| known.until < sentence.until) {
            self.sentence = Some(sentence);
        }
    }
}

#[cfg(test)]
#[path = "quarantine_tests.rs"]
mod tests;
