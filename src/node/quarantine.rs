//! What a node may have forgotten in a restart or a flush, and for how long its grants do not count.
//!
//! Why (the trace that the Redlock page answers with *delayed restarts*):
//! 1. A holds the lock on a bare quorum, the nodes a, b and c of five.
//! 2. c is restarted, and comes back empty.
//! 3. B is granted the lock by c, d and e: a quorum, while A holds it.
//!
//! So a node that came back without its memory grants nothing that counts until every lock that it
//! may have forgotten has ended. Redlock leaves it to the operator not to start the server before;
//! here each client sees to it by itself, on its own clock.

use super::failure::NodeFailure;
use super::set_up::ServerInfo;
use crate::lock::lock;
use crate::protocol::Time;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What is done about nodes that were restarted, and may have forgotten locks in that.
///
/// A node that counts as restarted is quarantined: it is sent everything as before, it is released
/// and extended, and that counts; but what it grants to an acquire or an adoption does not, until
/// every lock that it can have forgotten has ended: for
/// [`max_ttl`](crate::Builder::max_ttl) x (1 + 2 x [drift factor](crate::Builder::drift_factor)) +
/// 1 s on this client's clock. The same goes for a node that was emptied (`FLUSHALL`, `FLUSHDB`), once
/// a lock that this client had there is found missing.
///
/// A node is exempt that writes every command to disk before it answers (`appendonly yes` and
/// `appendfsync always`), if our user may see that (`INFO` and `CONFIG GET`). Where `INFO` is not
/// permitted, a connection that was lost and made anew counts as a restart, and a first one as a
/// server that has just been started: permit it (`+info`).
///
/// The age of a server is what `INFO` tells; it follows the wall clock of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RestartGuard {
    /// Nothing: what restarted and flushed nodes grant counts. For nodes whose start is delayed by other
    /// means, and for tests. Nodes whose [clock](NodeFailure::Suspect) is not to be trusted are left
    /// out all the same.
    Off,
    /// A node is quarantined when this client sees that it is another process than before. One that
    /// is as young at first sight does not count, unless so many are that no quorum of others is
    /// left: then the deployment itself is new, and works at once.
    ///
    /// What it cannot see: a restart in the first such time of a deployment, by a client that is
    /// new as well.
    #[default]
    Observed,
    /// Also a node that is as young at first sight is quarantined, whatever the others are: a new
    /// deployment grants nothing before that time.
    Strict,
}

/// The rule, and how long a node is quarantined by it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guard {
    pub(crate) rule: RestartGuard,
    pub(crate) span: Duration,
}

/// A missing lock and the push of a flush come by different ways: so far apart they belong together
/// in whichever order.
const TOGETHER: Duration = Duration::from_secs(1);

/// `uptime_in_seconds` is a difference of whole seconds.
const UPTIME_ERROR: Duration = Duration::from_secs(1);

/// One node's record, as far as its memory goes.
pub(crate) struct Quarantine {
    guard: Guard,
    /// When the last term ends: looked at with each vote.
    ends: AtomicU64,
    record: Mutex<Record>,
}

#[derive(Default)]
struct Record {
    /// What the server said when it was last connected to.
    server: Option<Server>,
    /// A connection has ended since.
    was_lost: bool,
    term: Option<Term>,
    youth: Option<Term>,
    flushed: Option<Time>,
    missed: Option<Time>,
}

struct Server {
    run_id: Option<Arc<str>>,
    is_durable: bool,
}

/// For how long grants do not count, and why.
#[derive(Clone, Copy)]
struct Term {
    event: Event,
    /// When it was noticed, and how long it had been so by then.
    noticed: Time,
    before: Duration,
    until: Time,
}

#[derive(Clone, Copy)]
enum Event {
    Restart,
    /// The server does not tell.
    MaybeRestart,
    Flush,
}

impl Term {
    fn failure(self, now: Time) -> Option<NodeFailure> {
        let ago = now.since(self.noticed).saturating_add(self.before);
        let counts_in = self.until.since(now);
        let failure = match self.event {
            Event::Restart => NodeFailure::Restarted { ago, counts_in },
            Event::MaybeRestart => NodeFailure::MaybeRestarted { ago, counts_in },
            Event::Flush => NodeFailure::Flushed { ago, counts_in },
        };
        (!counts_in.is_zero()).then_some(failure)
    }
}

