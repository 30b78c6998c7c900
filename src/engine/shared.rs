//! The coordinator of a client, behind one mutex, with the callers that wait for it.

use super::calls::Call;
use super::io::NodeIo;
use crate::coordinator::{AcquireId, Completion, Coordinator, LeaseId, Remains, RoundId};
use crate::lease::LeaseState;
use crate::node::{Environment, NoRuntime, NodeShared, Pool};
use crate::observe::Weight;
use crate::observe::event::Event;
use crate::protocol::{NodeId, Tenure, Time, Ttl};
use crate::sync::{contain, lock};
use crate::time::{Alarm, Ring};
use crate::wire::Key;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

/// The alarm of a client that has nothing to do.
const IDLE: Duration = Duration::from_secs(3_600);

/// Everything that the threads of a client share.
pub(crate) struct Engine {
    state: Mutex<State>,
    pub(super) nodes: Box<[NodeIo]>,
    pub(super) pool: Arc<Pool>,
    this: Weak<Self>,
}

struct State {
    coordinator: Coordinator,
    calls: BTreeMap<CallId, CallState>,
    leases: BTreeMap<LeaseId, Weak<LeaseState>>,
    /// Callers that wait for a quorum of connections.
    ready: Vec<Waker>,
    /// Callers that wait for the end of a close, and its result.
    closing: Vec<Waker>,
    closed: Option<Result<(), Remains>>,
    /// Whether a task serves each node.
    is_served: Box<[bool]>,
    alarm: Option<Alarm>,
    /// When the alarm rings.
    alarm_at: Time,
}

/// Identifies a call that waits for a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CallId {
    Acquire(AcquireId),
    Round(RoundId),
}

#[derive(Default)]
pub(super) struct CallState {
    pub(super) waker: Option<Waker>,
    pub(super) completion: Option<Completion>,
}

/// What follows from a change of the coordinator, to be done without the mutex.
#[derive(Default)]
struct Effects {
    wakers: Vec<Waker>,
    ended: Vec<Arc<LeaseState>>,
    events: Vec<(Weight, Event)>,
    nodes: Vec<NodeId>,
    /// The alarm of a closed client.
    alarm: Option<Alarm>,
}

impl State {
    fn collect(&mut self, now: Time, except: Option<NodeId>, nodes: &[NodeIo]) -> Effects {
        let mut effects = Effects::default();
        while let Some(completion) = self.coordinator.poll_completion() {
            self.complete(completion, &mut effects);
        }
        effects.events.extend(std::iter::from_fn(|| self.coordinator.poll_event()));
        while let Some(connection) = self.coordinator.poll_close() {
            effects.nodes.push(connection.node);
        }
        let it = &self.coordinator;
        let wanted = nodes.iter().map(NodeIo::node).filter(|node| {
            let can_write = || !nodes[node.index()].is_blocked();
            it.wants_connection(*node, now) || it.wants_to_write(*node, now) && can_write()
        });
        effects.nodes.extend(wanted);
        effects.nodes.retain(|node| Some(*node) != except);
        if self.coordinator.is_closed() {
            effects.nodes = (0..self.is_served.len()).map(NodeId::new).collect();
            effects.alarm = self.alarm.take();
            return effects;
        }
        let next = self.coordinator.poll_timeout(now).unwrap_or_else(|| now.after(IDLE));
        if next < self.alarm_at {
            self.alarm_at = next;
            if let Some(alarm) = &self.alarm {
                alarm.hasten(next);
            }
        }
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
                let state = self.leases.get(lease).and_then(Weak::upgrade);
                return effects.ended.extend(state);
            }
            Completion::Ready => return effects.wakers.append(&mut self.ready),
            Completion::Closed(_) => {
                if let Completion::Closed(result) = completion {
                    self.closed = Some(result);
                }
                return effects.wakers.append(&mut self.closing);
            }
        };
        if let Some(state) = self.calls.get_mut(&call) {
            state.completion = Some(completion);
            effects.wakers.extend(state.waker.take());
        }
    }
}

impl Engine {
    pub(crate) fn new(coordinator: Coordinator, pool: Arc<Pool>) -> Arc<Self> {
        let count = pool.shared().len();
        Arc::new_cyclic(|this: &Weak<Self>| {
            let state = State {
                coordinator,
                calls: BTreeMap::new(),
                leases: BTreeMap::new(),
                ready: Vec::new(),
                closing: Vec::new(),
                closed: None,
                is_served: vec![false; count].into(),
                alarm: None,
                alarm_at: Time::END,
            };
            let nodes = (0..count).map(|node| NodeIo::new(NodeId::new(node))).collect();
            Self { state: Mutex::new(state), nodes, pool, this: this.clone() }
        })
    }

