//! What a node's tasks leave behind, and which of the others take it on.

use super::queued_command::QueuedCommand;
use crate::protocol::{Broken, NodeId, StaleWindow, Time};
use crate::sync::lock;
use futures::task::AtomicWaker;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll};

/// The most commands kept for a node until a task of it takes them (I12); beyond, the oldest is
/// dropped, and its key lives for its ttl.
const MAX_LEFT: usize = 1 << 16;

/// What the tasks of shut-down runtimes left behind. It is offered to all tasks of the node, and the
/// first that can write it takes it: a runtime that lives may not be driven by anybody.
#[derive(Default)]
pub(super) struct Handover {
    state: Mutex<State>,
    /// True if commands were left: looked at before each write.
    has_left: AtomicBool,
    /// True if there are broken connections: looked at before each write.
    has_broken: AtomicBool,
    /// True once the client was closed, and nothing is owed: its tasks end.
    is_ended: AtomicBool,
}

#[derive(Default)]
struct State {
    left: VecDeque<QueuedCommand>,
    stale: StaleWindow<Arc<str>>,
    tasks: Vec<Weak<Bell>>,
}

/// Wakes a task when something was left.
#[derive(Default)]
pub(super) struct Bell(AtomicWaker);

impl Handover {
    /// Enters a task that can take on what others leave.
    pub(super) fn enter(&self) -> Arc<Bell> {
        let bell = Arc::<Bell>::default();
        let mut state = lock(&self.state);
        state.tasks.retain(|task| task.strong_count() > 0);
        state.tasks.push(Arc::downgrade(&bell));
        bell
    }

    /// A task takes on nothing any more.
    pub(super) fn exit(&self, bell: &Arc<Bell>) {
        lock(&self.state).tasks.retain(|task| !std::ptr::eq(task.as_ptr(), Arc::as_ptr(bell)));
    }

    /// True if there is a task, though it may not be driven.
    pub(super) fn is_served(&self) -> bool {
        lock(&self.state).tasks.iter().any(|task| task.strong_count() > 0)
    }

    /// Leaves `command` to whichever task can write it first.
    pub(super) fn leave(&self, command: QueuedCommand) {
        let (bells, dropped) = {
            let mut state = lock(&self.state);
            state.left.push_back(command);
            self.has_left.store(true, Ordering::Release);
            let dropped = if state.left.len() > MAX_LEFT { state.left.pop_front() } else { None };
            (state.tasks.iter().filter_map(Weak::upgrade).collect::<Vec<_>>(), dropped)
        };
        // Votes are cast, and tasks woken, without the lock.
        drop(dropped);
        for bell in bells {
            bell.0.wake();
        }
    }

    /// Nothing more is to be delivered: lets the tasks end, and their connections.
    pub(super) fn end(&self) {
        self.is_ended.store(true, Ordering::Release);
        let bells: Vec<_> = lock(&self.state).tasks.iter().filter_map(Weak::upgrade).collect();
        for bell in bells {
            bell.0.wake();
        }
    }

