//! One acquire that waits, and its future's waker.

use super::adoption::PreviousGuard;
use super::queue::Ticket;
use crate::node::Claim;
use crate::protocol::{
    Contention, FreeNodes, IdleAction, NodeId, NodeSet, Quorum, Round, Time, Turn, Waiting,
};
use crate::round::{ReleaseGuard, Tally};
use crate::sync::{contain, lock};
use crate::time::Clock;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

/// One acquire that may wait. It is the waker of its future: so it knows when that was woken and
/// not polled.
pub(super) struct Waiter {
    clock: Clock,
    /// When it joined those who want several locks together, if it is one of them.
    joined: Option<Ticket>,
    state: Mutex<State>,
}

struct State {
    waiting: Waiting,
    task: Option<Waker>,
    /// The round of the last attempt.
    tally: Option<Arc<Tally>>,
    /// What the attempt under way may hold.
    attempt: Option<AttemptGuard>,
    /// How many nodes were heard when it was last seen which of several keys were in the way.
    heard: usize,
}

impl State {
    /// The nodes that have granted the last attempt.
    fn granted(&self) -> NodeSet {
        self.tally.as_ref().map(|tally| tally.with_round(Round::granted)).unwrap_or_default()
    }
}

/// Guards of an attempt under way. Dropped in this order: an adopted lease ends before the releases are sent, and a
/// client that closes waits for the permits, and then everything must have been given up.
pub(crate) struct AttemptGuard {
    /// Only of an adoption.
    pub(crate) previous: Option<Box<PreviousGuard>>,
    pub(crate) release: ReleaseGuard,
    pub(crate) permit: OwnedSemaphorePermit,
    /// Until when winning it means anything.
    pub(crate) valid_until: Time,
}

impl Waiter {
    pub(super) fn new(clock: Clock, deadline: Time, joined: Option<Ticket>) -> Self {
        let waiting = Waiting::new(deadline);
        let state = State { waiting, task: None, tally: None, attempt: None, heard: 0 };
        Self { clock, joined, state: Mutex::new(state) }
    }

    /// When it joined those who want several locks together, if it is one of them.
    pub(super) fn joined(&self) -> Option<Ticket> {
        self.joined
    }

    /// Polls the acquire that this waiter stands for.
    pub(super) fn poll<F: Future + ?Sized>(
        self: &Arc<Self>,
        acquire: Pin<&mut F>,
        task: &Waker,
    ) -> Poll<F::Output> {
        {
            let mut state = self.state();
            state.waiting.handle_poll();
            if !state.task.as_ref().is_some_and(|known| known.will_wake(task)) {
                state.task = Some(task.clone());
            }
        }
        let waker = Waker::from(self.clone());
        acquire.poll(&mut Context::from_waker(&waker))
    }

    /// There is a reason to try again at `at`.
    pub(super) fn wake_for(self: &Arc<Self>, at: Time) {
        self.state().waiting.schedule_try(at);
        self.wake_by_ref();
    }

    /// True while it may compete: it may have been set aside.
    pub(super) fn is_first(&self) -> bool {
        self.state().waiting.is_first()
    }

    /// Nobody stands before it. True if that is new.
    pub(super) fn take_turn(&self) -> bool {
        let waiting = &mut self.state().waiting;
        let is_new = waiting.is_queued();
        if is_new {
            waiting.handle_turn();
        }
        is_new
    }

    /// Other clients compete for the lock. This client has lost races to them before.
    pub(super) fn handle_rivals(&self, contention: Contention) {
        self.state().waiting.handle_rivals(contention);
    }

    /// The same for a client that has just used the lock.
    pub(super) fn handle_return(&self, contention: Contention, now: Time) {
        self.state().waiting.handle_return(contention, now);
    }

    /// Its client lets others go first. Returns how long they may take to react.
    pub(super) fn handle_yield(&self) -> Duration {
        self.state().waiting.handle_yield()
    }

    /// Its attempt was won.
    pub(super) fn handle_win(&self) {
        self.state().waiting.handle_win();
    }

    /// State that the client's next acquire inherits.
    pub(super) fn contention(&self) -> Contention {
        self.state().waiting.contention()
    }

    /// When its rest ends.
    pub(super) fn rests_until(&self) -> Time {
        self.state().waiting.rests_until()
    }

    /// It stands in no queue, and may compete.
    pub(super) fn roam(&self) {
        self.state().waiting.handle_turn();
    }

    /// It goes to the end of another queue.
    pub(super) fn handle_requeued(&self) {
        self.state().waiting.handle_requeued();
    }

    /// Its future moves: whether it may compete, and where it stands from now on.
    pub(super) fn next_turn(&self) -> Turn {
        self.state().waiting.next_turn()
    }

    /// When it next has a reason to try.
    pub(super) fn try_at(&self) -> Option<Time> {
        self.state().waiting.try_at()
    }

