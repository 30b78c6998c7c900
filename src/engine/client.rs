//! The operations of a client, which the engine executes.

use super::calls::Call;
use super::failure::EngineFailure;
use super::shared::Engine;
use super::slot::CallId;
use crate::coordinator::{
    AcquireFailure, AcquireRequest, Claim, Completion, Coordinator, LeaseId, NodeLock,
    PeriodRequest, RoundId, SharedLease, TakenPeriod,
};
use crate::error::CloseError;
use crate::node::{NoRuntime, Unready};
use crate::observe::Report;
use crate::protocol::{PeriodState, Time};
use crate::sync::catch_panic;
use crate::wire::{CounterKeys, Key, Keys};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

/// The state that a client's handles and leases share. The connections are closed after the last handle and the last
/// lease are dropped.
///
/// If the coordinator panics or the process is forked, the next call creates a new engine. The restart guard treats the
/// new engine as a new client.
pub(crate) struct Client {
    first: Arc<Engine>,
    new_engine: Box<dyn Fn() -> Arc<Engine> + Send + Sync>,
    is_closed: AtomicBool,
}

/// A submitted acquire. Dropping the `PendingAcquire` cancels the acquire.
pub(crate) struct PendingAcquire {
    engine: Arc<Engine>,
    call: Call,
    is_renewed: bool,
}

pub(crate) struct AcquiredLease {
    pub(crate) engine: Arc<Engine>,
    pub(crate) id: LeaseId,
    pub(crate) shared: Arc<SharedLease>,
    /// When the successful attempt started. The lease's validity is measured from this time.
    pub(crate) since: Time,
}

pub(crate) enum Failure {
    NoRuntime(NoRuntime),
    Failed(AcquireFailure),
    Internal(Option<EngineFailure>),
}

impl Client {
    pub(crate) fn new(new_engine: impl Fn() -> Arc<Engine> + Send + Sync + 'static) -> Self {
        let first = new_engine();
        Self { first, new_engine: Box::new(new_engine), is_closed: AtomicBool::new(false) }
    }

