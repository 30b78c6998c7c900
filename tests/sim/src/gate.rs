//! A seeded scheduler that can delay the polls of woken tasks.

use crate::clock::Instant;
use crate::event::WorldEvent;
use crate::process::RuntimeStates;
use crate::shared::Shared;
use quorlock_test::Gate;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Wake, Waker};

/// The gate of a task. It controls when the task is polled.
pub(crate) struct TaskGate {
    shared: Arc<Shared>,
    process: usize,
    runtime_states: Arc<RuntimeStates>,
    /// The number of tasks that the process had created before this task.
    number: usize,
    /// The time before which the task is not polled, if its poll is delayed.
    until: Option<Instant>,
    waker: Option<(Waker, Waker)>,
    /// Whether the task belongs to the library rather than to the simulation.
    is_product: bool,
}

/// A waker that marks the task's runtime as woken, and then wakes the task.
struct GateWaker {
    task: Waker,
    runtime_states: Arc<RuntimeStates>,
    runtime: usize,
}

impl Wake for GateWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.runtime_states.mark_woken(self.runtime);
        self.task.wake_by_ref();
    }
}

impl TaskGate {
    pub(crate) fn new(
        shared: Arc<Shared>,
        process: usize,
        runtime_states: Arc<RuntimeStates>,
    ) -> Self {
        // The runtime that will run the task is not known yet.
        runtime_states.mark_all_woken();
        runtime_states.tasks.fetch_add(1, Ordering::Relaxed);
        let number = runtime_states.tasks_created.fetch_add(1, Ordering::Relaxed);
        Self { shared, process, runtime_states, number, until: None, waker: None, is_product: true }
    }

    /// Returns the waker that the task receives instead of the runtime's waker.
    fn waker(&mut self, cx: &Context<'_>) -> Waker {
        if let Some((inner, wrapped)) = &self.waker
            && inner.will_wake(cx.waker())
        {
            return wrapped.clone();
        }
        let runtime = self.runtime_states.running();
        let wrapped = GateWaker {
            task: cx.waker().clone(),
            runtime_states: self.runtime_states.clone(),
            runtime,
        };
        let wrapped = Waker::from(Arc::new(wrapped));
        self.waker = Some((cx.waker().clone(), wrapped.clone()));
        wrapped
    }
}

impl Gate for TaskGate {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        task: &mut dyn FnMut(&mut Context<'_>) -> Poll<()>,
    ) -> Poll<()> {
        let waker = self.waker(cx);
        if self.runtime_states.is_unpolled(self.runtime_states.running()) {
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
                core.events.plan(now + delay, WorldEvent::Wake(waker));
                return Poll::Pending;
            }
        }
        task(&mut Context::from_waker(&waker))
    }

    /// Keeps a dropped task, and drops the kept tasks later in the order of their creation. A
    /// runtime that shuts down would drop them in an order that depends on earlier runs of this
    /// thread.
    fn bury(&mut self, task: Box<dyn Send>) {
        self.runtime_states.keep_dropped_task(self.number, task);
    }
}

impl Drop for TaskGate {
    fn drop(&mut self) {
        if self.is_product {
            self.runtime_states.tasks.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A task of the simulation that is polled through a gate.
pub(crate) struct Gated<F: Send + 'static> {
    gate: TaskGate,
    /// `None` once the task has been passed to `bury`.
    task: Option<Pin<Box<F>>>,
}

impl<F: Future<Output = ()> + Send + 'static> Gated<F> {
    pub(crate) fn new(mut gate: TaskGate, task: F) -> Self {
        gate.runtime_states.tasks.fetch_sub(1, Ordering::Relaxed);
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
