//! One attempt to acquire: its round, or two, with the clean-up armed.

use super::adoption::PreviousGuard;
use super::permits::Permits;
use super::queue_slot::QueueSlot;
use super::request::{AcquireRequest, Acquired};
use super::wait_queue::WaitQueues;
use super::waiter::AttemptGuard;
use crate::node::{Ballot, Claim, Nodes, QueuedCommand};
use crate::protocol::{Acquisition, ClientId, Next, NodeId, Quorum, Refusal, Round, Time, hint};
use crate::round::{FirstVote, ReleaseGuard, Tally};
use crate::wire::{Counters, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

/// How long an attempt without a deadline waits until what was granted counts, where nodes' clocks have
/// stepped ahead.
const MAX_LAG: Duration = Duration::from_secs(1);

/// What all attempts of one client have in common.
pub(super) struct Context {
    pub(super) client: ClientId,
    pub(super) quorum: Quorum,
    pub(super) node_timeout: Duration,
    pub(super) queues: Arc<WaitQueues>,
    /// The highest number that a fencing counter was seen to show.
    pub(super) seen: AtomicU64,
    /// How many attempts had to confirm their token in a second round.
    #[cfg(feature = "test-util")]
    pub(super) raises: AtomicU64,
    pub(super) permits: Permits,
}

/// An attempt under way.
pub(super) struct Attempt<'a> {
    context: &'a Context,
    nodes: &'a Arc<Nodes>,
    request: &'a AcquireRequest,
    /// Where it stands, if it waits: its guard is kept there, so that it can be given up when the future
    /// is not polled.
    slot: Option<&'a QueueSlot>,
    claim: Arc<Claim>,
    /// Before the first command is sent.
    t1: Time,
    /// True if there was another before, which was refused.
    is_repeated: bool,
    /// The node to ask before all others.
    first: Option<NodeId>,
    rounds: Rounds,
}

/// The rounds of an attempt, for its event.
#[derive(Default)]
pub(super) struct Rounds {
    pub(super) first: Option<Arc<Tally>>,
    /// The round that confirms the fencing token.
    pub(super) confirmation: Option<Arc<Tally>>,
}

/// What became of an attempt.
pub(super) enum AttemptResult {
    Won(Acquired),
    /// There may be another one at this time; what the nodes said.
    Retry {
        reason: Arc<Tally>,
        at: Time,
    },
    /// There will be no other. The reason is what the nodes said, or what they said to an earlier attempt.
    Refused {
        refusal: Refusal,
        reason: Arc<Tally>,
        is_latest: bool,
    },
    /// The first node did not grant it. `free_at` is when the key expires, if that node pushes the deletion.
    RefusedByOne {
        node: NodeId,
        free_at: Option<Time>,
    },
    /// Its future was not polled for so long that it was given up; the round that was under way.
    GivenUp(Arc<Tally>),
}

impl<'a> Attempt<'a> {
    /// An attempt to get what was requested, and what it may hold until then.
    pub(super) fn new(
        context: &'a Context,
        nodes: &'a Arc<Nodes>,
        request: &'a AcquireRequest,
        slot: Option<&'a QueueSlot>,
        permit: OwnedSemaphorePermit,
    ) -> (Self, AttemptGuard) {
        let t1 = nodes.clock().now();
        let uuid = nodes.random().uuid();
        let metadata = request.metadata.as_deref();
        let value = Value::of_lease(uuid, context.client, request.keys.len(), metadata);
        let hint = || hint(context.seen.load(Ordering::Relaxed), nodes.clock().wall_us());
        let counters = request.counters.clone().map(|keys| Counters::new(keys, hint()));
        let claim = Claim::new(request.keys.clone(), value, context.quorum.nodes());
        let claim = claim.fenced(counters).late_from(t1.after(context.node_timeout / 2));
        let claim = Arc::new(claim);
        // The clean-up is armed before the first send (I5).
        let release = ReleaseGuard::new(claim.clone(), nodes.clone(), context.queues.clone());
        let previous = request.adopts.as_ref().and_then(|adoption| adoption.previous.clone());
        let previous = previous.map(|lease| Box::new(PreviousGuard::new(lease, claim.clone())));
        let guard = AttemptGuard { previous, release, permit, valid_until: t1 };
        let (is_repeated, first, rounds) = (false, None, Rounds::default());
        (Self { context, nodes, request, slot, claim, t1, is_repeated, first, rounds }, guard)
    }

    /// There was another before, which was refused.
    pub(super) fn repeated(self, is_repeated: bool) -> Self {
        Self { is_repeated, ..self }
    }

    /// Asks `first` before the other nodes, and those only if it grants.
    pub(super) fn asking_first(self, first: Option<NodeId>) -> Self {
        Self { first, ..self }
    }

    /// Asks the nodes, and again if a token has to be confirmed. `guard` was made for it.
    ///
    /// # Cancel safety
    /// Dropping the future releases on every node what the attempt may have set there.
    pub(super) async fn run(
        mut self,
        guard: AttemptGuard,
        acquisition: &mut Acquisition,
    ) -> (AttemptResult, Rounds) {
        let result = self.decide(guard, acquisition).await;
        (result, self.rounds)
    }

