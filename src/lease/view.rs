//! [`LeaseRef`]: a view of a lease that does not keep the lock.

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

/// A view of a [`Lease`]: its resources, value, validity, loss and extension. `Lease` dereferences
/// to it.
///
/// A view can be cloned and moved to other tasks. It does not keep the lock: when the last `Lease`
/// is released or dropped, the lock is released, even if views remain.
#[derive(Clone)]
pub struct LeaseRef {
    state: Arc<LeaseState>,
    won: Arc<Tally>,
    /// Remaining validity at which [`stopping`](Self::stopping) resolves.
    pub(crate) margin: Duration,
}

impl LeaseRef {
    pub(crate) fn new(state: Arc<LeaseState>, won: Arc<Tally>) -> Self {
        Self { state, won, margin: Duration::ZERO }
    }

    pub(crate) fn state(&self) -> &Arc<LeaseState> {
        &self.state
    }

    /// The name of the locked resource, without the key prefix. If the lease has several resources,
    /// the first of [`resources`](Self::resources).
    pub fn resource(&self) -> &[u8] {
        self.state.resources().next().unwrap_or_default()
    }

    /// The names of all resources of this lease, sorted, without the key prefix. Only
    /// [`acquire_all`](crate::Redlock::acquire_all) gives a lease more than one.
    pub fn resources(&self) -> impl Iterator<Item = &[u8]> {
        self.state.resources()
    }

    /// The fencing token, if the lock was acquired with
    /// [`Acquire::fenced`](crate::Acquire::fenced). Extensions do not change it.
    pub fn token(&self) -> Option<FencingToken> {
        self.state.claim().fence()?.token().map(FencingToken::new)
    }

    /// The random value stored under each key of the lease. It consists of 32 hex digits, then `+`
    /// and the number of keys if there are several, then `:` and the metadata if there is any.
    ///
    /// Treat it as a secret: any client that knows it can release the lock. Such a client can also
    /// [adopt](crate::Redlock::adopt) the lock if the lease has a single key. Only this method
    /// returns the full value.
    pub fn value(&self) -> &str {
        self.state.claim().value().as_str()
    }

    /// Remaining validity of the lease: T1 + ttl - drift - now. T1 is the time just before the
    /// first command was sent. Zero once the lease has ended. Does no I/O.
    pub fn validity(&self) -> Duration {
        self.state.validity(self.state.now())
    }

    /// The end of the validity as an [`Instant`], or the current time if the lease has ended. Does
    /// no I/O.
    ///
    /// On Linux, `Instant` does not advance while the machine is suspended, but the nodes' clocks
    /// do. An instant that was computed before a suspension is therefore too late.
    /// [`is_valid`](Self::is_valid) and [`validity`](Self::validity) include suspended time.
    pub fn valid_until(&self) -> Instant {
        let now = Instant::now();
        // The sum overflows only for leases of centuries.
        now.checked_add(self.validity()).unwrap_or(now)
    }

    /// Returns true while the holder may rely on the lock. Returns false from the end of the
    /// validity on, regardless of the nodes. Does no I/O.
    pub fn is_valid(&self) -> bool {
        matches!(self.state.tenure(), Tenure::Held { .. })
    }

    /// The reason why the lease was lost. `None` while it is held, and if its holder
    /// released it before a loss.
    pub fn loss(&self) -> Option<Loss> {
        match self.state.tenure() {
            Tenure::Lost(loss) => Some(loss),
            Tenure::Held { .. } | Tenure::Released => None,
        }
    }

    /// The reply of each node to the attempt that acquired the lock, including replies that arrived
    /// after the quorum was reached.
    pub fn report(&self) -> Report {
        self.won.report(self.state.names())
    }

    /// Number of guards of this lease; see [`reenter`](Self::reenter). Zero once it has been
    /// released.
    pub fn guards(&self) -> usize {
        self.state.guards()
    }

    /// Creates another guard of the same lease, with the same validity. The lock is released with
    /// the last guard. Each earlier [`release`](Lease::release) returns
    /// [`StillHeld`](crate::ReleaseOutcome::StillHeld). Does no I/O.
    ///
    /// Use this in code that is called both with and without the lock held.
    /// [`acquire`](crate::Redlock::acquire) is not reentrant: for the same resource it waits until
    /// this lease has ended, even in the same task.
    ///
    /// # Errors
    /// [`Lost`](ReenterError::Lost) or [`Released`](ReenterError::Released) if the lease has ended.
    pub fn reenter(&self) -> Result<Lease, ReenterError> {
        match self.state.tenure() {
            Tenure::Held { .. } => {}
            Tenure::Lost(reason) => return Err(ReenterError::Lost { reason }),
            Tenure::Released => return Err(ReenterError::Released),
        }
        self.state.enter().ok_or(ReenterError::Released)?;
        Ok(Lease::guard(self.clone()))
    }

