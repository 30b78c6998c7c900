//! Tasks, and when they are polled.

use std::pin::Pin;
use std::task::{Context, Poll};

/// Stands before a task of a client, and decides when it is polled.
#[cfg(feature = "test-util")]
pub trait Gate: Send {
    /// The task was woken. Polls it by `task`, or sees to it that `cx` is woken later.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        task: &mut dyn FnMut(&mut Context<'_>) -> Poll<()>,
    ) -> Poll<()>;
}

/// What a client spawns.
pub(crate) struct Task<F> {
    task: Pin<Box<F>>,
    #[cfg(feature = "test-util")]
    gate: Option<Box<dyn Gate>>,
}

impl<F: Future> Task<F> {
    pub(super) fn new(task: F) -> Self {
        Self {
            task: Box::pin(task),
            #[cfg(feature = "test-util")]
            gate: None,
        }
    }

    #[cfg(feature = "test-util")]
    pub(super) fn behind(self, gate: Option<Box<dyn Gate>>) -> Self {
        Self { gate, ..self }
    }
}

impl<F: Future> Future for Task<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        #[cfg(feature = "test-util")]
        if let Some(gate) = &mut this.gate {
            let mut output = None;
            let polled = gate
                .poll(cx, &mut |cx| this.task.as_mut().poll(cx).map(|done| output = Some(done)));
            return match (polled, output) {
                (Poll::Ready(()), Some(done)) => Poll::Ready(done),
                _ => Poll::Pending,
            };
        }
        this.task.as_mut().poll(cx)
    }
}
