//! The completion of one call, shared by the coordinator's user and the caller.

use crate::coordinator::{AcquireId, Acquires, Completion, RoundId, Rounds, SlotMap};
use crate::protocol::{Loss, Time};
use crate::sync::{Mutex, contain, lock};
use std::sync::Arc;
use std::task::Waker;

/// Identifies a call that waits for a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CallId {
    Acquire(AcquireId),
    Round(RoundId),
}

/// The slots of calls.
pub(super) struct Calls {
    acquires: SlotMap<Acquires, Arc<CallSlot>>,
    rounds: SlotMap<Rounds, Arc<CallSlot>>,
}

impl Calls {
    pub(super) fn new() -> Self {
        Self { acquires: SlotMap::new(), rounds: SlotMap::new() }
    }

    pub(super) fn insert(&mut self, id: CallId, slot: Arc<CallSlot>) {
        match id {
            CallId::Acquire(id) => self.acquires.insert(id, slot),
            CallId::Round(id) => self.rounds.insert(id, slot),
        }
    }

    pub(super) fn get(&self, id: CallId) -> Option<&Arc<CallSlot>> {
        match id {
            CallId::Acquire(id) => self.acquires.get(id),
            CallId::Round(id) => self.rounds.get(id),
        }
    }

    pub(super) fn remove(&mut self, id: CallId) -> Option<Arc<CallSlot>> {
        match id {
            CallId::Acquire(id) => self.acquires.remove(id),
            CallId::Round(id) => self.rounds.remove(id),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<CallSlot>> {
        let acquires = self.acquires.iter().map(|(_, slot)| slot);
        acquires.chain(self.rounds.iter().map(|(_, slot)| slot))
    }
}

/// Where the coordinator's user passes the completion of a call to its caller.
#[derive(Default)]
pub(super) struct CallSlot(Mutex<CallState>);

#[derive(Default)]
struct CallState {
    /// `None` until the request is executed.
    id: Option<CallId>,
    waker: Option<Waker>,
    completion: Option<Completion>,
    /// True if the coordinator knows no lease to release.
    is_void: bool,
    /// True if the request was not executed, because the coordinator has panicked.
    is_dropped: bool,
}

/// Result of a poll of a call.
pub(super) enum Polled {
    Over(Option<Completion>),
    /// The request was not executed, because the coordinator has panicked.
    Dropped,
    /// The lease of this acquire has ended or was revoked: the acquire continues.
    Untaken(AcquireId),
    Pending,
}

impl CallSlot {
    pub(super) fn set_id(&self, id: CallId) {
        lock(&self.0).id = Some(id);
    }

    /// `None` until the request is executed.
    pub(super) fn id(&self) -> Option<CallId> {
        lock(&self.0).id
    }

    pub(super) fn take_waker(&self) -> Option<Waker> {
        lock(&self.0).waker.take()
    }

    /// Returns the waker of the caller.
    pub(super) fn complete(&self, completion: Completion) -> Option<Waker> {
        let mut state = lock(&self.0);
        let earlier = state.completion.replace(completion);
        let waker = state.waker.take();
        drop(state);
        drop(earlier);
        waker
    }

    /// There is no lease to release. Returns the waker of the caller.
    pub(super) fn make_void(&self) -> Option<Waker> {
        let mut state = lock(&self.0);
        state.is_void = true;
        state.waker.take()
    }

    /// Ends a lease that its caller has not taken as lost: the coordinator has panicked.
    pub(super) fn handle_panic(&self) {
        if let Some(Completion::Acquired { shared, .. }) = &lock(&self.0).completion {
            shared.end_as(Loss::Internal);
        }
    }

    /// Takes the completion, or registers the `waker` of the caller.
    pub(super) fn poll(&self, waker: &Waker, now: impl FnOnce() -> Time) -> Polled {
        let mut state = lock(&self.0);
        let polled = match state.completion.take() {
            Some(Completion::Acquired { acquire, ref shared, .. }) if !shared.take(now()) => {
                Polled::Untaken(acquire)
            }
            Some(completion) => return Polled::Over(Some(completion)),
            None if state.is_void => return Polled::Over(None),
            None if state.is_dropped => return Polled::Dropped,
            None => Polled::Pending,
        };
        if !state.waker.as_ref().is_some_and(|it| it.will_wake(waker)) {
            state.waker = Some(waker.clone());
        }
        polled
    }
}

/// The slot of a call whose request was not executed yet. Its drop fails the call: the coordinator has panicked.
pub(super) struct Unsubmitted(Option<Arc<CallSlot>>);

impl Unsubmitted {
    pub(super) fn new(slot: Arc<CallSlot>) -> Self {
        Self(Some(slot))
    }

    /// The slot, once the request is executed.
    pub(super) fn take(&mut self) -> Option<Arc<CallSlot>> {
        self.0.take()
    }
}

impl Drop for Unsubmitted {
    fn drop(&mut self) {
        let Some(slot) = self.0.take() else { return };
        let mut state = lock(&slot.0);
        state.is_dropped = true;
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            contain(|| waker.wake());
        }
    }
}