    /// What is to become of it at `now`, if it does not move.
    pub(super) fn idle_action(&self, now: Time) -> Option<IdleAction> {
        self.state().waiting.idle_action(now)
    }

    /// Takes its turn away, and what its attempt holds, unless it has moved by `now`. False if it has.
    pub(super) fn suspend(&self, now: Time, given_up: &mut Vec<AttemptGuard>) -> bool {
        let mut state = self.state();
        let is_idle = state.waiting.suspend(now);
        if is_idle {
            given_up.extend(state.attempt.take());
        }
        is_idle
    }

    /// Takes its turn away, and what its attempt holds, whether it moves or not.
    pub(super) fn give_up(&self, given_up: &mut Vec<AttemptGuard>) {
        let mut state = self.state();
        state.waiting.give_up();
        given_up.extend(state.attempt.take());
    }

    /// An attempt begins.
    pub(super) fn begin(&self, attempt: AttemptGuard, tally: Arc<Tally>) {
        let mut state = self.state();
        state.waiting.handle_begin(attempt.valid_until);
        state.heard = 0;
        state.attempt = Some(attempt);
        state.tally = Some(tally);
    }

    /// The attempt ends. What it holds; `None` if it was given up because the future was not polled.
    pub(super) fn end(&self) -> Option<AttemptGuard> {
        let mut state = self.state();
        state.waiting.handle_end();
        state.attempt.take()
    }

    /// Its attempt was refused.
    pub(super) fn handle_refusal(&self, quorum: Quorum, random: u64) {
        let mut state = self.state();
        let free = FreeNodes { nodes: state.granted(), ..FreeNodes::default() };
        let holder = state.tally.as_ref().and_then(|tally| tally.holder());
        state.waiting.handle_holder(holder);
        state.waiting.handle_refusal(free, quorum, self.clock.now(), random);
    }

    /// The nodes that reported the key deleted, if the next attempt asks one of them before the other nodes.
    pub(super) fn asks_one_of(&self) -> Option<NodeSet> {
        let waiting = &self.state().waiting;
        // For several keys, different nodes can name different ones.
        (self.joined.is_none() && waiting.asks_one_first()).then(|| waiting.freed())
    }

    /// Only `node` received the attempt, and refused it. It pushes when the key is deleted.
    pub(super) fn handle_single_refusal(&self, node: NodeId, quorum: Quorum, random: u64) {
        let mut state = self.state();
        // What the last attempt was granted is of the past.
        let past = state.tally.take();
        state.waiting.handle_holder(past.as_ref().and_then(|tally| tally.holder()));
        state.waiting.handle_single_refusal(node, quorum, self.clock.now(), random);
        drop(state);
        drop(past);
    }

    /// What the attempt under way claims.
    pub(super) fn claim(&self) -> Option<Arc<Claim>> {
        self.state().attempt.as_ref().map(|attempt| attempt.release.claim().clone())
    }

    /// `node` says that all may be gone there that could be in the way.
    pub(super) fn handle_freed(&self, node: NodeId) {
        self.state().waiting.handle_freed(node);
    }

    /// When it is worth while to try again, if it is. `freed` is where the one of several keys has gone that was in its way.
    pub(super) fn next_useful_try(&self, freed: FreeNodes, quorum: Quorum) -> Option<Time> {
        let mut state = self.state();
        let free = FreeNodes { nodes: state.granted().union(freed.nodes), ..freed };
        state.waiting.next_useful_try(free, quorum, self.clock.now())
    }

    /// There is a reason to try again at `at`, as its future sees itself.
    pub(super) fn schedule_try(&self, at: Time) {
        self.state().waiting.schedule_try(at);
    }

    /// Which of several keys was in the way of its last attempt, by node.
    pub(super) fn obstacles(&self) -> Vec<(NodeId, usize)> {
        self.state().tally.as_ref().map(|tally| tally.obstacles()).unwrap_or_default()
    }

    /// True if more nodes have answered its last attempt than it knew of. The next that does wakes it.
    pub(super) fn hears_more(self: &Arc<Self>) -> bool {
        let mut state = self.state();
        let Some(tally) = &state.tally else { return false };
        let heard = tally.listen(&Waker::from(self.clone()));
        std::mem::replace(&mut state.heard, heard) != heard
    }

    /// Its acquire is over. What is left of it is dropped without the lock.
    pub(super) fn dissolve(&self) {
        let mut state = self.state();
        let left = (state.attempt.take(), state.tally.take(), state.task.take());
        drop(state);
        drop(left);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Wake for Waiter {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let task = {
            let mut state = self.state();
            state.waiting.handle_wake(self.clock.now());
            state.task.clone()
        };
        if let Some(task) = task {
            contain(|| task.wake());
        }
    }
}