    pub(crate) fn environment(&self) -> &Environment {
        self.pool.environment()
    }

    pub(super) fn shared(&self, node: NodeId) -> &Arc<NodeShared> {
        &self.pool.shared()[node.index()]
    }

    pub(crate) fn now(&self) -> Time {
        self.environment().clock.now()
    }

    /// Calls the coordinator, and does what follows from that. `now` is read with the mutex held, so it never goes back.
    pub(crate) fn with<T>(&self, call: impl FnOnce(&mut Coordinator, Time) -> T) -> T {
        self.with_state(None, |state, now| call(&mut state.coordinator, now))
    }

    /// Like [`with`](Self::with), for the one who takes a turn for `node`.
    pub(super) fn with_io<T>(
        &self,
        node: NodeId,
        call: impl FnOnce(&mut Coordinator, Time) -> T,
    ) -> T {
        self.with_state(Some(node), |state, now| call(&mut state.coordinator, now))
    }

    fn with_state<T>(
        &self,
        except: Option<NodeId>,
        call: impl FnOnce(&mut State, Time) -> T,
    ) -> T {
        let mut state = lock(&self.state);
        let now = self.now();
        let result = call(&mut state, now);
        let effects = state.collect(now, except, &self.nodes);
        drop(state);
        self.apply(effects);
        result
    }

    fn apply(&self, effects: Effects) {
        for node in effects.nodes {
            self.nodes[node.index()].wake();
        }
        for (weight, event) in effects.events {
            self.environment().observers.emit(weight, || event);
        }
        for lease in effects.ended {
            contain(|| lease.handle_end());
        }
        for waker in effects.wakers {
            contain(|| waker.wake());
        }
    }

    /// Submits a request whose completion is awaited.
    pub(super) fn submit<T>(
        &self,
        submit: impl FnOnce(&mut Coordinator, Time) -> T,
        id: impl FnOnce(&T) -> Option<CallId>,
    ) -> T {
        self.with_state(None, |state, now| {
            let result = submit(&mut state.coordinator, now);
            if let Some(id) = id(&result) {
                state.calls.insert(id, CallState::default());
            }
            result
        })
    }

    /// Like [`submit`](Self::submit), for one call per lease.
    pub(super) fn submit_all(
        &self,
        submit: impl FnOnce(&mut Coordinator, Time) -> Vec<(Key, RoundId)>,
    ) -> Vec<(Key, RoundId)> {
        self.with_state(None, |state, now| {
            let calls = submit(&mut state.coordinator, now);
            for (_, id) in &calls {
                state.calls.insert(CallId::Round(*id), CallState::default());
            }
            calls
        })
    }

    /// Submits an extension.
    pub(crate) fn extend(self: &Arc<Self>, lease: LeaseId, ttl: Ttl) -> Result<Call, Tenure> {
        let submit = |it: &mut Coordinator, now| it.handle_extend(lease, ttl, now);
        let id = self.submit(submit, |id| id.as_ref().ok().map(|id| CallId::Round(*id)));
        id.map(|id| Call::new(self, CallId::Round(id)))
    }

    /// Submits a release.
    pub(crate) fn release(self: &Arc<Self>, lease: LeaseId, cool_down: Option<Ttl>) -> Option<Call> {
        let submit = |it: &mut Coordinator, now| it.handle_release(lease, cool_down, now);
        let id = self.submit(submit, |id| id.map(CallId::Round));
        id.map(|id| Call::new(self, CallId::Round(id)))
    }

    /// Wakes the callers that wait for a quorum of connections.
    pub(super) fn wake_ready(&self) {
        let ready = std::mem::take(&mut lock(&self.state).ready);
        for waker in ready {
            contain(|| waker.wake());
        }
    }

    /// Takes the completion of a call, or registers the waker of its caller.
    pub(super) fn poll_call(&self, id: CallId, waker: &Waker) -> Option<Completion> {
        let mut state = lock(&self.state);
        let call = state.calls.get_mut(&id)?;
        let completion = call.completion.take();
        if completion.is_none() && !call.waker.as_ref().is_some_and(|it| it.will_wake(waker)) {
            call.waker = Some(waker.clone());
        }
        completion
    }

