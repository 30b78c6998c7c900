//! [`LeaseRef`]: a view of a lease that does not keep the lock held.

use super::ending::Ended;
use super::limits::Limits;
use super::state::LeaseState;
use crate::error::{DowngradeError, ExtendError, ReenterError};
use crate::lease::Lease;
use crate::observe::{FencingToken, Report};
use crate::protocol::{Extended, LeaseStatus, Loss, Ttl};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A view of a [`Lease`], with access to the lease's resources, value, validity and loss. A view
/// can also extend the lease. `Lease` dereferences to this type.
///
/// A view can be cloned and moved to other tasks. Views do not keep the lock held: when the last
/// `Lease` is released or dropped, the lock is released, even if views remain.
///
/// Four methods wait for the end of a lease:
///
/// | method | resolves when | use it in |
/// |---|---|---|
/// | [`lost`](Self::lost) | the lease is lost; never after a release | work that must stop immediately |
/// | [`ended`](Self::ended) | the lease is lost or released | tasks that watch a lease |
/// | [`endangered`](Self::endangered) | the remaining validity falls to a margin | work that needs time to stop |
/// | [`stopping`](Self::stopping) | the remaining validity falls to the margin of [`stop_before`](crate::Acquire::stop_before) | closures that are passed to [`using`](crate::Redlock::using) |
#[derive(Clone)]
pub struct LeaseRef {
    state: Arc<LeaseState>,
    /// Remaining validity at which [`stopping`](Self::stopping) resolves.
    pub(crate) margin: Duration,
}

impl LeaseRef {
    pub(crate) fn new(state: Arc<LeaseState>) -> Self {
        Self { state, margin: Duration::ZERO }
    }

    pub(crate) fn state(&self) -> &Arc<LeaseState> {
        &self.state
    }

    /// Returns the name of the locked resource, without the key prefix. If the lease has several
    /// resources, returns the first of [`resources`](Self::resources).
    pub fn resource(&self) -> &[u8] {
        self.state.resources().next().unwrap_or_default()
    }

    /// Returns the names of all resources of this lease, sorted and without the key prefix. Only
    /// leases from [`acquire_all`](crate::Redlock::acquire_all) can have more than one resource.
    pub fn resources(&self) -> impl Iterator<Item = &[u8]> {
        self.state.resources()
    }

    /// Returns the fencing token of the lease. Returns `None` if the lock was acquired without a
    /// token; see [`Acquire::fenced`](crate::Acquire::fenced). Extensions do not change the token.
    pub fn token(&self) -> Option<FencingToken> {
        self.state.claim().fence()?.token().map(FencingToken::new)
    }

    /// Returns the random value that is stored under each key of the lease. The value begins with
    /// 32 hex digits. If the lease has several keys, `+` and the number of keys follow. If the
    /// lease has metadata, `:` and the metadata follow.
    ///
    /// Treat the value as a secret: any client that knows it can release the lock. If the lease has
    /// a single key, such a client can also [adopt](crate::Redlock::adopt) the lock. No other
    /// method returns the full value.
    pub fn value(&self) -> &str {
        self.state.claim().value().as_str()
    }

    /// Returns the remaining validity of the lease: T1 + TTL - drift - now. T1 is the time just
    /// before the client sent the first command of the acquire or extension that determines the
    /// validity. Returns zero once the lease has ended. Does no I/O.
    pub fn validity(&self) -> Duration {
        self.state.validity(self.state.now())
    }

    /// Returns the end of the validity as an [`Instant`], or the current time if the lease has
    /// ended. Does no I/O.
    ///
    /// On Linux, `Instant` does not advance while the machine is suspended, but the nodes' clocks
    /// do. An instant that was computed before a suspension is therefore too late.
    /// [`is_valid`](Self::is_valid) and [`validity`](Self::validity) take suspended time into
    /// account.
    pub fn valid_until(&self) -> Instant {
        let now = Instant::now();
        // The sum overflows only if the validity is centuries long.
        now.checked_add(self.validity()).unwrap_or(now)
    }

