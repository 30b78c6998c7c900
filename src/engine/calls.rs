//! A call that awaits its completion.

use super::failure::EngineFailure;
use super::shared::{CallId, Engine};
use crate::coordinator::{
    AcquireId, Claim, Completion, Coordinator, LeaseId, Remains, Replies, RoundId,
};
use crate::protocol::{Tenure, Ttl};
use crate::sync::lock;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Resolves with the completion. Dropping it cancels an acquire or a status request; other operations continue.
pub(crate) struct Call {
    engine: Arc<Engine>,
    id: CallId,
    is_over: bool,
}

impl Call {
    pub(super) fn new(engine: &Arc<Engine>, id: CallId) -> Self {
        Self { engine: engine.clone(), id, is_over: false }
    }
}

impl Engine {
    pub(super) fn acquire_call(self: &Arc<Self>, id: AcquireId) -> Call {
        Call::new(self, CallId::Acquire(id))
    }

    /// Submits an extension. Returns `None` if the engine is not usable.
    pub(crate) fn extend(
        self: &Arc<Self>,
        lease: LeaseId,
        ttl: Ttl,
    ) -> Option<Result<Call, Tenure>> {
        let submit = |it: &mut Coordinator, now| it.handle_extend(lease, ttl, now);
        let id = self.submit(submit, |id| id.as_ref().ok().map(|id| CallId::Round(*id)))?;
        Some(id.map(|id| Call::new(self, CallId::Round(id))))
    }

    /// Submits a release. Returns the replies to the acquire of the lease as well.
    pub(crate) fn release(
        self: &Arc<Self>,
        lease: LeaseId,
        cool_down: Option<Ttl>,
    ) -> (Option<Call>, Option<Box<Replies>>) {
        let submit = |it: &mut Coordinator, now| {
            let replies = it.take_lease_replies(lease);
            (it.handle_release(lease, cool_down, now), replies)
        };
        let (id, replies) =
            self.submit(submit, |(id, _)| id.map(CallId::Round)).unwrap_or_default();
        (id.map(|id| Call::new(self, CallId::Round(id))), replies)
    }

    /// Submits the release of a claim whose lease belongs to another engine.
    pub(crate) fn release_claim(self: &Arc<Self>, claim: &Arc<Claim>) -> Option<Call> {
        let submit = |it: &mut Coordinator, now| it.handle_release_claim(claim, now);
        let id = self.submit(submit, |id| Some(CallId::Round(*id)))?;
        Some(Call::new(self, CallId::Round(id)))
    }

    pub(super) fn round_call(self: &Arc<Self>, id: RoundId) -> Call {
        Call::new(self, CallId::Round(id))
    }

    /// True once a quorum is connected. Otherwise `waker` is woken when it may be.
    pub(super) fn poll_ready(&self, waker: &Waker) -> bool {
        let is_ready = self.with_state(false, |state, now| {
            let is_ready = state.coordinator.is_ready(now);
            if !is_ready {
                state.ready.push(waker.clone());
                state.coordinator.handle_ready(now);
            }
            is_ready
        });
        is_ready == Some(true)
    }

    /// The result of the close, once there is one. An engine that is not usable has no releases to deliver.
    pub(super) fn poll_closed(&self, waker: &Waker) -> Option<Result<(), Remains>> {
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
    type Output = Result<Completion, EngineFailure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(completion) = self.engine.poll_call(self.id, cx.waker()) {
            self.is_over = true;
            return Poll::Ready(completion);
        }
        // After the registration of the waker: the end of a task from now on wakes this caller. An error means that
        // there is no runtime here: a task of another one may serve the node.
        let _no_runtime = self.engine.ensure_task().is_err();
        Poll::Pending
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        self.engine.with(|it, now| match self.id {
            CallId::Acquire(id) => it.handle_cancel(id, now),
            CallId::Round(id) => it.handle_cancel_call(id, now),
        });
        self.engine.forget_call(self.id);
    }
}