impl Quarantine {
    pub(crate) fn new(guard: Guard) -> Self {
        Self { guard, ends: AtomicU64::new(0), record: Mutex::default() }
    }

    /// Why a grant of the node does not count now.
    pub(super) fn failure(&self, now: Time) -> Option<NodeFailure> {
        self.look(now, |record| record.term)
    }

    /// What a grant of the node is as good as, unless the deployment is new.
    pub(super) fn youth(&self, now: Time) -> Option<NodeFailure> {
        self.look(now, |record| record.youth)
    }

    fn look(&self, now: Time, term: impl FnOnce(&Record) -> Option<Term>) -> Option<NodeFailure> {
        if now.as_nanos() >= self.ends.load(Ordering::Acquire) {
            return None;
        }
        term(&lock(&self.record))?.failure(now)
    }

    /// A connection was made, and the server behind it said this before `now`.
    pub(super) fn handle_set_up(&self, info: &ServerInfo, now: Time) {
        let rule = self.guard.rule;
        let mut record = lock(&self.record);
        let server = Server { run_id: info.run_id.clone(), is_durable: info.is_durable };
        let was_lost = std::mem::take(&mut record.was_lost);
        let before = record.server.replace(server);
        let is_first = match &before {
            None => true,
            Some(before) => match (&before.run_id, &info.run_id) {
                (Some(before), Some(now)) if before == now => return,
                // Of what was before nothing is known; it tells for how long it has been up.
                (None, Some(_)) => true,
                (_, None) if !was_lost => return,
                (Some(_), Some(_)) | (_, None) => false,
            },
        };
        let was_durable = before.is_none_or(|before| before.is_durable);
        if rule == RestartGuard::Off || (was_durable && info.is_durable) {
            return;
        }
        let up_for = info.uptime.unwrap_or_default();
        let age = if is_first { up_for.saturating_sub(UPTIME_ERROR) } else { Duration::ZERO };
        let until = now.after(self.guard.span.saturating_sub(age));
        let event = if info.run_id.is_some() { Event::Restart } else { Event::MaybeRestart };
        let term = Term { event, noticed: now, before: up_for, until };
        if is_first && rule == RestartGuard::Observed {
            record.youth = Some(term);
            self.note(until);
        } else {
            self.sentence(&mut record, term);
        }
    }

    /// A connection has ended.
    pub(super) fn handle_loss(&self) {
        lock(&self.record).was_lost = true;
    }

    /// The server pushed, by `now`, that keys were flushed: maybe those of another database.
    pub(super) fn handle_flush(&self, now: Time) {
        let mut record = lock(&self.record);
        record.flushed = Some(now);
        if record.missed.is_some_and(|at| now.since(at) < TOGETHER) {
            self.handle_amnesia(&mut record, now);
        }
    }

    /// A key was missing at `now` that this node had granted, that nobody has released, and whose
    /// time is not over. Somebody may have taken it away; or it went in a flush.
    pub(super) fn handle_missing(&self, now: Time) {
        let mut record = lock(&self.record);
        record.missed = Some(now);
        match record.flushed {
            // What went in an earlier one has ended by now.
            Some(at) if now.since(at) < self.guard.span => self.handle_amnesia(&mut record, at),
            _ => {}
        }
    }

    fn handle_amnesia(&self, record: &mut Record, at: Time) {
        if self.guard.rule != RestartGuard::Off {
            let (noticed, until) = (at, at.after(self.guard.span));
            let term = Term { event: Event::Flush, noticed, before: Duration::ZERO, until };
            self.sentence(record, term);
        }
    }

    fn sentence(&self, record: &mut Record, term: Term) {
        if record.term.is_none_or(|known| known.until < term.until) {
            record.term = Some(term);
            self.note(term.until);
        }
    }

    fn note(&self, until: Time) {
        self.ends.fetch_max(until.as_nanos(), Ordering::AcqRel);
    }
}

#[cfg(test)]
#[path = "quarantine_tests.rs"]
mod tests;
