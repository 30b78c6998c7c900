//! The seeded scheduler: a task that was woken may have to wait until it is polled.

use crate::clock::Instant;
use crate::event::WorldEvent;
use crate::process::Beat;
use crate::shared::Shared;
use quorlock_test::Gate;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Wake, Waker};

/// Stands before a task of a process.
pub(crate) struct TaskGate {
    shared: Arc<Shared>,
    process: usize,
    beat: Arc<Beat>,
    /// How many were made before it in this process.
    number: usize,
    /// Not to be polled before.
    until: Option<Instant>,
    waker: Option<(Waker, Waker)>,
    /// False for tasks of the simulation itself.
    is_product: bool,
}

/// Tells the world which runtime has something to do, and the runtime which task.
struct GateWaker {
    task: Waker,
    beat: Arc<Beat>,
    runtime: usize,
}

impl Wake for GateWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.beat.note(self.runtime);
        self.task.wake_by_ref();
    }
}

impl TaskGate {
    pub(crate) fn new(shared: Arc<Shared>, process: usize, beat: Arc<Beat>) -> Self {
        // It will be spawned on whichever runtime.
        beat.note_all();
        beat.tasks.fetch_add(1, Ordering::Relaxed);
        let number = beat.made.fetch_add(1, Ordering::Relaxed);
        Self { shared, process, beat, number, until: None, waker: None, is_product: true }
    }

    /// The waker to be left with others, in place of the runtime's.
    fn waker(&mut self, cx: &Context<'_>) -> Waker {
        if let Some((inner, told)) = &self.waker
            && inner.will_wake(cx.waker())
        {
            return told.clone();
        }
        let runtime = self.beat.running();
        let told = GateWaker { task: cx.waker().clone(), beat: self.beat.clone(), runtime };
        let told = Waker::from(Arc::new(told));
        self.waker = Some((cx.waker().clone(), told.clone()));
        told
    }
}

impl Gate for TaskGate {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        task: &mut dyn FnMut(&mut Context<'_>) -> Poll<()>,
    ) -> Poll<()> {
        let waker = self.waker(cx);
        if self.beat.is_condemned(self.beat.running()) {
            return Poll::Pending;
        }
        {
            let mut core = self.shared.lock();
            core.count_poll();
            let now = core.now;
            if self.until.is_some_and(|until| now < until) {
                return Poll::Pending;
            }
            if self.until.take().is_none()
                && let Some(delay) = core.draw_hold(self.process)
            {
                self.until = Some(now + delay);
                core.agenda.plan(now + delay, WorldEvent::Wake(waker));
                return Poll::Pending;
            }
        }
        task(&mut Context::from_waker(&waker))
    }

    /// A runtime that is shut down drops its tasks in an order that hangs on what else the process has run:
    /// they are kept, and dropped in the order in which they were made.
    fn bury(&mut self, task: Box<dyn Send>) {
        self.beat.bury(self.number, task);
    }
}

impl Drop for TaskGate {
    fn drop(&mut self) {
        if self.is_product {
            self.beat.tasks.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A task of the simulation itself, behind a gate.
pub(crate) struct Gated<F: Send + 'static> {
    gate: TaskGate,
    /// None once it was buried.
    task: Option<Pin<Box<F>>>,
}

impl<F: Future<Output = ()> + Send + 'static> Gated<F> {
    pub(crate) fn new(mut gate: TaskGate, task: F) -> Self {
        gate.beat.tasks.fetch_sub(1, Ordering::Relaxed);
        gate.is_product = false;
        Self { gate, task: Some(Box::pin(task)) }
    }
}

impl<F: Future<Output = ()> + Send + 'static> Future for Gated<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let Some(task) = &mut this.task else { return Poll::Pending };
        this.gate.poll(cx, &mut |cx| task.as_mut().poll(cx))
    }
}

impl<F: Send + 'static> Drop for Gated<F> {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            self.gate.bury(Box::new(task));
        }
    }
}
