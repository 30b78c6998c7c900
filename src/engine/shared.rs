//! The coordinator of a client, behind one mutex, with the callers that wait for it.

use super::LeaseListener;
use super::client_alarm::ClientAlarm;
use super::events::EventQueue;
use super::io::{Io, Opened};
use super::lateness::Lateness;
use super::queue::RequestQueue;
use super::signal::TaskSignal;
use super::slot::{CallId, CallSlot, Calls};
use crate::coordinator::{Completion, ConnectionId, Coordinator, LeaseId, Remains};
use crate::node::{Environment, Node, Pool};
use crate::observe::Weight;
use crate::observe::event::Event;
use crate::protocol::{NodeId, Time};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, MutexGuard, OnceLock, contain, lock};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;
use tokio::runtime::Id;

/// Interval of the alarm of an idle client.
pub(super) const IDLE: Duration = Duration::from_secs(3_600);

/// Everything that the threads of a client share.
pub(crate) struct Engine {
    pub(super) state: Mutex<State>,
    pub(super) requests: RequestQueue<State>,
    pub(super) io: Mutex<Io>,
    /// Results of the tasks that connect.
    pub(super) opened: Mutex<Vec<(ConnectionId, Opened)>>,
    pub(super) task: TaskSignal,
    pub(super) alarm: ClientAlarm,
    /// Time after its wake-up from which on the task is late.
    pub(super) late_after: Duration,
    /// True if the task was late when the alarm rang, and has not taken a turn since: the alarm takes turns in its place.
    pub(super) has_late_task: AtomicBool,
    pub(super) events: Arc<EventQueue>,
    /// Effects of the task's current turn for after its end.
    delayed: Mutex<Vec<Effects>>,
    /// True if a turn was not possible because another thread took one, which then wakes the task.
    pub(super) was_busy: AtomicBool,
    pub(super) leases: Arc<dyn LeaseListener>,
    pub(super) pool: Arc<Pool>,
    pub(super) this: Weak<Self>,
    /// True if there is a task.
    pub(super) is_served: AtomicBool,
    /// True if the runtime was late to run the task: a caller on another one can replace it.
    pub(super) is_late: AtomicBool,
    /// The message of the panic that ended the coordinator.
    pub(super) panic: OnceLock<Arc<str>>,
    /// The process that the engine belongs to.
    pub(super) process: u32,
    /// The engine that the client uses in its place if it is not usable.
    pub(super) successor: OnceLock<Arc<Self>>,
}

pub(super) struct State {
    pub(super) coordinator: Coordinator,
    /// Calls under way. The entry of an acquire stays when its caller has taken the lease.
    pub(super) calls: Calls,
    /// Callers that wait for a quorum of connections.
    pub(super) ready: Vec<Waker>,
    /// Callers and tasks to wake after the mutex was unlocked, also if the coordinator panics.
    pub(super) wakers: Vec<Waker>,
    /// Callers that wait for the end of a close, and its result.
    pub(super) closing: Vec<Waker>,
    pub(super) closed: Option<Result<(), Remains>>,
    /// The runtime of the task.
    pub(super) served_by: Option<Id>,
    /// True once a task was started.
    pub(super) has_started: bool,
    /// True once the pinned runtime was found to be shut down.
    pub(super) is_shut_down: bool,
    pub(super) lateness: Lateness,
}

/// The thread that calls the coordinator.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Thread {
    /// Of a handle.
    Caller,
    /// Of the task, in a turn, which does what the connections need.
    Turn,
    /// Of the alarm.
    Timer,
}

/// Consequences of a change of the coordinator, for after the mutex was unlocked.
#[derive(Default)]
pub(super) struct Effects {
    now: Time,
    wakers: Vec<Waker>,
    ended: Vec<LeaseId>,
    events: Vec<(Weight, Event)>,
    /// True if the task has to take a turn.
    wakes_task: bool,
    is_closed: bool,
    /// When the alarm has to ring.
    next: Option<Time>,
}

