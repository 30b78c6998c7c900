//! A round under way: its votes as they come in, and the task that waits for the decision.

use super::heard::Heard;
use crate::node::{Links, Nodes, VoteSink, sleep_until};
use crate::observe::{NodeReport, NodeVote, Report};
use crate::protocol::{ClientId, NodeId, NodeSet, Outcome, Round, Time, Vote};
use crate::sync::{contain, lock};
use crate::time::Clock;
use crate::wire::{Answer, Conflict, Grant, NodeFailure};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
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
    clock: Clock,
    count: Mutex<Count>,
}

struct Count {
    round: Round,
    heard: Box<[Option<Heard>]>,
    /// How long the round was open, once it was closed without all votes.
    closed_after: Option<Duration>,
    /// The nodes that were not connected when it was closed.
    unconnected: NodeSet,
    /// The nodes that were connected, and were not asked in time.
    held_up: NodeSet,
    /// True if so much was under way in this client that it reads answers late.
    is_crowded: bool,
    waker: Option<Waker>,
}

impl Count {
    /// Why nothing was heard of `node` until the round was closed.
    fn silence(&self, node: NodeId, after: Duration) -> NodeFailure {
        if self.unconnected.contains(node) {
            NodeFailure::Connecting(after)
        } else if self.held_up.contains(node) {
            NodeFailure::Queued(after)
        } else {
            NodeFailure::Timeout(after)
        }
    }
}

impl Tally {
    /// The count of `round`, whose first command is sent after `t1` on that clock.
    pub(crate) fn new(round: Round, t1: Time, clock: &Clock) -> Arc<Self> {
        let heard = round.quorum().ids().map(|_| None).collect();
        let (unconnected, held_up) = Default::default();
        let (closed_after, waker, is_crowded) = Default::default();
        let count = Count { round, heard, closed_after, unconnected, held_up, is_crowded, waker };
        let count = Mutex::new(count);
        Arc::new(Self { t1, clock: clock.clone(), count })
    }

    /// Resolves when the round is decided, at the latest soon after `close_at`.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the round as it is.
    pub(crate) async fn decided(&self, nodes: &Nodes, close_at: Time) {
        self.decided_within(nodes, close_at, close_at).await;
    }

    /// The same; but once enough nodes have granted, and some of that counts only later, it waits for
    /// that, up to `limit`.
    pub(crate) async fn decided_within(&self, nodes: &Nodes, close_at: Time, limit: Time) {
        let due = || self.with_round(|round| round.due().filter(|due| *due <= limit));
        while self.with_round(|round| round.outcome().is_none()) {
            let at = due();
            self.decided_by_timer(nodes, at.unwrap_or(close_at)).await;
            let now = self.clock.now();
            // Another may have granted meanwhile, so that it counts at another time.
            let due = due();
            if due.is_some_and(|due| due <= now) {
                self.count().round.handle_time(now);
            } else if due.is_none() && now >= close_at {
                break;
            }
        }
        if self.with_round(|round| round.outcome().is_some()) {
            return;
        }
        let late = self.clock.now().since(close_at);
        // If this process was stopped or starved, replies may be waiting to be read.
        if late <= PUNCTUAL {
            self.decided_by_timer(nodes, self.clock.now().after(LAST_LOOK)).await;
        } else if self.may_be_unread(nodes.links()) {
            self.decided_by_timer(nodes, self.clock.now().after(GRACE)).await;
        }
        self.note_unconnected(nodes.links());
        self.close();
    }

    /// Resolves when no answer that is still to come can make the round needless that confirms a fencing token, or when
    /// that round would be no slower; at `limit` at the latest.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the round as it is.
    pub(crate) async fn agreed_within(&self, nodes: &Nodes, limit: Time) {
        let until = |round: &Round| Some((round.votes(), round.may_agree_until(self.t1)?));
        while let Some((votes, until)) = self.with_round(until) {
            let at = until.min(limit);
            if self.clock.now() >= at {
                return;
            }
            self.changed_by_timer(nodes, at, |round| round.votes() != votes).await;
        }
    }

    /// True if a node that has not voted may have answered: its task has not found that it stalls.
    fn may_be_unread(&self, links: &Links) -> bool {
        let count = self.count();
        let votes = count.round.votes();
        let mut silent = count.round.quorum().ids().filter(|node| !votes.contains(*node));
        count.round.outcome().is_none()
            && silent.any(|node| links.is_up(node) && !links.is_silent(node))
    }

    fn note_unconnected(&self, links: &Links) {
        let mut count = self.count();
        if count.round.outcome().is_none() {
            let ids = count.round.quorum().ids();
            count.unconnected = ids.filter(|node| !links.is_up(*node)).collect();
        }
    }