    /// Extends the lock so that its keys expire `ttl` from now. Never shortens it.
    ///
    /// An unresponsive node receives the extension once it responds again. A node that has lost the
    /// key gets it back after a majority has confirmed that it holds the key. If a majority has
    /// lost the key, it is not set again.
    ///
    /// Takes at most one node timeout.
    ///
    /// # Errors
    /// - [`NoQuorum`](ExtendError::NoQuorum): too few nodes confirmed. The validity is unchanged.
    /// - [`Lost`](ExtendError::Lost) or [`Released`](ExtendError::Released): the lease has ended.
    /// - [`Invalid`](ExtendError::Invalid): the `ttl` conflicts with the client's settings.
    ///
    /// # Cancel safety
    /// If the future is dropped, nodes may keep the lock for longer, but the lease's validity does
    /// not change.
    pub async fn extend(&self, ttl: Duration) -> Result<(), ExtendError> {
        let ttl = self.access()?.0.limits.check_ttl(ttl)?;
        self.extend_to(ttl, Duration::ZERO).await
    }

    /// Ensures that at least `validity` remains on return. If it does already, no I/O is done.
    /// Otherwise the lease is extended once, to the ttl that it was acquired with or to a longer
    /// one if `validity` requires it.
    ///
    /// For work in steps of known length:
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
    /// - [`NoQuorum`](ExtendError::NoQuorum): too few nodes confirmed, or so late that less than
    ///   `validity` remains. The error contains the remaining validity.
    /// - [`Lost`](ExtendError::Lost) or [`Released`](ExtendError::Released): the lease has ended.
    /// - [`Invalid`](ExtendError::Invalid): `validity` requires a ttl above
    ///   [`max_ttl`](crate::Builder::max_ttl).
    ///
    /// # Cancel safety
    /// As for [`extend`](Self::extend).
    pub async fn ensure(&self, validity: Duration) -> Result<(), ExtendError> {
        let (backing, _) = self.access()?;
        if self.validity() >= validity {
            // With a `validity` of zero, the lease may already have ended: check that it is still
            // held.
            return self.access().map(drop);
        }
        let ttl = backing.limits.ttl_for(validity)?.max(self.state.ttl());
        drop(backing);
        self.extend_to(ttl, validity).await
    }

    fn access(&self) -> Result<(Arc<Backing>, Arc<Nodes>), ExtendError> {
        match self.state.tenure() {
            Tenure::Held { .. } => self.state.access().ok_or(ExtendError::Released),
            ended => Err(refusal(ended, None)),
        }
    }

    async fn extend_to(&self, ttl: Ttl, least: Duration) -> Result<(), ExtendError> {
        let (_backing, nodes) = self.access()?;
        let begun = self.state.extend(ttl);
        let extension = begun.map_err(|ended| refusal(ended, None))?;
        let tally = &extension.tally;
        let watch = ExtendWatch::start(&self.state, ttl);
        tally.decided(&nodes, extension.close_at).await;
        let report = || Box::new(tally.report(nodes.names().cloned()));
        let extended = self.state.settle(&extension);
        watch.finish(extended, tally);
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

    /// Resolves with the reason when the lease is lost, at the latest when its validity ends,
    /// regardless of the nodes.
    ///
    /// **It never resolves if the holder releases the lease.** A separate task that watches a lease
    /// should wait for [`ended`](Self::ended) instead. Intended for `select!`:
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
    /// A dedicated thread wakes the future, 2 ms before the validity ends. A blocked runtime
    /// therefore does not delay the notification, but a task on a blocked current-thread runtime
    /// cannot run to receive it. After the machine was suspended, the future is woken when the
    /// process runs again; [`is_valid`](Self::is_valid) is correct at once.
    ///
    /// If another client deletes or replaces the key, the next renewal notices. If the nodes
    /// support client tracking, a lease with [`auto_extend`](crate::Acquire::auto_extend) is
    /// notified immediately.
    ///
    /// # Cancel safety
    /// The future can be dropped and recreated at any time.
    pub async fn lost(&self) -> Loss {
        self.state.lost().await
    }

    /// Resolves when the lease has ended: when it is lost, under the conditions of
    /// [`lost`](Self::lost), or as soon as its last guard is released or dropped. For tasks that
    /// watch a lease and should end with it:
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
    /// The future can be dropped and recreated at any time.
    pub async fn ended(&self) -> Ended {
        self.state.ended().await
    }

    /// Resolves with the remaining validity once it is at most `margin`, or at once if it already
    /// is. Resolves with zero if the lease has ended, including by its release. A successful
    /// renewal before that restarts the wait. Unlike [`lost`](Self::lost), it leaves time to stop
    /// work in an orderly way.
    ///
    /// A lease with [`auto_extend`](crate::Acquire::auto_extend) is renewed when a third of its
    /// validity has passed, and retried until a renewal succeeds. A margin of one third therefore
    /// signals that renewals have failed for some time. With a margin of two thirds or more, the
    /// future resolves before each renewal.
    ///
    /// As for [`lost`](Self::lost), a dedicated thread wakes the future, so a blocked runtime does
    /// not delay the notification.
    ///
    /// # Cancel safety
    /// The future can be dropped and recreated at any time.
    pub async fn endangered(&self, margin: Duration) -> Duration {
        self.state.endangered(margin).await
    }

    /// Resolves with the remaining validity when the work under this lease has to stop: once it is
    /// at most the margin that was set with [`stop_before`](crate::Acquire::stop_before), or when
    /// the lease has ended if no margin was set. See [`endangered`](Self::endangered).
    ///
    /// # Cancel safety
    /// The future can be dropped and recreated at any time.
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