impl State {
    /// The wakers of all callers.
    pub(super) fn take_wakers(&mut self) -> Vec<Waker> {
        let mut wakers: Vec<_> = self.calls.iter().filter_map(|call| call.take_waker()).collect();
        wakers.append(&mut self.ready);
        wakers.append(&mut self.closing);
        wakers
    }

    fn collect(&mut self, now: Time, thread: Thread) -> Effects {
        let in_turn = thread == Thread::Turn;
        let mut effects = Effects { now, ..Effects::default() };
        while let Some(completion) = self.coordinator.poll_completion() {
            self.complete(completion, &mut effects);
        }
        effects.events.extend(std::iter::from_fn(|| self.coordinator.poll_event()));
        let has_closed = std::iter::from_fn(|| self.coordinator.poll_close()).count() > 0;
        effects.wakes_task = (self.coordinator.poll_turn(now) || has_closed) && !in_turn;
        effects.next = self.coordinator.poll_timeout(now);
        effects.is_closed = self.coordinator.is_closed();
        effects
    }

    fn complete(&mut self, completion: Completion, effects: &mut Effects) {
        let call = match &completion {
            Completion::Acquired { acquire, .. } | Completion::AcquireFailed { acquire, .. } => {
                CallId::Acquire(*acquire)
            }
            Completion::Extended { call, .. }
            | Completion::Released { call, .. }
            | Completion::Status { call, .. }
            | Completion::ForceReleased { call, .. } => CallId::Round(*call),
            Completion::LeaseEnded { lease, .. } => {
                return effects.ended.push(*lease);
            }
            Completion::Ready => return self.wakers.append(&mut self.ready),
            Completion::Closed(_) => {
                if let Completion::Closed(result) = completion {
                    self.closed = Some(result);
                }
                return self.wakers.append(&mut self.closing);
            }
        };
        // The lease of an acquire can be revoked, and the acquire continues.
        let slot = match completion {
            Completion::Acquired { .. } => self.calls.get(call).cloned(),
            _ => self.calls.remove(call),
        };
        self.wakers.extend(slot.and_then(|slot| slot.complete(completion)));
    }

    /// The completion of call `id` is passed to `slot`.
    pub(super) fn insert_call(&mut self, id: CallId, slot: Arc<CallSlot>) {
        slot.set_id(id);
        self.calls.insert(id, slot);
    }
}

impl Engine {
    pub(crate) fn new(
        coordinator: Coordinator,
        pool: Arc<Pool>,
        leases: Arc<dyn LeaseListener>,
    ) -> Arc<Self> {
        let lateness = Lateness::new(coordinator.node_timeout(), pool.is_pinned());
        let late_after = lateness.limit();
        Arc::new_cyclic(|this: &Weak<Self>| {
            let state = State {
                coordinator,
                calls: Calls::new(),
                ready: Vec::new(),
                wakers: Vec::new(),
                closing: Vec::new(),
                closed: None,
                served_by: None,
                has_started: false,
                is_shut_down: false,
                lateness,
            };
            Self {
                state: Mutex::new(state),
                requests: RequestQueue::default(),
                io: Mutex::default(),
                opened: Mutex::default(),
                task: TaskSignal::default(),
                alarm: ClientAlarm::default(),
                late_after,
                has_late_task: AtomicBool::new(false),
                events: Arc::default(),
                delayed: Mutex::default(),
                was_busy: AtomicBool::new(false),
                leases,
                pool,
                this: this.clone(),
                is_served: AtomicBool::new(false),
                is_late: AtomicBool::new(false),
                panic: OnceLock::new(),
                process: process::id(),
                successor: OnceLock::new(),
            }
        })
    }

    pub(crate) fn leases(&self) -> &Arc<dyn LeaseListener> {
        &self.leases
    }

    pub(crate) fn environment(&self) -> &Environment {
        self.pool.environment()
    }

    pub(super) fn shared(&self, node: NodeId) -> &Arc<Node> {
        &self.pool.shared()[node.index()]
    }

    pub(crate) fn now(&self) -> Time {
        self.environment().clock.now()
    }

    /// Calls the coordinator, and does what follows from that. `now` is read with the mutex held, so it never goes back.
    /// Returns `None` if the engine is not usable.
    pub(crate) fn with<T>(&self, call: impl FnOnce(&mut Coordinator, Time) -> T) -> Option<T> {
        self.with_usable_state(|state, now| call(&mut state.coordinator, now))
    }

