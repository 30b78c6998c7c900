//! Tasks of a client, and control over when they are polled.

use std::pin::Pin;
use std::task::{Context, Poll};

/// Controls when a task of a client is polled. A [`World`](crate::test_util::World) creates one
/// gate for each task.
#[cfg(feature = "test-util")]
pub trait Gate: Send {
    /// Called when the task was woken. The implementation either polls the task by calling `task`,
    /// or arranges for `cx` to be woken later.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        task: &mut dyn FnMut(&mut Context<'_>) -> Poll<()>,
    ) -> Poll<()>;

    /// Called when the runtime drops the task. The implementation drops `task`, either immediately
    /// or later. The default implementation drops it immediately.
    fn bury(&mut self, task: Box<dyn Send>) {
        drop(task);
    }
}

pub(crate) struct Task<F: Send + 'static> {
    /// `None` once it was passed to `Gate::bury`.
    task: Option<Pin<Box<F>>>,
    #[cfg(feature = "test-util")]
    gate: Option<Box<dyn Gate>>,
}

impl<F: Future + Send + 'static> Task<F> {
    pub(super) fn new(task: F) -> Self {
        Self {
            task: Some(Box::pin(task)),
            #[cfg(feature = "test-util")]
            gate: None,
        }
    }

    #[cfg(feature = "test-util")]
    pub(super) fn behind(mut self, gate: Option<Box<dyn Gate>>) -> Self {
        self.gate = gate;
        self
    }
}

impl<F: Future + Send + 'static> Future for Task<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        let Some(task) = &mut this.task else { return Poll::Pending };
        #[cfg(feature = "test-util")]
        if let Some(gate) = &mut this.gate {
            let mut output = None;
            let polled =
                gate.poll(cx, &mut |cx| task.as_mut().poll(cx).map(|done| output = Some(done)));
            return match (polled, output) {
                (Poll::Ready(()), Some(done)) => Poll::Ready(done),
                _ => Poll::Pending,
            };
        }
        task.as_mut().poll(cx)
    }
}

#[cfg(feature = "test-util")]
impl<F: Send + 'static> Drop for Task<F> {
    fn drop(&mut self) {
        if let (Some(gate), Some(task)) = (&mut self.gate, self.task.take()) {
            gate.bury(Box::new(task));
        }
    }
}