    /// Returns true while the holder may rely on the lock. Returns false once the lease has ended,
    /// at the latest when its validity ends. The client's clock determines the end of the validity,
    /// even if no node can be reached. Does no I/O.
    ///
    /// If a virtual machine is paused or restored from a snapshot, its clock does not count the pause. The lease can
    /// then seem valid until the client has read a node's reply. Call [`extend`](Self::extend), which asks the nodes,
    /// before a step that cannot be undone.
    pub fn is_valid(&self) -> bool {
        matches!(self.state.status(), LeaseStatus::Held { .. })
    }

    /// Returns the reason why the lease was lost. Returns `None` if the lease is still held, or was
    /// released before it was lost.
    pub fn loss(&self) -> Option<Loss> {
        match self.state.status() {
            LeaseStatus::Lost(loss) => Some(loss),
            LeaseStatus::Held { .. } | LeaseStatus::Released => None,
        }
    }

    /// Returns the nodes' replies to the attempt that acquired the lock, including replies that
    /// arrived after the quorum was reached.
    pub fn report(&self) -> Report {
        self.state.report()
    }

    /// Returns the number of guards of this lease; see [`reenter`](Self::reenter). Returns zero
    /// once the last guard has been released or dropped.
    pub fn guards(&self) -> usize {
        self.state.guards()
    }

    /// Creates another guard of the same lease, with the same validity. Releasing or dropping the
    /// last guard releases the lock. If other guards remain, [`release`](Lease::release) returns
    /// [`StillHeld`](crate::ReleaseOutcome::StillHeld). Does no I/O.
    ///
    /// Use this in code that is called both with and without the lock held.
    /// [`acquire`](crate::Redlock::acquire) is not reentrant: for the same resource, it waits until
    /// this lease has ended, even in the same task.
    ///
    /// # Errors
    /// Returns [`Lost`](ReenterError::Lost) or [`Released`](ReenterError::Released) if the lease
    /// has ended.
    pub fn reenter(&self) -> Result<Lease, ReenterError> {
        match self.state.status() {
            LeaseStatus::Held { .. } => {}
            LeaseStatus::Lost(reason) => return Err(ReenterError::Lost { reason }),
            LeaseStatus::Released => return Err(ReenterError::Released),
        }
        self.state.enter().ok_or(ReenterError::Released)?;
        Ok(Lease::guard(self.clone()))
    }

    /// Extends the lease, so that its keys expire `ttl` from now. An extension never shortens the
    /// lease.
    ///
    /// An unresponsive node receives the extension once it responds again. If a node has lost the
    /// key, the client restores the key after a majority of nodes has confirmed that they still
    /// hold it. If a majority has lost the key, the client does not restore it.
    ///
    /// Takes at most one node timeout, or two if the runtime that delivers the extension is shut down
    /// during the call.
    ///
    /// # Errors
    /// - [`NoQuorum`](ExtendError::NoQuorum): too few nodes confirmed the extension. The validity
    ///   is unchanged.
    /// - [`Lost`](ExtendError::Lost) or [`Released`](ExtendError::Released): the lease has ended.
    /// - [`Invalid`](ExtendError::Invalid): the `ttl` conflicts with the client's settings.
    ///
    /// # Cancel safety
    /// If the future is dropped, nodes may keep the lock for longer, but the validity of the lease
    /// does not change.
    pub async fn extend(&self, ttl: Duration) -> Result<(), ExtendError> {
        let ttl = self.limits()?.check_ttl(ttl)?;
        self.extend_to(Some(ttl), Duration::ZERO).await
    }

