//! The [`Engine`]: a client's coordinator behind one mutex, and the callers that wait for completions.

use super::LeaseListener;
use super::client_alarm::ClientAlarm;
use super::events::EventQueue;
use super::io::{Io, Opened};
use super::lateness::Lateness;
use super::queue::RequestQueue;
use super::signal::TaskSignal;
use super::slot::{CallId, CallIdHasher, CallSlot};
use crate::coordinator::{Completion, ConnectionId, Coordinator, LeaseId, UndeliveredReleases};
use crate::node::{Environment, Node, Pool};
use crate::observe::EventLevel;
use crate::observe::event::Event;
use crate::protocol::{NodeId, Time};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, MutexGuard, OnceLock, catch_panic, lock, threads};
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;
use tokio::runtime::Id;
use tokio::sync::Notify;

/// Interval at which the alarm of an idle client fires.
pub(super) const IDLE: Duration = Duration::from_secs(3_600);

/// Number of registered calls at which calls without a caller are removed. A small number keeps the calls in the
/// processor's cache.
const PURGE_THRESHOLD: usize = 1 << 6;

pub(crate) struct Engine {
    pub(super) state: Mutex<State>,
    pub(super) requests: RequestQueue<State>,
    pub(super) io: Mutex<Io>,
    pub(super) opened: Mutex<Vec<(ConnectionId, Opened)>>,
    pub(super) task: TaskSignal,
    pub(super) alarm: ClientAlarm,
    /// Time after the wake-up of the task at which the task counts as late.
    pub(super) late_after: Duration,
    /// Whether the task was late when the alarm last fired and has not run since. The alarm then polls the connections
    /// in place of the task.
    pub(super) has_late_task: AtomicBool,
    pub(super) events: Arc<EventQueue>,
    /// Effects to apply after the task has unlocked the connections.
    delayed: Mutex<Vec<Effects>>,
    /// Whether a thread could not poll the connections because another thread was polling them. The other thread then
    /// wakes the task.
    pub(super) was_busy: AtomicBool,
    pub(super) leases: Arc<dyn LeaseListener>,
    pub(super) pool: Arc<Pool>,
    pub(super) this: Weak<Self>,
    pub(super) is_served: AtomicBool,
    /// Whether the runtime has left the task waiting for too long. A caller on another runtime can then replace it.
    pub(super) is_late: AtomicBool,
    pub(super) panic: OnceLock<Arc<str>>,
    /// Notified when the client is closed, and when the coordinator has panicked.
    pub(super) ended: Notify,
    /// ID of the process that created the engine. Differs from the current process ID after a fork.
    pub(super) process: u32,
    /// The replacement of this engine, created once this engine is not usable.
    pub(super) successor: OnceLock<Arc<Self>>,
}

pub(super) struct State {
    pub(super) coordinator: Coordinator,
    /// Calls in progress. The entry of an acquire is kept after the caller has taken the lease, until the next purge.
    pub(super) calls: HashMap<CallId, Arc<CallSlot>, BuildHasherDefault<CallIdHasher>>,
    pub(super) purge_at: usize,
    /// Callers that wait until a quorum is connected.
    pub(super) ready: Vec<Waker>,
    /// Wakers of callers and tasks, to be woken after the mutex is unlocked, even if the coordinator panics.
    pub(super) wakers: Vec<Waker>,
    /// Callers that wait for the end of a close. `closed` is the result of the close.
    pub(super) closing: Vec<Waker>,
    pub(super) closed: Option<Result<(), UndeliveredReleases>>,
    pub(super) served_by: Option<Id>,
    pub(super) has_started: bool,
    /// Whether the pinned runtime is known to be shut down.
    pub(super) is_shut_down: bool,
    pub(super) lateness: Lateness,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Thread {
    Caller,
    Turn,
    Timer,
}

/// Consequences of a change of the coordinator's state, which are applied after the mutex is unlocked.
#[derive(Default)]
pub(super) struct Effects {
    now: Time,
    wakers: Vec<Waker>,
    ended: Vec<LeaseId>,
    events: Vec<(EventLevel, Event)>,
    wakes_task: bool,
    is_closed: bool,
    next: Option<Time>,
}

impl State {
    /// Takes the wakers of all callers, oldest call first.
    pub(super) fn take_wakers(&mut self) -> Vec<Waker> {
        let mut calls: Vec<_> = self.calls.iter().collect();
        calls.sort_unstable_by_key(|(id, _)| **id);
        let mut wakers: Vec<_> = calls.iter().filter_map(|(_, call)| call.take_waker()).collect();
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
            | Completion::Period { call, .. }
            | Completion::ForceReleased { call, .. }
            | Completion::CutOff { call } => CallId::Round(*call),
            Completion::Changed { request } => CallId::Change(*request),
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
        // The call of an acquire stays registered: its lease can be revoked, and the acquire then continues.
        let slot = match completion {
            Completion::Acquired { .. } => self.calls.get(&call).cloned(),
            _ => self.calls.remove(&call),
        };
        self.wakers.extend(slot.and_then(|slot| slot.complete(completion)));
    }

