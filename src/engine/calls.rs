//! Calls that await a completion from the coordinator.

use super::failure::EngineFailure;
use super::shared::{Engine, Thread};
use super::slot::{CallId, CallSlot, Polled, Unsubmitted};
use crate::coordinator::{Completion, Coordinator, LeaseId, Replies, UndeliveredReleases};
use crate::protocol::{LeaseStatus, Time, Ttl};
use crate::sync::{catch_panic, lock};
use crate::wire::Key;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// A future that resolves to the completion of a request. Resolves to `None` if the request was to release a lease that
/// was already released. Dropping the future cancels an acquire, a status request, a forced release or the wait for a
/// change. Other operations continue.
pub(crate) struct Call {
    engine: Arc<Engine>,
    slot: Arc<CallSlot>,
    /// Whether the call has not been polled yet. The first poll skips the check for a fork, because the submission has
    /// already made this check.
    is_new: bool,
    is_over: bool,
}

impl Call {
    fn new(engine: &Arc<Engine>, slot: &Arc<CallSlot>) -> Self {
        Self { engine: engine.clone(), slot: slot.clone(), is_new: true, is_over: false }
    }
}

impl Engine {
    /// Submits a request, and returns the [`Call`] that awaits the completion. `submit` returns `None` if the lease to
    /// release was already released. The caller must have checked that the engine is usable.
    pub(crate) fn call(
        self: &Arc<Self>,
        submit: impl FnOnce(&mut Coordinator, Time) -> Option<CallId> + Send + 'static,
    ) -> Call {
        let slot = Arc::<CallSlot>::default();
        let call = Call::new(self, &slot);
        let mut unsubmitted = Unsubmitted::new(slot);
        self.request(move |state, now| {
            let id = submit(&mut state.coordinator, now);
            match (id, unsubmitted.take()) {
                (Some(id), Some(slot)) => state.insert_call(id, slot),
                (None, Some(slot)) => state.wakers.extend(slot.make_void()),
                (_, None) => {}
            }
        });
        call
    }

    /// Submits an extension of `lease` to `ttl`, or its downgrade if `ttl` is `None`. Returns `None` if the engine is not
    /// usable. If the lease has ended, returns its status as an error.
    pub(crate) fn extend(
        self: &Arc<Self>,
        lease: LeaseId,
        ttl: Option<Ttl>,
    ) -> Option<Result<Call, LeaseStatus>> {
        let slot = Arc::<CallSlot>::default();
        let call = Call::new(self, &slot);
        self.with_usable_state(|state, now| {
            let id = match ttl {
                Some(ttl) => state.coordinator.handle_extend(lease, ttl, now)?,
                None => state.coordinator.handle_downgrade(lease, now)?,
            };
            state.insert_call(CallId::Round(id), slot);
            Ok(call)
        })
    }

    /// Submits the release of a lease without waiting for the result. Calls `keep` with the nodes' replies to the
    /// lease's acquire, if the coordinator still has these replies.
    pub(crate) fn request_drop(
        &self,
        lease: LeaseId,
        keep: impl FnOnce(Option<Box<Replies>>) + Send + 'static,
    ) {
        self.request(move |state, now| {
            keep(state.coordinator.take_lease_replies(lease));
            state.coordinator.handle_drop(lease, now);
        });
    }

    /// Submits the release of every lease. Returns the first key of each lease, and the call that awaits the release.
    pub(super) fn release_all(self: &Arc<Self>) -> Vec<(Key, Call)> {
        let calls = self.with_usable_state(|state, now| {
            let released = state.coordinator.handle_release_all(now);
            let call = |(key, id)| {
                let slot = Arc::<CallSlot>::default();
                state.insert_call(CallId::Round(id), slot.clone());
                (key, Call::new(self, &slot))
            };
            released.into_iter().map(call).collect()
        });
        calls.unwrap_or_default()
    }

    /// Returns true if a quorum is connected and the client knows which nodes' votes count. Otherwise, registers
    /// `waker` to be woken when both may be true.
    pub(super) fn poll_ready(&self, waker: &Waker) -> bool {
        let is_ready = self.with_state(Thread::Caller, |state, now| {
            let is_ready = state.coordinator.is_ready(now);
            if !is_ready {
                state.ready.push(waker.clone());
                state.coordinator.handle_ready(now);
            }
            is_ready
        });
        is_ready == Some(true)
    }

    /// Returns the result of closing the client. If the close has not ended, registers `waker` and returns `None`. An
    /// engine that is not usable has no releases to deliver, so its close succeeds.
    pub(super) fn poll_closed(&self, waker: &Waker) -> Option<Result<(), UndeliveredReleases>> {
        if !self.is_usable() {
            return Some(Ok(()));
        }
        let mut state = lock(&self.state);
        if self.panic.get().is_some() {
            return Some(Ok(()));
        }
        let result = state.closed.clone();
        if result.is_none() {
            state.closing.push(waker.clone());
        }
        result
    }
}

impl Future for Call {
    type Output = Result<Option<Completion>, EngineFailure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let is_new = std::mem::take(&mut self.is_new);
        let engine = &self.engine;
        if let Some(failure) = if is_new { engine.panic_failure() } else { engine.failure() } {
            return Poll::Ready(Err(failure));
        }
        match self.slot.poll(cx.waker(), || self.engine.now()) {
            Polled::Over(completion) => {
                self.is_over = true;
                return Poll::Ready(Ok(completion));
            }
            Polled::Dropped => {
                // The message of the panic may not be known yet.
                let unknown = || EngineFailure::Panicked("no message".into());
                return Poll::Ready(Err(self.engine.panic_failure().unwrap_or_else(unknown)));
            }
            Polled::Untaken(acquire) => {
                let untaken = move |it: &mut Coordinator, now| it.handle_untaken(acquire, now);
                self.engine.request(move |state, now| untaken(&mut state.coordinator, now));
            }
            Polled::Pending => {}
        }
        // The waker is already registered, so the end of a task wakes this caller from now on. An error means that the
        // caller has no runtime, but a task on another runtime may serve the client.
        let _no_runtime = self.engine.ensure_task().is_err();
        // A panic before the waker was registered did not wake this caller, so this poll checks for a panic again.
        self.engine.panic_failure().map_or(Poll::Pending, |failure| Poll::Ready(Err(failure)))
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.is_over || !self.engine.is_usable() {
            return;
        }
        // Dropped here, because the request is executed under a mutex, and the drop of a waker may close the client.
        catch_panic(|| drop(self.slot.take_waker()));
        let slot = self.slot.clone();
        // Executed immediately if possible, because cancelling an adoption may end the lease that it has taken over.
        self.engine.request_now(move |state, now| {
            let Some(id) = slot.id() else { return };
            state.calls.remove(&id);
            match id {
                CallId::Acquire(id) => state.coordinator.handle_cancel(id, now),
                CallId::Round(id) => state.coordinator.handle_cancel_call(id, now),
                CallId::Change(id) => state.coordinator.handle_cancel_change(id),
            }
        });
    }
}
