//! What a node's answer is worth: what it tells of the node's memory and clock, and whether that
//! lets it count.

use super::failure::NodeFailure;
use super::order::Order;
use super::shared::{NodeShared, NodeState};
use super::standing::NodeStanding;
use super::suspects::Finding;
use super::vote::Answer;
use crate::clock;
use crate::protocol::{Time, Vote};
use crate::safe_waker::contain;
use std::time::Duration;

impl NodeShared {
    /// The vote that is cast for `answer` to `order`, which has just come.
    pub(super) fn judge(&self, order: &Order, answer: Answer) -> Answer {
        // Read after the reply, so that a late one is not taken for a fast clock.
        let now = clock::now();
        self.learn(order, &answer, now);
        if order.is_acquire() {
            match self.exclusion(now) {
                Some(failure) if answer.vote == Vote::Granted => Answer::failed(failure),
                Some(_) => answer,
                None => Answer { youth: self.quarantine.youth(now), ..answer },
            }
        } else if order.is_extension() && answer.vote == Vote::Granted {
            self.suspects.failure(self.id, now).map_or(answer, Answer::failed)
        } else {
            answer
        }
    }

    /// Notes what the node has promised, and whether it kept what it had promised before.
    fn learn(&self, order: &Order, answer: &Answer, now: Time) {
        let (claim, node) = (order.claim(), self.id);
        match answer.vote {
            Vote::Granted => {
                let Some(promise) = order.promise() else {
                    if order.is_release() {
                        claim.forget_promise(node);
                    }
                    return;
                };
                let earlier = claim.promise(node).filter(|_| order.is_extension());
                let measured = earlier.zip(answer.left);
                let ahead = measured.and_then(|(earlier, left)| {
                    Some((earlier, self.suspects.ahead(earlier, left, now)?))
                });
                let Some((earlier, ahead)) = ahead else {
                    claim.note_promise(node, promise);
                    return;
                };
                claim.forget_promise(node);
                claim.note_promise(node, promise);
                let finding = self.suspects.handle_deviation(node, earlier, ahead, now);
                if finding == Finding::StoodStill {
                    contain(|| self.pushes.handle_standstill());
                }
            }
            Vote::Missing if order.is_extension() || order.is_first_release() => {
                let earlier = claim.forget_promise(node);
                let ahead = |promise| self.suspects.ahead(promise, Duration::ZERO, now);
                if earlier.and_then(ahead).is_some() {
                    self.quarantine.handle_missing(now);
                }
            }
            Vote::Denied if order.is_extension() => drop(claim.forget_promise(node)),
            Vote::Missing | Vote::Denied | Vote::Failed => {}
        }
    }

    /// Whether what this node grants counts now, if this is its state.
    pub(crate) fn standing(&self, state: &NodeState) -> NodeStanding {
        let now = clock::now();
        if let Some(failure) = self.exclusion(now) {
            return NodeStanding::Excluded(failure);
        }
        if *state != NodeState::Up {
            return NodeStanding::Unavailable;
        }
        match self.quarantine.youth(now) {
            Some(
                NodeFailure::Restarted { ago: up_for, counts_in }
                | NodeFailure::MaybeRestarted { ago: up_for, counts_in },
            ) => NodeStanding::Young { up_for, counts_in },
            _ => NodeStanding::Counted,
        }
    }

    /// Why what this node grants does not count now.
    fn exclusion(&self, now: Time) -> Option<NodeFailure> {
        self.quarantine.failure(now).or_else(|| self.suspects.failure(self.id, now))
    }
}
