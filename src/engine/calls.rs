//! A call that awaits its completion.

use super::shared::{CallId, Engine};
use crate::coordinator::{AcquireId, Completion, RoundId};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

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

    /// The caller has what it wanted: dropping the call cancels nothing.
    pub(super) fn end(mut self) {
        self.is_over = true;
    }
}

impl Engine {
    pub(super) fn acquire_call(self: &Arc<Self>, id: AcquireId) -> Call {
        Call::new(self, CallId::Acquire(id))
    }

    pub(super) fn round_call(self: &Arc<Self>, id: RoundId) -> Call {
        Call::new(self, CallId::Round(id))
    }
}

impl Future for Call {
    type Output = Completion;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Completion> {
        // An error means that there is no runtime here: a task of another one may serve the node.
        let _no_runtime = self.engine.ensure_tasks().is_err();
        self.engine.poll_call(self.id, cx.waker()).map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.is_over {
            match self.id {
                CallId::Acquire(id) => self.engine.with(|it, now| it.handle_cancel(id, now)),
                CallId::Round(id) => self.engine.with(|it, now| it.handle_cancel_call(id, now)),
            }
        }
        self.engine.forget_call(self.id);
    }
}
