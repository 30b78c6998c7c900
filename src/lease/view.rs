//! A view of a lease that does not keep it.

use super::backing::Backing;
use super::ending::Ended;
use super::observed::ExtendWatch;
use super::state::LeaseState;
use crate::error::{ExtendError, ReenterError};
use crate::lease::Lease;
use crate::node::Nodes;
use crate::observe::{FencingToken, Report};
use crate::protocol::{Extended, Loss, Tenure, Ttl};
use crate::round::Tally;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A view of a [`Lease`], which dereferences to it: what it is, how long it is valid, whether it was
/// lost. It can be cloned and moved to other tasks; the lock ends with its guards all the same.
#[derive(Clone)]
pub struct LeaseRef {
    state: Arc<LeaseState>,
    won: Arc<Tally>,
    /// When so much is left, the work under it has to stop.
    pub(crate) margin: Duration,
}

impl LeaseRef {
    pub(crate) fn new(state: Arc<LeaseState>, won: Arc<Tally>) -> Self {
        Self { state, won, margin: Duration::ZERO }
    }

    pub(crate) fn state(&self) -> &Arc<LeaseState> {
        &self.state
    }

    /// What is locked, without the key prefix; the first of several.
    pub fn resource(&self) -> &[u8] {
        self.state.resources().next().unwrap_or_default()
    }

    /// All that is locked by this one lease, sorted, without the key prefix: one resource, or those
    /// given to [`acquire_all`](crate::Redlock::acquire_all).
    pub fn resources(&self) -> impl Iterator<Item = &[u8]> {
        self.state.resources()
    }

    /// The fencing token, if it was acquired with one: see [`Acquire::fenced`](crate::Acquire::fenced).
    /// It stays the same when the lease is extended.
    pub fn token(&self) -> Option<FencingToken> {
        self.state.claim().fence()?.token().map(FencingToken::new)
    }

    /// The random value that stands under the key, or all keys of the lease: 32 hex digits; then, if
    /// there are several keys, `+` and their number; then, if there is metadata, `:` and that. Whoever
    /// knows it can release the lock, or [adopt](crate::Redlock::adopt) it, unless it has several keys.
    /// It is the one place where it is shown whole.
    pub fn value(&self) -> &str {
        self.state.claim().value().as_str()
    }

    /// How long the lease is still valid: T1 + ttl - drift, less the time since T1, where T1 is
    /// when the first command was about to be sent. Zero once it has ended. Does no I/O.
    pub fn validity(&self) -> Duration {
        self.state.validity(self.state.now())
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
        matches!(self.state.tenure(), Tenure::Held { .. })
    }

    /// Why the lease ended, if it has and was not released by its holder.
    pub fn loss(&self) -> Option<Loss> {
        match self.state.tenure() {
            Tenure::Lost(loss) => Some(loss),
            Tenure::Held { .. } | Tenure::Released => None,
        }
    }

    /// What each node said to the attempt that won. Answers that came after the decision are in it.
    pub fn report(&self) -> Report {
        self.won.report(self.state.names())
    }

    /// How many guards the lease has; see [`reenter`](Self::reenter). Zero once it was released.
    pub fn guards(&self) -> usize {
        self.state.guards()
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
        match self.state.tenure() {
            Tenure::Held { .. } => {}
            Tenure::Lost(reason) => return Err(ReenterError::Lost { reason }),
            Tenure::Released => return Err(ReenterError::Released),
        }
        self.state.enter().ok_or(ReenterError::Released)?;
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
        let ttl = self.access()?.0.limits.check_ttl(ttl)?;
        self.extend_to(ttl, Duration::ZERO).await
    }

