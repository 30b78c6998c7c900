//! The completion of one call, shared by the caller and the thread that uses the coordinator.

use crate::coordinator::{AcquireId, ChangeId, Completion, RoundId};
use crate::protocol::{Loss, Time};
use crate::sync::{Mutex, catch_panic, lock};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::task::Waker;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CallId {
    Acquire(AcquireId),
    Round(RoundId),
    Change(ChangeId),
}

/// Hashes one number, for speed. Calls of different kinds with equal IDs have equal hashes.
impl Hash for CallId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Acquire(id) => id.hash(state),
            Self::Round(id) => id.hash(state),
            Self::Change(id) => id.hash(state),
        }
    }
}

/// A hash function for [`CallId`]s. It need not withstand chosen input, because the client itself numbers its calls.
#[derive(Default)]
pub(super) struct CallIdHasher(u64);

impl Hasher for CallIdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // The odd integer nearest to 2^64 divided by the golden ratio distributes consecutive numbers evenly.
        self.0 = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[derive(Default)]
pub(super) struct CallSlot(Mutex<CallState>);

#[derive(Default)]
struct CallState {
    /// `None` until the request is executed.
    id: Option<CallId>,
    waker: Option<Waker>,
    completion: Option<Completion>,
    /// Whether the call has ended without a completion, because the lease to release was already released.
    is_void: bool,
    /// Whether the request was dropped before it was executed, because the coordinator has panicked.
    is_dropped: bool,
}

pub(super) enum Polled {
    Over(Option<Completion>),
    Dropped,
    /// The lease has ended or was revoked before the caller took it. The acquire must continue.
    Untaken(AcquireId),
    Pending,
}

impl CallSlot {
    pub(super) fn set_id(&self, id: CallId) {
        lock(&self.0).id = Some(id);
    }

    pub(super) fn id(&self) -> Option<CallId> {
        lock(&self.0).id
    }

    pub(super) fn take_waker(&self) -> Option<Waker> {
        lock(&self.0).waker.take()
    }

    /// Stores the completion, and returns the caller's waker.
    pub(super) fn complete(&self, completion: Completion) -> Option<Waker> {
        let mut state = lock(&self.0);
        let earlier = state.completion.replace(completion);
        let waker = state.waker.take();
        drop(state);
        drop(earlier);
        waker
    }

    /// Ends the call without a completion, because the lease to release was already released. Returns the caller's
    /// waker.
    pub(super) fn make_void(&self) -> Option<Waker> {
        let mut state = lock(&self.0);
        state.is_void = true;
        state.waker.take()
    }

    /// After a panic of the coordinator, ends an acquired lease as lost if the caller has not taken it.
    pub(super) fn handle_panic(&self) {
        if let Some(Completion::Acquired { shared, .. }) = &lock(&self.0).completion {
            shared.end_as(Loss::Internal);
        }
    }

    /// Takes the completion if the call has ended. Otherwise, registers the caller's `waker`.
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
        let mut replaced = None;
        if !state.waker.as_ref().is_some_and(|it| it.will_wake(waker)) {
            replaced = state.waker.replace(waker.clone());
        }
        drop(state);
        // The drop of a waker is code of the program, which may close the client.
        catch_panic(|| drop(replaced));
        polled
    }
}

/// The slot of a call whose request has not been executed yet. If the coordinator panics, the request is dropped
/// together with its `Unsubmitted`, which makes the call fail.
pub(super) struct Unsubmitted(Option<Arc<CallSlot>>);

impl Unsubmitted {
    pub(super) fn new(slot: Arc<CallSlot>) -> Self {
        Self(Some(slot))
    }

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
            catch_panic(|| waker.wake());
        }
    }
}