    /// Ensures that at least `validity` remains when the call returns. If enough validity remains
    /// already, the call does no I/O. Otherwise the call extends the lease once, to the TTL with
    /// which the lease was acquired, or to a longer TTL if `validity` requires one.
    ///
    /// Use it for work that consists of steps of known duration:
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let nodes = quorlock_test::Nodes::start(3);
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
    /// ```
    ///
    /// Takes at most one node timeout, or two if the runtime that delivers the extension is shut down
    /// during the call.
    ///
    /// # Errors
    /// - [`NoQuorum`](ExtendError::NoQuorum): too few nodes confirmed the extension, or they
    ///   confirmed it so late that less than `validity` remains. The error contains the remaining
    ///   validity.
    /// - [`Lost`](ExtendError::Lost) or [`Released`](ExtendError::Released): the lease has ended.
    /// - [`Invalid`](ExtendError::Invalid): `validity` requires a TTL above
    ///   [`max_ttl`](crate::Builder::max_ttl).
    ///
    /// # Cancel safety
    /// See [`extend`](Self::extend).
    pub async fn ensure(&self, validity: Duration) -> Result<(), ExtendError> {
        let limits = self.limits()?;
        if self.validity() >= validity {
            // If `validity` is zero, the lease may already have ended: check that it is still held.
            return self.limits().map(drop);
        }
        let ttl = limits.ttl_for(validity)?.max(self.state.ttl());
        self.extend_to(Some(ttl), validity).await
    }

    /// Makes the lease of a [writer](crate::RwLock::write) the lease of a reader, so that other readers can acquire the
    /// lock. No writer can acquire the lock in between. The validity is unchanged, and later extensions extend the
    /// lease of the reader.
    ///
    /// After the first poll, the lease is a reader's lease, even if nodes do not reply or the future is
    /// dropped. On nodes that have not executed the downgrade, other readers must wait. Takes at most
    /// one node timeout.
    ///
    /// # Errors
    /// - [`NotAWriter`](DowngradeError::NotAWriter): the lease is unchanged.
    /// - [`Unconfirmed`](DowngradeError::Unconfirmed): too few nodes confirmed the downgrade, or the lease has ended.
    ///
    /// # Cancel safety
    /// If the future is dropped after its first poll, the lease is a reader's lease.
    pub async fn downgrade(&self) -> Result<(), DowngradeError> {
        if !self.state.claim().is_writer() {
            return Err(DowngradeError::NotAWriter);
        }
        self.extend_to(None, Duration::ZERO).await.map_err(DowngradeError::Unconfirmed)
    }

    fn limits(&self) -> Result<Limits, ExtendError> {
        match self.state.status() {
            LeaseStatus::Held { .. } => self.state.limits().ok_or(ExtendError::Released),
            ended => Err(extend_error(ended, None)),
        }
    }

    /// Extends the lease to `ttl`, or downgrades it if `ttl` is `None`. Returns an error if the request
    /// fails, or if the remaining validity is then shorter than `least`.
    async fn extend_to(&self, ttl: Option<Ttl>, least: Duration) -> Result<(), ExtendError> {
        self.limits()?;
        let extended = self.state.extend_to(ttl, least).await;
        let (extended, report) = extended.map_err(|ended| extend_error(ended, None))?;
        match (extended, report.map(Box::new)) {
            (_, None) => Ok(()),
            (Extended::Until(until) | Extended::Unchanged(until), Some(report)) => {
                let still_valid_for = until.since(self.state.now());
                Err(ExtendError::NoQuorum { still_valid_for, report })
            }
            (Extended::Ended(ended), report) => Err(extend_error(ended, report)),
        }
    }