    /// Closes a round in which nobody could be asked.
    pub(crate) fn close_unasked(&self, links: &Links) {
        self.note_unconnected(links);
        self.close();
        self.note_held_up(false, |node| links.is_up(node));
    }

    /// Notes which nodes were not asked in time, if the round was closed without all votes.
    pub(crate) fn note_held_up(&self, is_crowded: bool, is_held_up: impl Fn(NodeId) -> bool) {
        let mut count = self.count();
        count.is_crowded = is_crowded;
        if count.closed_after.is_some() {
            let votes = count.round.votes();
            let silent = count.round.quorum().ids().filter(|node| !votes.contains(*node));
            count.held_up = silent.filter(|node| is_held_up(*node)).collect();
        }
    }

    /// True if there was no quorum because of nodes that were not asked in time.
    pub(crate) fn is_overloaded(&self) -> bool {
        let count = self.count();
        let (quorum, votes) = (count.round.quorum(), count.round.votes());
        let is_failed = |node: NodeId| match &count.heard[node.index()] {
            Some(heard) if heard.is_stalled() => !count.is_crowded,
            Some(heard) => {
                let has_failed = heard.other().is_some_and(|answer| answer.vote() == Vote::Failed);
                has_failed || count.round.is_void(node)
            }
            None => !votes.contains(node) && !count.held_up.contains(node),
        };
        let failed = quorum.ids().filter(|node| is_failed(*node)).count();
        (count.is_crowded || count.held_up.len() > 0) && !quorum.blocked(failed)
    }

    /// Resolves when the round is decided, or due at another time, or at `at`.
    async fn decided_by_timer(&self, nodes: &Nodes, at: Time) {
        let due = self.with_round(Round::due);
        let is_changed = |round: &Round| round.outcome().is_some() || round.due() != due;
        self.changed_by_timer(nodes, at, is_changed).await;
    }

    /// Resolves when the round is as `is_changed` says, or at `at`.
    async fn changed_by_timer(&self, nodes: &Nodes, at: Time, is_changed: impl Fn(&Round) -> bool) {
        let mut timer = pin!(sleep_until(nodes, at));
        poll_fn(|cx| {
            let mut count = self.count();
            if is_changed(&count.round) {
                return Poll::Ready(());
            }
            count.waker = Some(cx.waker().clone());
            drop(count);
            timer.as_mut().poll(cx)
        })
        .await;
    }

    /// Looks at the round as it stands.
    pub(crate) fn with_round<T>(&self, look: impl FnOnce(&Round) -> T) -> T {
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
                (None, Some(after)) => NodeVote::Failed(count.silence(id, after)),
                (None, None) => NodeVote::Pending,
            };
            let holder = heard.as_ref().and_then(Heard::holder);
            let latency = heard.as_ref().map(|heard| heard.at.since(self.t1));
            NodeReport::new(name, vote, latency).with_holder(holder)
        });
        let reports = reports.collect();
        // What stands for ever is not free at any time.
        let free_at = count.round.earliest_free().filter(|at| *at < Time::END);
        let retry_after = free_at.map(|at| at.since(self.clock.now()));
        Report::new(count.round.quorum().needed(), reports).with_retry_after(retry_after)
    }

    /// What each node answered up to now, other than that it has granted.
    pub(crate) fn refusals(&self) -> Vec<Option<Answer>> {
        let count = self.count();
        count.heard.iter().map(|heard| heard.as_ref()?.other().cloned()).collect()
    }

    /// True if `node` has granted.
    pub(crate) fn has_granted(&self, node: NodeId) -> bool {
        self.with_round(|round| round.granted().contains(node))
    }

    /// When the key expires that is in the way on `node`, if the node pushes its deletion.
    pub(crate) fn pushed_by(&self, node: NodeId) -> Option<Time> {
        let count = self.count();
        let heard = count.heard[node.index()].as_ref()?;
        match heard.other()? {
            Answer::Denied(Conflict { remaining: Some(remaining), is_watched: true, .. }) => {
                Some(heard.at.after(remaining.at_most()))
            }
            _ => None,
        }
    }

    /// The client that holds the lock, if all nodes that report a holder report the same client.
    pub(crate) fn holder(&self) -> Option<ClientId> {
        let count = self.count();
        let conflicts = count.heard.iter().flatten().filter_map(Heard::obstacle);
        let mut holders = conflicts.filter_map(|conflict| Some(conflict.value.as_ref()?.client()));
        let holder = holders.next()??;
        holders.all(|other| other == Some(holder)).then_some(holder)
    }

    /// The numbers that the nodes' counters have shown.
    pub(crate) fn numbers(&self) -> Vec<(NodeId, u64)> {
        let count = self.count();
        let heard = count.round.quorum().ids().zip(&count.heard);
        let number = |heard: &Option<Heard>| heard.as_ref()?.number();
        heard.filter_map(|(node, heard)| Some((node, number(heard)?))).collect()
    }

    /// The highest number that a counter was seen to show.
    pub(crate) fn highest_number(&self) -> Option<u64> {
        self.numbers().into_iter().map(|(_, number)| number).max()
    }

    /// When the first of the nodes counts again that did not count in this round.
    pub(crate) fn counts_again_at(&self) -> Option<Time> {
        let count = self.count();
        let heard = count.round.quorum().ids().zip(&count.heard);
        let barred = heard.filter_map(|(id, heard)| {
            let heard = heard.as_ref()?;
            match heard.other() {
                None => heard.counts_from().filter(|_| count.round.is_void(id)),
                Some(Answer::Excluded(why)) => Some(heard.at.after(why.counts_in()?)),
                Some(_) => None,
            }
        });
        barred.min()
    }

    /// Which of several keys was in the way on most of the nodes that said so.
    pub(crate) fn obstacle(&self) -> Option<usize> {
        let places = self.obstacles().into_iter().map(|(_, place)| place);
        let mut counts: Vec<(usize, usize)> = Vec::new();
        for place in places {
            match counts.iter_mut().find(|(known, _)| *known == place) {
                Some((_, count)) => *count += 1,
                None => counts.push((place, 1)),
            }
        }
        // The first of the greatest.
        counts.into_iter().rev().max_by_key(|(_, count)| *count).map(|(place, _)| place)
    }

    /// Which of several keys was in the way, by node, as far as that has been heard up to now.
    pub(crate) fn obstacles(&self) -> Vec<(NodeId, usize)> {
        let count = self.count();
        let heard = count.round.quorum().ids().zip(&count.heard);
        heard.filter_map(|(node, heard)| Some((node, heard.as_ref()?.obstacle()?.place))).collect()
    }

    /// How many nodes have answered up to now. The next that does wakes `waker`, once the round is decided.
    pub(crate) fn listen(&self, waker: &Waker) -> usize {
        let mut count = self.count();
        let heard = count.heard.iter().flatten().count();
        if heard < count.heard.len() {
            count.waker = Some(waker.clone());
        }
        heard
    }

    fn count(&self) -> MutexGuard<'_, Count> {
        lock(&self.count)
    }
}

