//! A lock with an end.

use crate::clock;
use crate::error::{ExtendError, ReleaseError};
use crate::hold::Hold;
use crate::node::{Ballot, Order};
use crate::protocol::{Extended, Goal, Loss, Outcome, Renewal, Round, Tenure, Time};
use crate::redlock::Inner;
use crate::report::Report;
use crate::tally::Tally;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A held lock. It ends at [`valid_until`](Self::valid_until), unless it is extended; when it is
/// [released](Self::release); or when it is dropped.
///
/// Dropping a lease releases it in the background, never blocks and never panics, with or without
/// a runtime. The release needs the runtime that the lease was acquired on to go on running; in a
/// short-lived process use [`release`](Self::release) or [`Redlock::close`](crate::Redlock::close),
/// else the lock may stay until its ttl ends.
#[must_use = "a lease is released when it is dropped"]
pub struct Lease {
    client: Arc<Inner>,
    hold: Hold,
    renewal: Mutex<Renewal>,
    won: Arc<Tally>,
}

/// What a release found: whether the lock was held to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReleaseOutcome {
    /// It was deleted on a quorum of nodes, so it was held up to then.
    Released,
    /// It was gone from too many nodes: its time had ended. Nobody else was seen holding it.
    Expired,
    /// Others hold it by now. Nothing of theirs was touched.
    TakenOver,
}

impl Lease {
    pub(crate) fn new(client: Arc<Inner>, hold: Hold, valid_until: Time, won: Arc<Tally>) -> Self {
        let driver = &client.driver;
        let renewal = Mutex::new(Renewal::new(driver.quorum, driver.drift, valid_until));
        Self { client, hold, renewal, won }
    }

    /// What is locked, without the key prefix.
    pub fn resource(&self) -> &[u8] {
        let prefix = self.client.settings.prefix.len();
        self.hold.claim().key().get(prefix..).unwrap_or_default()
    }

    /// The random value that stands under the key: whoever knows it can release the lock. It is the
    /// one place where it is shown whole.
    pub fn value(&self) -> &str {
        self.hold.claim().value().as_str()
    }

    /// How long the lease is still valid: T1 + ttl - drift, less the time since T1, where T1 is
    /// when the first command was about to be sent. Zero once it has ended. Does no I/O.
    pub fn validity(&self) -> Duration {
        let now = clock::now();
        self.renewal().valid_until(now).map_or(Duration::ZERO, |until| until.since(now))
    }

    /// When the validity ends, on the clock of [`Instant`]; now, if it has ended. Does no I/O.
    ///
    /// On Linux `Instant` stands still while the machine sleeps, and the nodes do not: after a
    /// suspension an instant taken before it is too late. [`is_valid`](Self::is_valid) and
    /// [`validity`](Self::validity) count sleep.
    pub fn valid_until(&self) -> Instant {
        let now = Instant::now();
        // The sum overflows only for leases of centuries.
        now.checked_add(self.validity()).unwrap_or(now)
    }

    /// True while the lock may be relied on: from the end of its validity on it is false, whatever
    /// the nodes do. Does no I/O.
    pub fn is_valid(&self) -> bool {
        self.renewal().valid_until(clock::now()).is_some()
    }

    /// Why the lease ended, if it has.
    pub fn loss(&self) -> Option<Loss> {
        match self.renewal().tenure(clock::now()) {
            Tenure::Lost(loss) => Some(loss),
            Tenure::Held { .. } | Tenure::Released => None,
        }
    }

    /// What each node said to the attempt that won. Answers that came after the decision are in it.
    pub fn report(&self) -> Report {
        self.won.report(self.hold.nodes().names().cloned())
    }