    pub(super) fn insert_call(&mut self, id: CallId, slot: Arc<CallSlot>) {
        if self.calls.len() >= self.purge_at {
            self.calls.retain(|_, slot| Arc::strong_count(slot) > 1);
            self.purge_at = PURGE_THRESHOLD.max(2 * self.calls.len());
        }
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
                calls: HashMap::default(),
                purge_at: PURGE_THRESHOLD,
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
                ended: Notify::new(),
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
        &self.pool.nodes()[node.index()]
    }

    pub(crate) fn now(&self) -> Time {
        self.environment().clock.now()
    }

    /// Runs `call` on the coordinator, and applies the effects. Reads the clock while the mutex is locked, so `now`
    /// never goes back. Returns `None` if the engine is not usable.
    pub(crate) fn with<T>(&self, call: impl FnOnce(&mut Coordinator, Time) -> T) -> Option<T> {
        self.with_usable_state(|state, now| call(&mut state.coordinator, now))
    }

    /// Runs `call` on the engine's state, and applies the effects. Returns `None` if the engine is not usable.
    pub(super) fn with_usable_state<T>(
        &self,
        call: impl FnOnce(&mut State, Time) -> T,
    ) -> Option<T> {
        if self.is_usable() { self.with_state(Thread::Caller, call) } else { None }
    }

    pub(super) fn with_turn<T>(
        &self,
        thread: Thread,
        call: impl FnOnce(&mut Coordinator, Time) -> T,
    ) -> Option<T> {
        self.with_state(thread, |state, now| call(&mut state.coordinator, now))
    }

    /// Executes the queued requests, then `call`. Returns `None` if the coordinator has panicked.
    pub(super) fn with_state<T>(
        &self,
        thread: Thread,
        call: impl FnOnce(&mut State, Time) -> T,
    ) -> Option<T> {
        if thread == Thread::Caller {
            self.environment().observers.refresh();
        }
        self.with_guard(lock(&self.state), thread, call)
    }

    /// Like [`with_state`](Self::with_state), with the locked `state`.
    pub(super) fn with_guard<T>(
        &self,
        state: MutexGuard<'_, State>,
        thread: Thread,
        call: impl FnOnce(&mut State, Time) -> T,
    ) -> Option<T> {
        let result = self.with_locked(state, thread, call);
        if !self.is_served() {
            self.execute_requests();
        }
        result
    }

    /// Executes the queued requests and then `call` on the locked `state`. Unlocks `state` afterwards. Returns `None`
    /// if the coordinator has panicked.
    pub(super) fn with_locked<T>(
        &self,
        mut state: MutexGuard<'_, State>,
        thread: Thread,
        call: impl FnOnce(&mut State, Time) -> T,
    ) -> Option<T> {
        // A request that is not executed wakes its caller when it is dropped, which must happen after the mutex is
        // unlocked.
        let (mut requests, mut call) = (self.requests.take().into_iter(), Some(call));
        if self.has_panicked() {
            drop(state);
            return None;
        }
        let level = self.environment().observers.level();
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
                    // The connections are locked. An observer that blocks must not keep the alarm from using the
                    // connections.
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
            self.alarm.fire_by(next);
        }
        if effects.wakes_task {
            self.wake_task(effects.now, thread);
        }
        for lease in effects.ended {
            catch_panic(|| self.leases.handle_end(lease));
        }
        // An observer can block, but some threads serve all clients.
        let is_shared = thread == Thread::Timer || threads::is_shared();
        let is_elsewhere = is_shared && self.pool.has_own_threads();
        let (here, elsewhere) =
            if is_elsewhere { (Vec::new(), effects.events) } else { (effects.events, Vec::new()) };
        for (level, event) in here {
            self.environment().observers.emit(level, || event);
        }
        for waker in effects.wakers {
            catch_panic(|| waker.wake());
        }
        self.events.emit_elsewhere(elsewhere, self.pool.observers());
    }

    /// Applies the effects that the task has delayed. Must be called after the connections are unlocked.
    pub(super) fn apply_delayed(&self) {
        for effects in std::mem::take(&mut *lock(&self.delayed)) {
            self.apply(effects, Thread::Caller);
        }
    }

    pub(super) fn wake_ready(&self) {
        if !self.is_usable() {
            return;
        }
        let ready = std::mem::take(&mut lock(&self.state).ready);
        for waker in ready {
            catch_panic(|| waker.wake());
        }
    }
}
