//! Waits in simulated time, and futures that are polled at intervals.

use crate::clock::Instant;
use crate::event::{EventId, WorldEvent};
use crate::shared::Shared;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

pub(crate) struct Sleep {
    shared: Arc<Shared>,
    at: Instant,
    event: Option<EventId>,
}

impl Sleep {
    pub(crate) fn new(shared: &Arc<Shared>, lasting: Instant) -> Self {
        let at = shared.lock().now.saturating_add(lasting);
        Self { shared: shared.clone(), at, event: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let (at, before) = (self.at, self.event.take());
        let shared = self.shared.clone();
        let mut core = shared.lock();
        let before = before.and_then(|event| core.events.cancel(event));
        if core.now >= at {
            drop(core);
            drop(before);
            return Poll::Ready(());
        }
        self.event = Some(core.events.plan(at, WorldEvent::Wake(cx.waker().clone())));
        drop(core);
        drop(before);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let event = self.event.take();
        let before = event.and_then(|event| self.shared.lock().events.cancel(event));
        drop(before);
    }
}

/// A future that is polled at most once per `every`, regardless of wake-ups.
pub(crate) struct RarelyPolled<F> {
    pub(crate) inner: Pin<Box<F>>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) every: Instant,
    pub(crate) pause: Option<Sleep>,
}

impl<F: Future> Future for RarelyPolled<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        if let Some(pause) = &mut this.pause
            && Pin::new(pause).poll(cx).is_pending()
        {
            return Poll::Pending;
        }
        if let Poll::Ready(done) = this.inner.as_mut().poll(cx) {
            return Poll::Ready(done);
        }
        let mut pause = Sleep::new(&this.shared, this.every);
        let polled = Pin::new(&mut pause).poll(cx);
        this.pause = Some(pause);
        if polled.is_ready() {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}
