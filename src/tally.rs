//! A round under way: its votes as they come in, and the task that waits for the decision.

use crate::clock;
use crate::driver::sleep_until;
use crate::node::{Answer, NodeFailure, Nodes, VoteSink};
use crate::protocol::{NodeId, Outcome, Round, Time, Vote};
use crate::report::{NodeReport, NodeVote, Report};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

/// A timer that rings within this was not held up.
const PUNCTUAL: Duration = Duration::from_millis(5);

/// What a round gets on top in any case, and when its timer was held up.
const LAST_LOOK: Duration = Duration::from_millis(1);
const GRACE: Duration = Duration::from_millis(10);

/// Counts the votes of one round, and wakes the one task that waits for it once: at the decision.
pub(crate) struct Tally {
    t1: Time,
    count: Mutex<Count>,
}

struct Count {
    round: Round,
    heard: Box<[Option<Heard>]>,
    /// How long the round was open, once it was closed without all votes.
    closed_after: Option<Duration>,
    waker: Option<Waker>,
}

/// What a node said, and how long after T1.
struct Heard {
    answer: Answer,
    after: Duration,
}

impl Heard {
    /// What a grant is that does not count.
    fn void_vote(&self) -> NodeVote {
        self.answer.youth.clone().map_or(NodeVote::Granted, NodeVote::Failed)
    }

    fn vote(&self) -> NodeVote {
        match (self.answer.vote, &self.answer.failure) {
            (Vote::Granted, _) => NodeVote::Granted,
            (Vote::Denied, _) => NodeVote::Held,
            (Vote::Missing, _) => NodeVote::Missing,
            (Vote::Failed, Some(failure)) => NodeVote::Failed(failure.clone()),
            (Vote::Failed, None) => NodeVote::Failed(NodeFailure::ShutDown),
        }
    }
}

impl Tally {
    /// The count of `round`, whose first command is sent after `t1`.
    pub(crate) fn new(round: Round, t1: Time) -> Arc<Self> {
        let heard = round.quorum().ids().map(|_| None).collect();
        let count = Mutex::new(Count { round, heard, closed_after: None, waker: None });
        Arc::new(Self { t1, count })
    }

    /// Resolves when the round is decided, at the latest soon after `close_at`.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the round as it is.
    pub(crate) async fn decided(&self, nodes: &Nodes, close_at: Time) {
        if self.judge(|round| round.outcome().is_some()) {
            return;
        }
        self.decided_by_timer(nodes, close_at).await;
        if self.judge(|round| round.outcome().is_none()) {
            // If this process was stopped or starved, replies may be waiting to be read.
            let late = clock::now().since(close_at);
            let grace = if late > PUNCTUAL { GRACE } else { LAST_LOOK };
            self.decided_by_timer(nodes, clock::now().after(grace)).await;
        }
        self.close();
    }

    /// Resolves when the round is decided, or at `at`.
    async fn decided_by_timer(&self, nodes: &Nodes, at: Time) {
        let mut timer = pin!(sleep_until(nodes, at));
        poll_fn(|cx| {
            let mut count = self.count();
            if count.round.outcome().is_some() {
                return Poll::Ready(());
            }
            count.waker = Some(cx.waker().clone());
            drop(count);
            timer.as_mut().poll(cx)
        })
        .await;
    }

    /// Looks at the round as it stands.
    pub(crate) fn judge<T>(&self, look: impl FnOnce(&Round) -> T) -> T {
        look(&self.count().round)
    }

    /// What has been heard up to now, late votes included.
    pub(crate) fn report(&self, nodes: impl Iterator<Item = Arc<str>>) -> Report {
        let count = self.count();
        let ids = count.round.quorum().ids();
        let reports = nodes.zip(ids).zip(&count.heard).map(|((name, id), heard)| {
            let vote = match (heard, count.closed_after) {
                (Some(heard), _) if count.round.is_void(id) => heard.void_vote(),
                (Some(heard), _) => heard.vote(),
                (None, Some(after)) => NodeVote::Failed(NodeFailure::Timeout(after)),
                (None, None) => NodeVote::Pending,
            };
            NodeReport::new(name, vote, heard.as_ref().map(|heard| heard.after))
        });
        Report::new(count.round.quorum().needed(), reports.collect())
    }

    /// What each node answered up to now.
    pub(crate) fn answers(&self) -> Vec<Option<Answer>> {
        let count = self.count();
        count.heard.iter().map(|heard| heard.as_ref().map(|heard| heard.answer.clone())).collect()
    }

    /// The highest number that a counter was seen to show.
    pub(crate) fn highest_number(&self) -> Option<u64> {
        let count = self.count();
        count.heard.iter().flatten().filter_map(|heard| heard.answer.number).max()
    }

    /// When the first of the nodes counts again that did not count in this round.
    pub(crate) fn counts_again_at(&self) -> Option<Time> {
        let count = self.count();
        let heard = count.round.quorum().ids().zip(&count.heard);
        let barred = heard.filter_map(|(id, heard)| {
            let heard = heard.as_ref()?;
            let void = heard.answer.youth.as_ref().filter(|_| count.round.is_void(id));
            let counts_in = heard.answer.failure.as_ref().or(void)?.counts_in()?;
            Some(self.t1.after(heard.after).after(counts_in))
        });
        barred.min()
    }

    /// Which of several keys was in the way, on the first node that said so.
    pub(crate) fn obstacle(&self) -> Option<usize> {
        let count = self.count();
        let mut answers = count.heard.iter().flatten().map(|heard| &heard.answer);
        answers.find(|answer| answer.vote == Vote::Denied).map(|answer| answer.place)
    }

    /// No code panics while it holds the lock.
    fn count(&self) -> MutexGuard<'_, Count> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl VoteSink for Tally {
    fn handle_answer(&self, node: NodeId, answer: Answer) {
        self.count_answer(node, answer);
    }
}

impl Tally {
    /// Counts `node`'s answer; returns the outcome if it is the one that decided.
    pub(crate) fn count_answer(&self, node: NodeId, answer: Answer) -> Option<Outcome> {
        // Read after the reply, as I3 demands.
        let now = clock::now();
        let mut count = self.count();
        let (vote, free_in, number) = (answer.vote, answer.free_in, answer.number);
        let is_young = answer.youth.is_some();
        let slot = &mut count.heard[node.index()];
        if slot.is_some() {
            return None;
        }
        *slot = Some(Heard { answer, after: now.since(self.t1) });
        if let Some(free_in) = free_in.filter(|_| vote == Vote::Denied) {
            count.round.note_free_at(now.after(free_in));
        }
        if let Some(number) = number {
            count.round.note_number(node, number);
        }
        if is_young {
            count.round.note_young(node);
        }
        let outcome = count.round.handle_vote(node, vote, now);
        let waker = if outcome.is_some() { count.waker.take() } else { None };
        drop(count);
        if let Some(waker) = waker {
            waker.wake();
        }
        outcome
    }

    /// Stops waiting for votes; returns the outcome if this decided.
    pub(crate) fn close(&self) -> Option<Outcome> {
        let mut count = self.count();
        let now = clock::now();
        let outcome = count.round.handle_close(now);
        if outcome.is_some() {
            count.closed_after = Some(now.since(self.t1));
        }
        outcome
    }

    /// When the round began, before its first command was sent.
    pub(crate) fn t1(&self) -> Time {
        self.t1
    }
}