    /// Returns the current engine. Creates a new engine if the last one has panicked or belongs to the parent of a
    /// forked process.
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        let mut engine = &self.first;
        while !engine.is_usable() {
            engine = engine.successor.get_or_init(|| {
                let engine = (self.new_engine)();
                if self.is_closed() {
                    engine.with(|it, now| it.handle_close(Duration::MAX, now));
                }
                engine
            });
        }
        engine
    }

    /// Returns the current engine, or `None` if no usable engine exists.
    fn known_engine(&self) -> Option<&Arc<Engine>> {
        let mut engine = &self.first;
        while !engine.is_usable() {
            engine = engine.successor.get()?;
        }
        Some(engine)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// Waits until the client is closed. Opens no connections.
    pub(crate) async fn until_closed(&self) {
        loop {
            let engine = self.engine();
            // Created before the checks, so that it misses no notification.
            let ended = engine.ended.notified();
            if self.is_closed() {
                return;
            }
            // After a panic, the next engine is notified of a close.
            if !engine.has_panicked() {
                ended.await;
            }
        }
    }

    pub(crate) fn check_ready(&self) -> Result<(), Unready> {
        if self.is_closed() {
            return Err(Unready::Closed);
        }
        self.engine().ensure_task().map_err(Unready::NoRuntime)
    }

    pub(crate) fn acquire(&self, request: AcquireRequest) -> Result<PendingAcquire, Failure> {
        let is_renewed = request.max_hold.is_some();
        if self.is_closed() {
            return Err(Failure::Failed(AcquireFailure::Closed));
        }
        let engine = self.engine();
        // The task may run on a thread that must not ask.
        engine.environment().observers.refresh();
        engine.ensure_task().map_err(Failure::NoRuntime)?;
        let wall_us = engine.environment().clock.wall_us();
        let call = engine.call(move |it, now| {
            it.set_wall_clock(wall_us, now);
            Some(CallId::Acquire(it.handle_acquire(request, now)))
        });
        Ok(PendingAcquire { engine: engine.clone(), call, is_renewed })
    }

    /// Submits a request and waits for the completion. Returns `None` if the coordinator panics, and
    /// [`Completion::CutOff`] if the client is closed first. The callers return `None` in both cases.
    async fn call(
        &self,
        submit: impl FnOnce(&mut Coordinator, Time) -> RoundId + Send + 'static,
    ) -> Option<Completion> {
        let call = self.engine().call(|it, now| Some(CallId::Round(submit(it, now))));
        call.await.ok().flatten()
    }

    /// Reads the state of a lock. If `counters` are given, also reads the fencing counter, and makes the nodes push the
    /// next change of the key; see [`next_change`](Self::next_change).
    pub(crate) async fn status(
        &self,
        keys: Keys,
        counters: Option<Arc<CounterKeys>>,
    ) -> Option<(Box<[NodeLock]>, Report)> {
        let call = || {
            let (keys, counters) = (keys.clone(), counters.clone());
            self.call(move |it, now| it.handle_status(keys, counters, now))
        };
        let completion = match call().await {
            // The coordinator has panicked, so a new coordinator tries once more.
            None => call().await,
            completion => completion,
        };
        match completion {
            Some(Completion::Status { nodes, report, .. }) => Some((nodes, report)),
            _ => None,
        }
    }

    /// Returns a future that resolves once one of `keys` may have changed, or once the client is closed. It misses no
    /// change that a node pushes after this call.
    pub(crate) fn next_change(&self, keys: Keys) -> Call {
        self.engine().call(move |it, _| Some(CallId::Change(it.handle_await_change(&keys))))
    }

    pub(crate) async fn period(
        &self,
        request: PeriodRequest,
    ) -> Option<(PeriodState, Option<TakenPeriod>, Report)> {
        match self.call(move |it, now| it.handle_period(request, now)).await {
            Some(Completion::Period { state, taken, report, .. }) => Some((state, taken, report)),
            _ => None,
        }
    }

    pub(crate) async fn force_release(&self, keys: Keys) -> Option<Report> {
        match self.call(move |it, now| it.handle_force_release(keys, now)).await {
            Some(Completion::ForceReleased { report, .. }) => Some(report),
            _ => None,
        }
    }

    /// Submits the release of keys that another engine of this client has acquired.
    pub(crate) fn release_claim(&self, claim: Arc<Claim>) -> Call {
        self.engine().call(move |it, now| Some(CallId::Round(it.handle_release_claim(&claim, now))))
    }

    /// Releases all leases and waits for the results. Returns the first key of each lease with the completion of the
    /// release, or with `None` if the coordinator has panicked.
    pub(crate) async fn release_all(&self) -> Vec<(Key, Option<Completion>)> {
        let mut ended = Vec::new();
        for (key, call) in self.engine().release_all() {
            ended.push((key, call.await.ok().flatten()));
        }
        ended
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn waiters(&self) -> usize {
        self.engine().with(|it, _| it.acquires().0).unwrap_or_default()
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn attempts(&self) -> usize {
        self.engine().with(|it, _| it.acquires().1).unwrap_or_default()
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn pending_releases(&self) -> usize {
        self.each_pending().into_iter().sum()
    }

    #[cfg(any(feature = "blocking", feature = "test-util"))]
    fn each_pending(&self) -> Vec<usize> {
        let pending = self.known_engine().and_then(|engine| {
            let nodes = engine.pool.nodes().iter().map(|node| node.id);
            engine.with(|it, _| nodes.map(|node| it.pending_releases(node)).collect())
        });
        pending.unwrap_or_default()
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn token_confirmations(&self) -> u64 {
        self.engine().with(|it, _| it.confirmations()).unwrap_or_default()
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn waiter_checks(&self) -> u64 {
        self.engine().with(|it, _| it.waiter_checks()).unwrap_or_default()
    }

    pub(crate) async fn wait_until_ready(&self) -> Result<(), Unready> {
        poll_fn(|cx| {
            if self.is_closed() {
                return Poll::Ready(Err(Unready::Closed));
            }
            let is_ready = self.engine().poll_ready(cx.waker());
            // The waker is already registered, so the end of a task wakes this caller from now on.
            match self.check_ready() {
                Err(unready) => Poll::Ready(Err(unready)),
                Ok(()) if is_ready => Poll::Ready(Ok(())),
                Ok(()) => Poll::Pending,
            }
        })
        .await
    }

    /// Closes the client: refuses all further calls, releases all leases, and waits for at most `limit` until the
    /// releases are delivered.
    pub(crate) async fn close(&self, limit: Duration) -> Result<(), CloseError> {
        self.begin_close(limit);
        let closed = poll_fn(|cx| {
            let Some(engine) = self.known_engine() else { return Poll::Ready(Ok(())) };
            let result = engine.poll_closed(cx.waker());
            if result.is_none() {
                let _no_runtime = engine.ensure_task().is_err();
            }
            result.map_or(Poll::Pending, Poll::Ready)
        });
        closed.await.map_err(|remains| self.close_error(&remains.pending_releases))
    }

    fn begin_close(&self, limit: Duration) {
        self.is_closed.store(true, Ordering::SeqCst);
        if let Some(engine) = self.known_engine() {
            engine.leases.handle_close();
            engine.with(|it, now| it.handle_close(limit, now));
            engine.wake_ready();
            catch_panic(|| engine.ended.notify_waiters());
        }
    }

    #[cfg(feature = "blocking")]
    pub(crate) fn undelivered(&self) -> CloseError {
        self.close_error(&self.each_pending())
    }

    fn close_error(&self, pending: &[usize]) -> CloseError {
        let names = self.first.pool.nodes().iter().map(|node| node.name.clone());
        let pending = names.zip(pending.iter().copied()).filter(|(_, pending)| *pending > 0);
        CloseError::new(pending.collect())
    }
}

impl PendingAcquire {
    pub(crate) async fn lease(self) -> Result<AcquiredLease, Failure> {
        let Self { engine, call, is_renewed } = self;
        match call.await {
            Ok(Some(Completion::Acquired { lease, shared, since, .. })) => {
                if is_renewed {
                    engine.request(move |it, now| it.coordinator.handle_taken(lease, now));
                }
                Ok(AcquiredLease { engine, id: lease, shared, since })
            }
            Ok(Some(Completion::AcquireFailed { failure, .. })) => Err(Failure::Failed(failure)),
            Ok(_) => Err(Failure::Failed(AcquireFailure::Closed)),
            Err(failure) => Err(Failure::Internal(Some(failure))),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if !self.is_closed() {
            self.begin_close(Duration::MAX);
        }
    }
}