    pub(super) fn forget_call(&self, id: CallId) {
        let call = lock(&self.state).calls.remove(&id);
        drop(call);
    }

    pub(crate) fn enter_lease(&self, id: LeaseId, lease: &Arc<LeaseState>) {
        lock(&self.state).leases.insert(id, Arc::downgrade(lease));
    }

    pub(crate) fn forget_lease(&self, id: LeaseId) {
        lock(&self.state).leases.remove(&id);
    }

    /// The leases that were not released.
    pub(crate) fn leases(&self) -> Vec<Arc<LeaseState>> {
        let state = lock(&self.state);
        state.leases.values().filter_map(Weak::upgrade).collect()
    }

    /// True once a quorum is connected. Otherwise `waker` is woken when it may be.
    pub(super) fn poll_ready(&self, waker: &Waker) -> bool {
        self.with_state(None, |state, now| {
            let is_ready = state.coordinator.is_ready(now);
            if !is_ready {
                state.ready.push(waker.clone());
                state.coordinator.handle_ready(now);
            }
            is_ready
        })
    }

    /// The result of the close, once there is one.
    pub(super) fn poll_closed(&self, waker: &Waker) -> Option<Result<(), Remains>> {
        let mut state = lock(&self.state);
        let result = state.closed.take();
        if result.is_none() {
            state.closing.push(waker.clone());
        }
        result
    }

    /// Starts the tasks that are missing, on the pinned runtime or the current one.
    pub(crate) fn ensure_tasks(&self) -> Result<(), NoRuntime> {
        let missing: Vec<_> = {
            let state = lock(&self.state);
            let served = state.is_served.iter().enumerate().filter(|(_, is_served)| !**is_served);
            served.map(|(node, _)| NodeId::new(node)).collect()
        };
        if missing.is_empty() {
            return Ok(());
        }
        let runtime = self.pool.runtime()?;
        let Some(this) = self.this.upgrade() else { return Ok(()) };
        let mut started = Vec::new();
        {
            let mut state = lock(&self.state);
            if state.alarm.is_none() && !state.coordinator.is_closed() {
                let ring: Weak<dyn Ring> = self.this.clone();
                let now = self.now();
                state.alarm = Some(self.environment().clock.set_alarm(now, ring));
                state.alarm_at = now;
            }
            for node in missing {
                if !std::mem::replace(&mut state.is_served[node.index()], true) {
                    started.push(node);
                }
            }
        }
        for node in started {
            super::task::start(&this, node, &runtime);
        }
        Ok(())
    }

    /// The task of `node` has ended. All callers run, and one of them starts another task.
    pub(super) fn handle_task_end(&self, node: NodeId) {
        let wakers: Vec<_> = {
            let mut state = lock(&self.state);
            state.is_served[node.index()] = false;
            let calls = state.calls.values_mut().filter_map(|call| call.waker.take());
            let mut wakers: Vec<_> = calls.collect();
            wakers.append(&mut state.ready);
            wakers.append(&mut state.closing);
            wakers
        };
        for lease in self.leases() {
            contain(|| lease.handle_end());
        }
        for waker in wakers {
            contain(|| waker.wake());
        }
    }
}

impl Ring for Engine {
    /// Takes turns for nodes whose tasks are late, and handles timeouts.
    fn ring(self: Arc<Self>, _: Time) -> Option<Time> {
        self.take_turns();
        let mut next = self.handle_timeout();
        // A node counts as silent only if there is still no reply once all replies that have arrived were read.
        if next.is_some_and(|at| at <= self.now()) {
            self.take_turns();
            next = self.handle_timeout();
        }
        next
    }
}

impl Engine {
    fn take_turns(self: &Arc<Self>) {
        for io in &self.nodes {
            io.take_turn(self, &mut Context::from_waker(Waker::noop()), false);
        }
    }

    /// Handles timeouts that are due. Returns when the alarm has to ring next, or `None` if the client is closed.
    fn handle_timeout(&self) -> Option<Time> {
        self.with_state(None, |state, now| {
            if state.coordinator.poll_timeout(now).is_some_and(|at| at <= now) {
                state.coordinator.handle_timeout(now);
            }
            // The alarm is set by the returned time.
            let next = state.coordinator.poll_timeout(now).unwrap_or_else(|| now.after(IDLE));
            state.alarm_at = next;
            (!state.coordinator.is_closed()).then_some(next)
        })
    }
}