    /// Like [`with`](Self::with), with the calls under way.
    pub(super) fn with_usable_state<T>(
        &self,
        call: impl FnOnce(&mut State, Time) -> T,
    ) -> Option<T> {
        if self.is_usable() { self.with_state(Thread::Caller, call) } else { None }
    }

    /// Like [`with`](Self::with), for a turn.
    pub(super) fn with_turn<T>(
        &self,
        thread: Thread,
        call: impl FnOnce(&mut Coordinator, Time) -> T,
    ) -> Option<T> {
        self.with_state(thread, |state, now| call(&mut state.coordinator, now))
    }

    /// Executes the requests that were queued before, then `call`.
    pub(super) fn with_state<T>(
        &self,
        thread: Thread,
        call: impl FnOnce(&mut State, Time) -> T,
    ) -> Option<T> {
        let result = self.with_locked(lock(&self.state), thread, call);
        if !self.is_served() {
            self.execute_requests();
        }
        result
    }

    /// Like [`with_state`](Self::with_state), with the mutex locked.
    pub(super) fn with_locked<T>(
        &self,
        mut state: MutexGuard<'_, State>,
        thread: Thread,
        call: impl FnOnce(&mut State, Time) -> T,
    ) -> Option<T> {
        // A request that is not executed wakes its caller when it is dropped: after the mutex was unlocked.
        let (mut requests, mut call) = (self.requests.take().into_iter(), Some(call));
        if self.has_panicked() {
            drop(state);
            return None;
        }
        let observers = &self.environment().observers;
        let level = [Weight::Detail, Weight::Trouble].into_iter().find(|it| observers.wants(*it));
        if thread == Thread::Turn {
            self.has_late_task.store(false, Ordering::SeqCst);
        }
        let run = AssertUnwindSafe(|| {
            state.coordinator.observe(level);
            let now = self.now();
            for request in requests.by_ref() {
                request(&mut state, now);
            }
            let result = call.take().map(|call| call(&mut state, now));
            (result, state.collect(now, thread))
        });
        match catch_unwind(run) {
            Ok((result, mut effects)) => {
                effects.wakers = std::mem::take(&mut state.wakers);
                drop(state);
                if thread == Thread::Turn && !effects.events.is_empty() {
                    // The connections are locked. An observer that blocks must not keep the alarm from using them.
                    lock(&self.delayed).push(effects);
                } else {
                    self.apply(effects, thread);
                }
                result
            }
            Err(panic) => {
                self.handle_panic(state, panic);
                None
            }
        }
    }

    fn apply(&self, effects: Effects, thread: Thread) {
        if effects.is_closed {
            self.alarm.cancel();
            self.task.wake(effects.now);
        } else if let Some(next) = effects.next {
            self.alarm.hasten(next);
        }
        if effects.wakes_task {
            self.wake_task(effects.now, thread);
        }
        for lease in effects.ended {
            contain(|| self.leases.handle_end(lease));
        }
        if !effects.events.is_empty() {
            // An observer can block. The timer thread and the library's own runtime serve all clients.
            if thread == Thread::Timer || Pool::is_own_runtime_current() {
                self.events.emit_elsewhere(effects.events, &self.pool);
            } else {
                for (weight, event) in effects.events {
                    self.environment().observers.emit(weight, || event);
                }
            }
        }
        for waker in effects.wakers {
            contain(|| waker.wake());
        }
    }

    /// Does what the steps of a turn have delayed, after the connections were unlocked.
    pub(super) fn apply_delayed(&self) {
        for effects in std::mem::take(&mut *lock(&self.delayed)) {
            self.apply(effects, Thread::Caller);
        }
    }

    /// Wakes the callers that wait for a quorum of connections.
    pub(super) fn wake_ready(&self) {
        if !self.is_usable() {
            return;
        }
        let ready = std::mem::take(&mut lock(&self.state).ready);
        for waker in ready {
            contain(|| waker.wake());
        }
    }
}
