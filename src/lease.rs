//! A lock with an end.

use crate::clock;
use crate::driver::Win;
use crate::error::{ExtendError, ReleaseError};
use crate::hold::Hold;
use crate::holding::Holding;
use crate::node::Ballot;
use crate::protocol::{Extended, Goal, Loss, Outcome, Renewal, Round, Tenure, Ttl};
use crate::redlock::Inner;
use crate::report::Report;
use crate::tally::Tally;
use std::fmt;
use std::sync::Arc;
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
    hold: Hold,
    holding: Arc<Holding>,
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
    pub(crate) fn new(client: Arc<Inner>, win: Win, upkeep: Option<(Ttl, Duration)>) -> Self {
        let Win { hold, valid_until, tally } = win;
        let driver = &client.driver;
        let renewal = Renewal::new(driver.quorum, driver.drift, valid_until);
        let (claim, nodes) = (hold.claim().clone(), hold.nodes().clone());
        let holding = match upkeep {
            None => Holding::new(client, claim, nodes, renewal),
            Some((ttl, most)) => {
                let renewal = renewal.kept_up(ttl, tally.t1(), most);
                let holding = Holding::new(client, claim, nodes, renewal);
                holding.watch();
                holding
            }
        };
        Self { hold, holding, won: tally }
    }

    /// What is locked, without the key prefix.
    pub fn resource(&self) -> &[u8] {
        let prefix = self.holding.client().settings.prefix.len();
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
        let until = self.holding.renewal().valid_until(now);
        until.map_or(Duration::ZERO, |until| until.since(now))
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
        matches!(self.holding.tenure(), Tenure::Held { .. })
    }

    /// Why the lease ended, if it has.
    pub fn loss(&self) -> Option<Loss> {
        match self.holding.tenure() {
            Tenure::Lost(loss) => Some(loss),
            Tenure::Held { .. } | Tenure::Released => None,
        }
    }

    /// What each node said to the attempt that won. Answers that came after the decision are in it.
    pub fn report(&self) -> Report {
        self.won.report(self.hold.nodes().names().cloned())
    }

    /// Lets the lock stand for `ttl` from now on; never shortens it. Nodes that do not answer are
    /// told again when they do. Nodes that lost the key get it back once a majority has confirmed
    /// that it holds it; if a majority has lost it, nothing is set anew.
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
        let ttl = self.holding.client().settings.check_ttl(ttl)?;
        let begun = self.holding.extend(ttl, false);
        let extension = begun.map_err(|ended| lost(ended, None))?;
        let (tally, nodes) = (&extension.tally, self.holding.nodes());
        tally.decided(&nodes, extension.close_at).await;
        let report = || Box::new(tally.report(nodes.names().cloned()));
        match self.holding.settle(&extension) {
            Extended::Until(_) => Ok(()),
            Extended::Unchanged(until) => Err(ExtendError::NoQuorum {
                still_valid_for: until.since(clock::now()),
                report: report(),
            }),
            Extended::Ended(ended) => Err(lost(ended, Some(report()))),
        }
    }

    /// Resolves when the lease is lost, with the reason, and not later than its validity ends,
    /// whatever the nodes do; never if it is released. Meant for `select!`:
    ///
    /// ```no_run
    /// # async fn work() {}
    /// # async fn example(lease: quorlock::Lease) {
    /// tokio::select! {
    ///     () = work() => println!("done, and ours to the end"),
    ///     why = lease.lost() => println!("stopped: {why}"),
    /// }
    /// # }
    /// ```
    ///
    /// It is told by a thread of its own, 2 ms early, so also while other tasks block the runtime's
    /// timers; but nothing can be told to a task that cannot run, for example on a blocked
    /// current-thread runtime. After the machine slept it is told when the process next runs. Then
    /// [`is_valid`](Self::is_valid) is right at once.
    ///
    /// # Cancel safety
    /// The future can be dropped and made anew at any time.
    pub async fn lost(&self) -> Loss {
        self.holding.lost().await
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
        let driver = &self.holding.client().driver;
        let nodes = self.holding.nodes();
        let t1 = clock::now();
        self.holding.release();
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