    /// Lets the lock stand for `ttl` from now on. It never shortens it, and never sets it anew where
    /// it is gone. Nodes that do not answer are told again when they do.
    ///
    /// Takes at most one node timeout.
    ///
    /// # Errors
    /// [`NoQuorum`](ExtendError::NoQuorum): nothing has changed, the lease is held for as long as
    /// before. [`Lost`](ExtendError::Lost): it has ended. [`Invalid`](ExtendError::Invalid): the ttl
    /// cannot work.
    ///
    /// # Cancel safety
    /// If the future is dropped, nodes may keep the lock for longer, but the lease does not count on
    /// it. It stays as it was.
    pub async fn extend(&self, ttl: Duration) -> Result<(), ExtendError> {
        let ttl = self.client.settings.check_ttl(ttl)?;
        let driver = &self.client.driver;
        let nodes = driver.pool.open(self.hold.nodes());
        let t1 = clock::now();
        let begun = self.renewal().begin(ttl, t1);
        let round = begun.map_err(|ended| lost(ended, None))?;
        let close_at = closing(&round, t1.after(driver.node_timeout));
        let tally = Tally::new(round, t1);
        let until = t1.after(ttl.as_duration());
        nodes.send_each(|node| {
            Order::extend(self.hold.claim().clone(), until, Ballot::new(tally.clone(), node))
        });
        tally.decided(&nodes, close_at).await;

        let now = clock::now();
        let extended = tally.judge(|round| self.renewal().handle_outcome(round, now));
        let report = || Box::new(tally.report(nodes.names().cloned()));
        match extended {
            Extended::Until(_) => Ok(()),
            Extended::Unchanged(until) => {
                Err(ExtendError::NoQuorum { still_valid_for: until.since(now), report: report() })
            }
            Extended::Ended(ended) => Err(lost(ended, Some(report()))),
        }
    }

    /// Ends the lease on all nodes, and tells whether it was held to the end. Expiry is an outcome,
    /// not an error; there is one round, without retries.
    ///
    /// Takes at most one node timeout, and returns as soon as a quorum has deleted it. Nodes that do
    /// not answer are told again when they do.
    ///
    /// # Errors
    /// [`NoQuorum`](ReleaseError::NoQuorum) if too few nodes answered to know.
    ///
    /// # Cancel safety
    /// If the future is dropped, the release goes on in the background, as when a lease is dropped.
    pub async fn release(mut self) -> Result<ReleaseOutcome, ReleaseError> {
        let driver = &self.client.driver;
        let nodes = driver.pool.open(self.hold.nodes());
        let t1 = clock::now();
        self.renewal().release(t1);
        let tally = Tally::new(Round::new(driver.quorum, Goal::Release), t1);
        self.hold.release(&nodes, |node| Ballot::new(tally.clone(), node));
        tally.decided(&nodes, t1.after(driver.node_timeout)).await;
        match tally.judge(Round::outcome) {
            Some(Outcome::Won) => Ok(ReleaseOutcome::Released),
            Some(Outcome::Denied) => Ok(ReleaseOutcome::TakenOver),
            Some(Outcome::Missing) => Ok(ReleaseOutcome::Expired),
            Some(Outcome::TooLate | Outcome::NoQuorum) | None => {
                let report = Box::new(tally.report(nodes.names().cloned()));
                Err(ReleaseError::NoQuorum { report })
            }
        }
    }

    /// No code panics while it holds the lock.
    fn renewal(&self) -> MutexGuard<'_, Renewal> {
        self.renewal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// When to stop waiting for votes: an extension that comes after the old end is worth nothing (I9).
fn closing(round: &Round, at: Time) -> Time {
    match round.goal() {
        Goal::Extend { current, .. } => at.min(current),
        Goal::Acquire { .. } | Goal::Release => at,
    }
}

fn lost(ended: Tenure, report: Option<Box<Report>>) -> ExtendError {
    let reason = match ended {
        Tenure::Lost(reason) => reason,
        // A release consumes the lease, so nobody can ask then.
        Tenure::Held { .. } | Tenure::Released => Loss::Expired,
    };
    ExtendError::Lost { reason, report }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Lease");
        debug.field("resource", &String::from_utf8_lossy(self.resource()));
        debug.field("value", self.hold.claim().value());
        debug.field("validity", &self.validity()).finish_non_exhaustive()
    }
}