    /// Waits until the lease is lost, and returns the reason. Resolves at the latest when the
    /// validity ends, even if no node can be reached.
    ///
    /// **The future never resolves if the holder releases the lease.** A separate task that watches
    /// a lease should wait for [`ended`](Self::ended) instead. Use this method in a `select!`:
    ///
    /// ```
    /// # async fn work() {
    /// #     tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    /// #     unreachable!("the lease ends before");
    /// # }
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let nodes = quorlock_test::Nodes::start(3);
    /// # let redlock = nodes.client().build()?;
    /// # let lease = redlock.acquire("orders/42").await?;
    /// tokio::select! {
    ///     () = work() => println!("done, and the lock was held throughout"),
    ///     why = lease.lost() => println!("stopped: {why}"),
    /// }
    /// # assert!(!lease.is_valid());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A dedicated thread wakes the future 2 ms before the validity ends. A blocked runtime
    /// therefore does not delay the notification, but a task on a blocked current-thread runtime
    /// cannot run to receive it. After a suspension of the machine, the future may resolve slightly
    /// after the process resumes; [`is_valid`](Self::is_valid) is correct immediately.
    ///
    /// If the nodes support client tracking, they notify the client when another client deletes or
    /// replaces the key, and the loss is detected immediately. If the acquire did not subscribe to
    /// these notifications, the first call of this method does, with one request to each node.
    /// Without client tracking, and for the lease of a [reader](crate::RwLock::read), the next
    /// extension detects the loss.
    ///
    /// # Cancel safety
    /// The future can be dropped at any time and created again.
    pub async fn lost(&self) -> Loss {
        self.state.lost().await
    }

    /// Waits until the lease has ended, and returns how it ended. A lease ends when it is lost, or
    /// when its last guard is released or dropped. See [`lost`](Self::lost) for when a loss is
    /// detected. Use this method in a task that watches a lease and must stop when the lease ends:
    ///
    /// ```
    /// # use std::sync::atomic::{AtomicBool, Ordering};
    /// # static STOPPED: AtomicBool = AtomicBool::new(false);
    /// # fn stop_the_work() {
    /// #     STOPPED.store(true, Ordering::Relaxed);
    /// # }
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let nodes = quorlock_test::Nodes::start(3);
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
    /// ```
    ///
    /// # Cancel safety
    /// The future can be dropped at any time and created again.
    pub async fn ended(&self) -> Ended {
        self.state.ended().await
    }

    /// Waits until the remaining validity is at most `margin`, and returns the remaining validity.
    /// Resolves immediately if the remaining validity is already that short. Returns zero if the
    /// lease was lost or released. A successful renewal restarts the wait. Unlike
    /// [`lost`](Self::lost), this method gives the work time to stop cleanly.
    ///
    /// The client renews a lease with [`auto_extend`](crate::Acquire::auto_extend) when a third of
    /// its validity has passed, and retries until a renewal succeeds. With a margin of one third of
    /// the validity, the future therefore resolves only after renewals have failed for some time.
    /// With a margin of two thirds or more, it resolves before each renewal.
    ///
    /// A dedicated thread wakes the future, as for [`lost`](Self::lost), so a blocked runtime does
    /// not delay the notification.
    ///
    /// # Cancel safety
    /// The future can be dropped at any time and created again.
    pub async fn endangered(&self, margin: Duration) -> Duration {
        self.state.endangered(margin).await
    }

    /// Waits until the work under this lease must stop, and returns the remaining validity. If a
    /// margin was set with [`stop_before`](crate::Acquire::stop_before), the future resolves when
    /// at most this margin remains. Otherwise the future resolves when the lease has ended. See
    /// [`endangered`](Self::endangered).
    ///
    /// # Cancel safety
    /// The future can be dropped at any time and created again.
    pub async fn stopping(&self) -> Duration {
        self.endangered(self.margin).await
    }
}

fn extend_error(ended: LeaseStatus, report: Option<Box<Report>>) -> ExtendError {
    match ended {
        LeaseStatus::Lost(reason) => ExtendError::Lost { reason, report },
        LeaseStatus::Held { .. } | LeaseStatus::Released => ExtendError::Released,
    }
}

impl fmt::Debug for LeaseRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Lease");
        debug.field("resources", &self.state.lock_info().resources);
        debug.field("value", self.state.claim().value());
        debug.field("validity", &self.validity()).finish_non_exhaustive()
    }
}
