//! A view of a lease that does not keep it.

use crate::clock;
use crate::error::{ExtendError, ReenterError};
use crate::holding::Holding;
use crate::lease::Lease;
use crate::protocol::{Extended, Loss, Tenure};
use crate::report::Report;
use crate::tally::Tally;
use crate::token::FencingToken;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A view of a [`Lease`], which dereferences to it: what it is, how long it is valid, whether it was
/// lost. It can be cloned and moved to other tasks; the lock ends with its guards all the same.
#[derive(Clone)]
pub struct LeaseRef {
    holding: Arc<Holding>,
    won: Arc<Tally>,
}

impl LeaseRef {
    pub(crate) fn new(holding: Arc<Holding>, won: Arc<Tally>) -> Self {
        Self { holding, won }
    }

    pub(crate) fn holding(&self) -> &Arc<Holding> {
        &self.holding
    }

    /// What is locked, without the key prefix; the first of several.
    pub fn resource(&self) -> &[u8] {
        self.holding.client().resource(self.holding.claim().keys().first())
    }

    /// All that is locked by this one lease, sorted, without the key prefix: one resource, or those
    /// given to [`acquire_all`](crate::Redlock::acquire_all).
    pub fn resources(&self) -> impl Iterator<Item = &[u8]> {
        self.holding.claim().keys().iter().map(|key| self.holding.client().resource(key))
    }

    /// The fencing token, if it was acquired with one: see [`Acquire::fenced`](crate::Acquire::fenced).
    /// It stays the same when the lease is extended.
    pub fn token(&self) -> Option<FencingToken> {
        self.holding.claim().fence()?.token().map(FencingToken::new)
    }

    /// The random value that stands under the key, with the metadata if there is some: whoever knows
    /// it can release the lock, or [adopt](crate::Redlock::adopt) it. It is the one place where it is
    /// shown whole.
    pub fn value(&self) -> &str {
        self.holding.claim().value().as_str()
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

    /// Why the lease ended, if it has and was not released by its holder.
    pub fn loss(&self) -> Option<Loss> {
        match self.holding.tenure() {
            Tenure::Lost(loss) => Some(loss),
            Tenure::Held { .. } | Tenure::Released => None,
        }
    }

    /// What each node said to the attempt that won. Answers that came after the decision are in it.
    pub fn report(&self) -> Report {
        self.won.report(self.holding.nodes().names().cloned())
    }

    /// How many guards the lease has; see [`reenter`](Self::reenter). Zero once it was released.
    pub fn guards(&self) -> usize {
        self.holding.guards()
    }

    /// Locks again what this lease holds: another guard of the same lease, with the same validity.
    /// The lock is released with the last of its guards; each [`release`](Lease::release) before says
    /// [`StillHeld`](crate::ReleaseOutcome::StillHeld). Does no I/O.
    ///
    /// This is for code that is called with and without the lock held. An
    /// [`acquire`](crate::Redlock::acquire) of the same resource, by any task, stands in line behind
    /// this lease.
    ///
    /// # Errors
    /// [`Lost`](ReenterError::Lost) or [`Released`](ReenterError::Released): it is not held any more.
    pub fn reenter(&self) -> Result<Lease, ReenterError> {
        match self.holding.tenure() {
            Tenure::Held { .. } => {}
            Tenure::Lost(reason) => return Err(ReenterError::Lost { reason }),
            Tenure::Released => return Err(ReenterError::Released),
        }
        self.holding.enter().ok_or(ReenterError::Released)?;
        Ok(Lease::guard(self.clone()))
    }

    /// Lets the lock stand for `ttl` from now on; never shortens it. Nodes that do not answer are
    /// told again when they do. Nodes that lost the key get it back once a majority has confirmed
    /// that it holds it; if a majority has lost it, nothing is set anew.
    ///
    /// Takes at most one node timeout.
    ///
    /// # Errors
    /// [`NoQuorum`](ExtendError::NoQuorum): nothing has changed, the lease is held for as long as
    /// before. [`Lost`](ExtendError::Lost) or [`Released`](ExtendError::Released): it has ended.
    /// [`Invalid`](ExtendError::Invalid): the ttl cannot work.
    ///
    /// # Cancel safety
    /// If the future is dropped, nodes may keep the lock for longer, but the lease does not count on
    /// it. It stays as it was.
    pub async fn extend(&self, ttl: Duration) -> Result<(), ExtendError> {
        let ttl = self.holding.client().settings.check_ttl(ttl)?;
        let begun = self.holding.extend(ttl);
        let extension = begun.map_err(|ended| refusal(ended, None))?;
        let (tally, nodes) = (&extension.tally, self.holding.nodes());
        tally.decided(&nodes, extension.close_at).await;
        let report = || Box::new(tally.report(nodes.names().cloned()));
        match self.holding.settle(&extension) {
            Extended::Until(_) => Ok(()),
            Extended::Unchanged(until) => Err(ExtendError::NoQuorum {
                still_valid_for: until.since(clock::now()),
                report: report(),
            }),
            Extended::Ended(ended) => Err(refusal(ended, Some(report()))),
        }
    }

    /// Resolves when the lease is lost, with the reason, and not later than its validity ends,
    /// whatever the nodes do; never if its holder releases it. Meant for `select!`:
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
    /// A lock that somebody else takes away is noticed by the next renewal; where nodes push (client
    /// tracking), a lease with [`auto_extend`](crate::Acquire::auto_extend) is told at once.
    ///
    /// # Cancel safety
    /// The future can be dropped and made anew at any time.
    pub async fn lost(&self) -> Loss {
        self.holding.lost().await
    }
}

fn refusal(ended: Tenure, report: Option<Box<Report>>) -> ExtendError {
    match ended {
        Tenure::Lost(reason) => ExtendError::Lost { reason, report },
        Tenure::Held { .. } | Tenure::Released => ExtendError::Released,
    }
}

impl fmt::Debug for LeaseRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resources = self.resources().map(String::from_utf8_lossy).collect::<Vec<_>>();
        let mut debug = f.debug_struct("Lease");
        debug.field("resource", &resources.join(", "));
        debug.field("value", self.holding.claim().value());
        debug.field("validity", &self.validity()).finish_non_exhaustive()
    }
}