    async fn decide(
        &mut self,
        guard: AttemptGuard,
        acquisition: &mut Acquisition,
    ) -> AttemptResult {
        let (t1, request) = (self.t1, self.request);
        // Waiters that ask one node first compete with other clients, which they tell apart by their values.
        let names_holder = self.is_repeated || self.first.is_some();
        let ask = |claim, ballot| request.command(claim, names_holder, ballot);
        let begun = acquisition.begin(t1);
        let (mut guard, asked) = match self.round(guard, t1, begun, self.first, ask).await {
            Ok(asked) => asked,
            Err(cut) => return AttemptResult::GivenUp(cut),
        };
        if let Some(node) = self.first.filter(|node| !asked.has_granted(*node)) {
            guard.release.note_refused();
            return AttemptResult::RefusedByOne { node, free_at: asked.pushed_by(node) };
        }
        self.note_numbers(&asked);
        let mut reason = asked.clone();
        loop {
            let (now, random) = (self.nodes.clock().now(), self.nodes.random().number());
            match reason.with_round(|round| acquisition.handle_outcome(round, now, random)) {
                Next::Lease { valid_until, token } => {
                    if let Some((token, counters)) = token.zip(self.claim.fence()) {
                        counters.commit(token, &asked.numbers());
                    }
                    let (tally, tag) = (asked, self.request.tag);
                    return AttemptResult::Won(Acquired { guard, valid_until, tally, tag });
                }
                // Once: what follows a raise is never another.
                Next::Confirm { valid_until, token } => {
                    #[cfg(feature = "test-util")]
                    self.context.raises.fetch_add(1, Ordering::Relaxed);
                    let t1 = self.nodes.clock().now();
                    let begun = acquisition.begin_confirm(valid_until, token, t1);
                    let raise = |claim, ballot| QueuedCommand::raise(claim, token, ballot);
                    (guard, reason) = match self.round(guard, t1, begun, None, raise).await {
                        Ok(raised) => raised,
                        Err(cut) => return AttemptResult::GivenUp(cut),
                    };
                }
                Next::Retry { at } => {
                    guard.release.note_refused();
                    return AttemptResult::Retry { reason, at };
                }
                Next::Refuse { refusal, latest: is_latest } => {
                    guard.release.note_refused();
                    return AttemptResult::Refused { refusal, reason, is_latest };
                }
            }
        }
    }

    /// One round: sends each node its command, and waits until it is decided. An error if the attempt
    /// was given up meanwhile.
    async fn round(
        &mut self,
        guard: AttemptGuard,
        t1: Time,
        (round, close_at): (Round, Time),
        first: Option<NodeId>,
        command: impl Fn(Arc<Claim>, Ballot) -> QueuedCommand,
    ) -> Result<(AttemptGuard, Arc<Tally>), Arc<Tally>> {
        let valid_until = round.goal().valid_until().unwrap_or(t1);
        let tally = Tally::new(round, t1, self.nodes.clock());
        let Rounds { first: known, confirmation } = &mut self.rounds;
        *if known.is_none() { known } else { confirmation } = Some(tally.clone());
        let guard = Keeper::new(self.slot, AttemptGuard { valid_until, ..guard }, &tally);
        // The last of a crowd end when it is gone, with answers that were late because of it.
        let permits = &self.context.permits;
        let was_crowded = permits.are_crowded();
        let command = |ballot| command(self.claim.clone(), ballot);
        if let Some(first) = first {
            if !FirstVote::ask(&tally, self.nodes, first, close_at, command).await {
                return guard.end().map(|guard| (guard, tally.clone())).ok_or(tally);
            }
            for node in self.context.quorum.ids().filter(|node| *node != first) {
                self.nodes.send(node, command(Ballot::new(tally.clone(), node)));
            }
        } else {
            self.nodes.send_each(|node| command(Ballot::new(tally.clone(), node)));
        }
        let limit = self.request.deadline.unwrap_or_else(|| t1.after(MAX_LAG)).max(close_at);
        tally.decided_within(self.nodes, close_at, limit).await;
        if self.claim.fence().is_some() {
            tally.agreed_within(self.nodes, close_at).await;
        }
        let (links, is_crowded) = (self.nodes.links(), was_crowded || permits.are_crowded());
        tally.note_held_up(is_crowded, |node| {
            links.is_up(node) && (is_crowded || self.claim.is_held_up(node))
        });
        match guard.end() {
            Some(guard) => Ok((guard, tally)),
            None => Err(tally),
        }
    }

    /// Remembers the highest number for the next hint.
    fn note_numbers(&self, tally: &Tally) {
        let highest = self.claim.fence().and_then(|_| tally.highest_number());
        if let Some(highest) = highest {
            self.context.seen.fetch_max(highest, Ordering::Relaxed);
        }
    }
}

/// Who keeps what an attempt holds while its round is under way.
enum Keeper<'a> {
    /// The attempt itself: nobody waits for it here.
    Attempt(AttemptGuard),
    /// Its waiter, from which it can be taken.
    Waiter(&'a QueueSlot),
}

impl<'a> Keeper<'a> {
    fn new(slot: Option<&'a QueueSlot>, guard: AttemptGuard, tally: &Arc<Tally>) -> Self {
        let Some(slot) = slot else { return Self::Attempt(guard) };
        slot.begin(guard, tally.clone());
        Self::Waiter(slot)
    }

    /// What the attempt holds; `None` if it was taken because the future was not polled.
    fn end(self) -> Option<AttemptGuard> {
        match self {
            Self::Attempt(guard) => Some(guard),
            Self::Waiter(slot) => slot.end(),
        }
    }
}