impl VoteSink for Tally {
    fn handle_answer(&self, node: NodeId, answer: Answer, at: Option<Time>) {
        self.count_answer(node, answer, at);
    }
}

impl Tally {
    /// Counts `node`'s answer, which was read by `at`; returns the outcome if it is the one that decided.
    pub(crate) fn count_answer(
        &self,
        node: NodeId,
        answer: Answer,
        at: Option<Time>,
    ) -> Option<Outcome> {
        // After the reply, as I3 demands.
        let now = at.unwrap_or_else(|| self.clock.now());
        let mut count = self.count();
        if count.heard[node.index()].is_some() {
            return None;
        }
        if let Some(number) = answer.number() {
            count.round.note_counter(node, number);
        }
        match &answer {
            Answer::Granted(Grant { counts_from: Some(counts_from), .. }) => {
                count.round.note_counts_from(node, *counts_from);
            }
            Answer::Denied(Conflict { remaining: Some(remaining), is_watched, .. }) => {
                count.round.note_free_at(now.after(remaining.at_most()));
                if *is_watched {
                    count.round.note_watching(node);
                }
            }
            _ => {}
        }
        let vote = answer.vote();
        count.heard[node.index()] = Some(Heard::new(now, answer));
        let (due, was_decided) = (count.round.due(), count.round.outcome().is_some());
        let outcome = count.round.handle_vote(node, vote, now);
        // Whoever waits may have to look sooner, or later; or it listens to what comes after the decision.
        let is_news = was_decided || outcome.is_some() || count.round.due() != due;
        let waker = if is_news { count.waker.take() } else { None };
        drop(count);
        if let Some(waker) = waker {
            // It is woken by a node's task, which others need.
            contain(|| waker.wake());
        }
        outcome
    }

    /// Stops waiting for votes; returns the outcome if this decided.
    pub(crate) fn close(&self) -> Option<Outcome> {
        let mut count = self.count();
        let now = self.clock.now();
        let outcome = count.round.handle_close(now);
        if outcome.is_some() {
            count.closed_after = Some(now.since(self.t1));
        }
        // It is closed by whoever waited.
        let waker = count.waker.take();
        drop(count);
        drop(waker);
        outcome
    }

    /// When the round began, before its first command was sent.
    pub(crate) fn t1(&self) -> Time {
        self.t1
    }
}

#[cfg(test)]
#[path = "tally_tests.rs"]
mod tests;