    /// Sees to it that at least `validity` is left when it returns: does no I/O if that is so, and else
    /// extends the lease, once. It is then extended for as long as it was acquired for, or longer if
    /// that takes it. For work in steps of known length:
    ///
    /// ```
    /// # #[cfg(feature = "test-util")]
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let nodes = quorlock::test_util::Nodes::start(3);
    /// # let redlock = nodes.client().build()?;
    /// # let import = async |_: u32| tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    /// # let lease = redlock.acquire("orders/42").await?;
    /// for batch in 0..100 {
    ///     lease.ensure(std::time::Duration::from_secs(5)).await?;
    ///     import(batch).await;
    /// }
    /// # assert!(lease.is_valid());
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "test-util"))]
    /// # fn main() {}
    /// ```
    ///
    /// Takes at most one node timeout.
    ///
    /// # Errors
    /// [`NoQuorum`](ExtendError::NoQuorum): too few nodes confirmed, or so late that less than that is
    /// left; the lease is held for as long as the error says. [`Lost`](ExtendError::Lost) or
    /// [`Released`](ExtendError::Released): it has ended. [`Invalid`](ExtendError::Invalid): no ttl up
    /// to the [`max_ttl`](crate::Builder::max_ttl) gives so much.
    ///
    /// # Cancel safety
    /// That of [`extend`](Self::extend).
    pub async fn ensure(&self, validity: Duration) -> Result<(), ExtendError> {
        let (backing, _) = self.access()?;
        if self.validity() >= validity {
            // It may have ended since it was looked at, if nothing is asked for.
            return self.access().map(drop);
        }
        let ttl = backing.limits.ttl_for(validity)?.max(self.state.ttl());
        drop(backing);
        self.extend_to(ttl, validity).await
    }

    /// What an extension takes, if it is still held.
    fn access(&self) -> Result<(Arc<Backing>, Arc<Nodes>), ExtendError> {
        match self.state.tenure() {
            Tenure::Held { .. } => self.state.access().ok_or(ExtendError::Released),
            ended => Err(refusal(ended, None)),
        }
    }

    /// Extends it once, so that at least `least` is left then.
    async fn extend_to(&self, ttl: Ttl, least: Duration) -> Result<(), ExtendError> {
        let (_backing, nodes) = self.access()?;
        let begun = self.state.extend(ttl);
        let extension = begun.map_err(|ended| refusal(ended, None))?;
        let tally = &extension.tally;
        let watch = ExtendWatch::begin(&self.state, ttl);
        tally.decided(&nodes, extension.close_at).await;
        let report = || Box::new(tally.report(nodes.names().cloned()));
        let extended = self.state.settle(&extension);
        watch.end(extended, tally);
        match extended {
            Extended::Until(until) | Extended::Unchanged(until) => {
                let still_valid_for = until.since(self.state.now());
                if matches!(extended, Extended::Until(_)) && still_valid_for >= least {
                    return Ok(());
                }
                Err(ExtendError::NoQuorum { still_valid_for, report: report() })
            }
            Extended::Ended(ended) => Err(refusal(ended, Some(report()))),
        }
    }

    /// Resolves when the lease is lost, with the reason, and not later than its validity ends,
    /// whatever the nodes do. **It never resolves if its holder releases it**: a task of its own that
    /// waits for the loss would then wait for ever, and is better made with [`ended`](Self::ended).
    /// Meant for `select!`:
    ///
    /// ```
    /// # async fn work() {
    /// #     tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    /// #     unreachable!("the lease ends before");
    /// # }
    /// # #[cfg(feature = "test-util")]
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let nodes = quorlock::test_util::Nodes::start(3);
    /// # let redlock = nodes.client().build()?;
    /// # let lease = redlock.acquire("orders/42").await?;
    /// tokio::select! {
    ///     () = work() => println!("done, and ours to the end"),
    ///     why = lease.lost() => println!("stopped: {why}"),
    /// }
    /// # assert!(!lease.is_valid());
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "test-util"))]
    /// # fn main() {}
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
        self.state.lost().await
    }

    /// Resolves when the lease has ended, in whatever way: lost, as [`lost`](Self::lost) tells it; or
    /// released, at once when its last guard is released or dropped. For tasks that watch a lease, and
    /// are to end with it:
    ///
    /// ```
    /// # use std::sync::atomic::{AtomicBool, Ordering};
    /// # static STOPPED: AtomicBool = AtomicBool::new(false);
    /// # fn stop_the_work() {
    /// #     STOPPED.store(true, Ordering::Relaxed);
    /// # }
    /// # #[cfg(feature = "test-util")]
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let nodes = quorlock::test_util::Nodes::start(3);
    /// # let redlock = nodes.client().build()?;
    /// # let lease = redlock.acquire("orders/42").await?;
    /// let view = lease.view();
    /// # let watching =
    /// tokio::spawn(async move {
    ///     if let quorlock::Ended::Lost(why) = view.ended().await {
    ///         eprintln!("{why}");
    ///         stop_the_work();
    ///     }
    /// });
    /// # watching.await?;
    /// # assert!(STOPPED.load(Ordering::Relaxed));
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "test-util"))]
    /// # fn main() {}
    /// ```
    ///
    /// # Cancel safety
    /// The future can be dropped and made anew at any time.
    pub async fn ended(&self) -> Ended {
        self.state.ended().await
    }

    /// Resolves when no more than `margin` of the validity is left and no renewal has come through; at
    /// once if that is so already. Returns what is left, zero if the lease has ended, also by its
    /// release. It leaves the time to stop work in order, which [`lost`](Self::lost) does not.
    ///
    /// A lease with [`auto_extend`](crate::Acquire::auto_extend) is renewed when a third of its validity
    /// has passed, and again until it succeeds: a margin of a third says that the nodes have failed for
    /// a while. Two thirds and more resolve before each renewal.
    ///
    /// It is told by the same thread as a loss, also while other tasks block the runtime's timers.
    ///
    /// # Cancel safety
    /// The future can be dropped and made anew at any time.
    pub async fn endangered(&self, margin: Duration) -> Duration {
        self.state.endangered(margin).await
    }

    /// Resolves when the work under this lease has to stop: when less is left of the validity than was
    /// given to [`stop_before`](crate::Acquire::stop_before), and no renewal has come through; without that, when
    /// the lease has ended. Returns what is left. See [`endangered`](Self::endangered).
    ///
    /// # Cancel safety
    /// The future can be dropped and made anew at any time.
    pub async fn stopping(&self) -> Duration {
        self.endangered(self.margin).await
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
        debug.field("value", self.state.claim().value());
        debug.field("validity", &self.validity()).finish_non_exhaustive()
    }
}
