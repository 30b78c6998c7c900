//! Control over the scheduling of a client's tasks.

use futures::future::BoxFuture;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Controls when a task of a client is polled. A [`World`](super::World) creates one gate for each task.
pub trait Gate: Send {
    /// Handles a wakeup of the task. The implementation either polls the task by calling `task`, or
    /// arranges for `cx` to be woken later.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        task: &mut dyn FnMut(&mut Context<'_>) -> Poll<()>,
    ) -> Poll<()>;

    /// Takes ownership of a task that the runtime has discarded. Implementations may drop `task`
    /// immediately or defer the drop; the default drops it immediately.
    fn bury(&mut self, task: Box<dyn Send>) {
        drop(task);
    }
}

pub(super) struct GatedTask {
    /// `None` after the task was passed to [`Gate::bury`].
    task: Option<BoxFuture<'static, ()>>,
    gate: Box<dyn Gate>,
}

impl GatedTask {
    pub(super) fn new(task: BoxFuture<'static, ()>, gate: Box<dyn Gate>) -> Self {
        Self { task: Some(task), gate }
    }
}

impl Future for GatedTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { task, gate } = &mut *self;
        let Some(task) = task else { return Poll::Pending };
        gate.poll(cx, &mut |cx| task.as_mut().poll(cx))
    }
}

impl Drop for GatedTask {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            self.gate.bury(Box::new(task));
        }
    }
}