    pub(super) fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Acquire)
    }

    /// Ready once the end has come that is not `known` yet.
    pub(super) fn poll_end(&self, bell: &Bell, known: bool, cx: &Context<'_>) -> Poll<()> {
        bell.0.register(cx.waker());
        if self.is_ended() && !known { Poll::Ready(()) } else { Poll::Pending }
    }

    pub(super) fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Acquire)
    }

    /// Ready once something was left, or the end has come that is not `known` yet.
    pub(super) fn poll_left(&self, bell: &Bell, known: bool, cx: &Context<'_>) -> Poll<()> {
        bell.0.register(cx.waker());
        let is_over = self.is_ended() && !known;
        if self.has_left() || is_over { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Takes up to `most` commands, to be written at once. `None` if there are broken connections that
    /// were not `handled`: what they may still deliver must not come after what is written now (I8).
    pub(super) fn take(
        &self,
        most: usize,
        handled: &[Broken<Arc<str>>],
    ) -> Option<Vec<QueuedCommand>> {
        if !self.has_left() && !self.has_broken() {
            return Some(Vec::new());
        }
        let mut state = lock(&self.state);
        if state.stale.has_unhandled(handled) {
            return None;
        }
        let count = state.left.len().min(most);
        let taken = state.left.drain(..count).collect();
        self.has_left.store(!state.left.is_empty(), Ordering::Release);
        Some(taken)
    }

    /// Takes all that was left, to be kept for a connection.
    pub(super) fn take_all(&self) -> VecDeque<QueuedCommand> {
        if !self.has_left() {
            return VecDeque::new();
        }
        let mut state = lock(&self.state);
        self.has_left.store(false, Ordering::Release);
        std::mem::take(&mut state.left)
    }

    /// Drops what has no use any more.
    pub(super) fn prune(&self, node: NodeId, now: Time) {
        if !self.has_left() {
            return;
        }
        let pruned = {
            let mut state = lock(&self.state);
            let left = std::mem::take(&mut state.left);
            let (left, pruned) = left.into_iter().partition(|command| command.is_of_use(node, now));
            state.left = left;
            self.has_left.store(!state.left.is_empty(), Ordering::Release);
            pruned
        };
        // Votes are cast without the lock.
        drop::<VecDeque<QueuedCommand>>(pruned);
    }

    pub(super) fn note_broken(&self, broken: Broken<Arc<str>>) {
        lock(&self.state).stale.handle_broken(broken);
        self.has_broken.store(true, Ordering::Release);
    }

    /// True if there are broken connections that nobody has seen to.
    pub(super) fn has_broken(&self) -> bool {
        self.has_broken.load(Ordering::Acquire)
    }

    /// The connections that broke and may still deliver something.
    pub(super) fn broken(&self) -> Vec<Broken<Arc<str>>> {
        lock(&self.state).stale.broken().to_vec()
    }

    /// The connections `handled` were killed over one to `run`, or not: see [`StaleWindow`].
    pub(super) fn handle_killed(
        &self,
        handled: &[Broken<Arc<str>>],
        run: Option<&Arc<str>>,
        are_killed: bool,
        now: Time,
    ) {
        let mut state = lock(&self.state);
        state.stale.handle_killed(handled, run, are_killed, now);
        self.has_broken.store(!state.stale.broken().is_empty(), Ordering::Release);
    }

    /// True if what was written at `written` may come before what a broken connection delivers, whichever
    /// task's it was.
    pub(super) fn may_undo(&self, written: Time) -> bool {
        lock(&self.state).stale.may_undo(written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::claim::Claim;
    use crate::random::Random;
    use crate::sync::tests::Count;
    use crate::wire::{Keys, Value};
    use std::task::Waker;

    fn release() -> QueuedCommand {
        let claim =
            Claim::new(Keys::one(b"k".as_slice().into()), Value::fresh(&Random::Machine), 1);
        QueuedCommand::release(Arc::new(claim), None)
    }

    fn broken(id: i64) -> Broken<Arc<str>> {
        Broken { run: Some("a server".into()), client_id: Some(id) }
    }

    #[test]
    fn what_is_left_and_the_end_are_told_to_every_task_that_lives() {
        let handover = Handover::default();
        let tasks: Vec<_> = (0..3).map(|_| (handover.enter(), Arc::<Count>::default())).collect();
        let poll = |(bell, count): &(Arc<Bell>, Arc<Count>)| {
            let waker = Waker::from(count.clone());
            handover.poll_left(bell, false, &Context::from_waker(&waker))
        };
        let woken = || -> Vec<_> {
            tasks.iter().map(|(_, count)| count.0.swap(0, Ordering::Relaxed)).collect()
        };
        assert!(handover.is_served() && tasks.iter().all(|task| poll(task).is_pending()));
        handover.leave(release());
        assert_eq!(woken(), [1, 1, 1], "nobody knows which of them is driven");
        assert!(tasks.iter().all(|task| poll(task).is_ready()));
        assert_eq!(handover.take(5, &[]).map(|left| left.len()), Some(1));
        assert!(tasks.iter().all(|task| poll(task).is_pending()));
        handover.end();
        assert_eq!(woken(), [1, 1, 1]);
        drop(tasks);
        assert!(!handover.is_served());
    }

    #[test]
    fn nothing_is_taken_before_every_broken_connection_was_seen_to() {
        let handover = Handover::default();
        handover.leave(release());
        handover.note_broken(broken(1));
        assert!(handover.take(5, &[]).is_none(), "its SET may come after the release");
        let handled = handover.broken();
        handover.note_broken(broken(2));
        assert!(handover.take(5, &handled).is_none(), "another broke meanwhile");
        let now = Time::from_nanos(1);
        handover.handle_killed(&handled, Some(&"a server".into()), true, now);
        assert_eq!(handover.broken(), [broken(2)]);
        assert!(handover.take(5, &handled).is_none());
        assert_eq!(handover.take(5, &[broken(2)]).map(|left| left.len()), Some(1));
        assert!(!handover.has_left() && handover.has_broken() && !handover.may_undo(now));
        handover.handle_killed(&[broken(2)], None, true, now);
        assert!(!handover.has_broken() && handover.may_undo(now));
    }
}
