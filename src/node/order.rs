//! What a node can be asked to do.

use super::claim::Claim;
use super::failure::NodeFailure;
use super::reply::Asked;
use super::script::{EXTEND, Form, RELEASE};
use super::vote::{Answer, Ballot};
use crate::protocol::{NodeId, Time, Ttl, Vote};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One command for one node, and the vote that its answer is.
pub(crate) struct Order {
    claim: Arc<Claim>,
    deed: Deed,
    ballot: Option<Ballot>,
    form: Form,
    debt: Option<Debt>,
    /// How many commands it was written as.
    commands: usize,
}

/// A release that has not been delivered yet, counted while it exists.
struct Debt(Arc<AtomicUsize>);

impl Drop for Debt {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

#[derive(Clone, Copy, Debug)]
enum Deed {
    /// Set the key if there is none.
    /// Ask how long a key that is in the way has to live, and to be told when it is gone, if
    /// `watches`.
    Acquire { ttl: Ttl, watches: bool },
    /// Let the key stand until at least `until`, which is T1 + ttl (I6).
    Extend { until: Time },
    /// Set the key again where it was lost, for what remains until then.
    Repair { until: Time },
    /// Delete the key.
    Release,
}

impl Order {
    pub(crate) fn acquire(claim: Arc<Claim>, ttl: Ttl, watches: bool, ballot: Ballot) -> Self {
        Self::new(claim, Deed::Acquire { ttl, watches }, Some(ballot))
    }

    pub(crate) fn extend(claim: Arc<Claim>, until: Time, ballot: Ballot) -> Self {
        Self::new(claim, Deed::Extend { until }, Some(ballot))
    }

    /// Nobody counts its vote, and it is not kept for a node that is away.
    pub(crate) fn repair(claim: Arc<Claim>, until: Time) -> Self {
        Self::new(claim, Deed::Repair { until }, None)
    }

    pub(crate) fn release(claim: Arc<Claim>, ballot: Option<Ballot>) -> Self {
        Self::new(claim, Deed::Release, ballot)
    }

    fn new(claim: Arc<Claim>, deed: Deed, ballot: Option<Ballot>) -> Self {
        Self { claim, deed, ballot, form: Form::Hash, debt: None, commands: 1 }
    }

    /// Counts this order in `debts` until it is done, if it is a release.
    pub(super) fn count_in(&mut self, debts: &Arc<AtomicUsize>) {
        if self.is_release() && self.debt.is_none() {
            debts.fetch_add(1, Ordering::Release);
            self.debt = Some(Debt(debts.clone()));
        }
    }

    pub(super) fn claim(&self) -> &Arc<Claim> {
        &self.claim
    }

    pub(super) fn is_release(&self) -> bool {
        matches!(self.deed, Deed::Release)
    }

    pub(super) fn is_extension(&self) -> bool {
        matches!(self.deed, Deed::Extend { .. })
    }

    /// True if this lets the key stand for longer than `other`, which is an extension too.
    pub(super) fn outlasts(&self, other: &Self) -> bool {
        match (self.deed, other.deed) {
            (Deed::Extend { until: this }, Deed::Extend { until: other }) => this > other,
            _ => false,
        }
    }

    pub(super) fn asked(&self) -> Asked {
        match self.deed {
            Deed::Acquire { .. } | Deed::Repair { .. } => Asked::Acquire,
            Deed::Extend { .. } => Asked::Extend,
            Deed::Release => Asked::Release,
        }
    }

    /// True if it makes no sense any more to write this to `node`: what it belongs to has ended,
    /// or there is nothing to release.
    pub(super) fn is_void(&self, node: NodeId, now: Time) -> bool {
        match self.deed {
            Deed::Acquire { .. } => self.claim.is_withdrawn(),
            Deed::Extend { until } | Deed::Repair { until } => {
                self.claim.is_withdrawn() || now >= until
            }
            Deed::Release => !self.claim.is_written(node),
        }
    }

    /// Answers an order that [is void](Self::is_void), without asking the node.
    pub(super) fn answer_void(mut self) {
        if self.is_release() {
            self.answer(Answer::of(Vote::Missing));
        } else if let Some(ballot) = self.ballot.take() {
            // Nobody waits for it any more.
            ballot.discard();
        }
    }

    /// Notes on the claim that this was written to `node`, and may run there at any time.
    pub(super) fn note_unsure(&self, node: NodeId) {
        if !self.is_release() {
            self.claim.note_unsure(node);
        }
    }

    /// Sends the source of the script next time, not its hash. False if that was done already.
    pub(super) fn fall_back_to_source(&mut self) -> bool {
        std::mem::replace(&mut self.form, Form::Source) == Form::Hash
    }

    /// Casts the vote, if it is still to be cast.
    pub(super) fn answer(&mut self, answer: Answer) {
        if let Some(ballot) = self.ballot.take() {
            ballot.cast(answer);
        }
    }

    pub(super) fn fail(&mut self, failure: NodeFailure) {
        self.answer(Answer::failed(failure));
    }

    /// How many replies it has.
    pub(super) fn commands(&self) -> usize {
        self.commands
    }

    /// Adds the command to `pipeline`, and notes on the claim that it is being written to `node`.
    /// `tracks` says whether the connection can be told when keys change. False if it must not be
    /// written any more.
    pub(super) fn write(
        &mut self,
        node: NodeId,
        now: Time,
        tracks: bool,
        pipeline: &mut redis::Pipeline,
    ) -> bool {
        let before = pipeline.len();
        let (key, value) = (self.claim.key(), self.claim.value().as_str());
        // What remains of T1 + ttl, and never nothing, which would delete the key.
        let remaining = |until: Time| Ttl::from_duration(until.since(now)).unwrap_or(Ttl::SHORTEST);
        let is_noted = |ttl| self.claim.note_written(node, ttl, now);
        match self.deed {
            Deed::Acquire { ttl, watches } => {
                if !is_noted(ttl) {
                    return false;
                }
                set(pipeline, key, value, ttl);
                if watches && tracks {
                    // It holds for the very next command only.
                    pipeline.cmd("CLIENT").arg("CACHING").arg("YES");
                }
                if watches {
                    pipeline.cmd("PTTL").arg(key);
                }
            }
            Deed::Repair { until } => {
                let ttl = remaining(until);
                if !is_noted(ttl) {
                    return false;
                }
                set(pipeline, key, value, ttl);
            }
            Deed::Extend { until } => {
                let ttl = remaining(until);
                if !is_noted(ttl) {
                    return false;
                }
                EXTEND.call(self.form, key, pipeline).arg(value).arg(ttl.as_millis());
            }
            Deed::Release => {
                RELEASE.call(self.form, key, pipeline).arg(value);
            }
        }
        self.commands = pipeline.len() - before;
        true
    }
}

/// Sets the key if there is none.
fn set(pipeline: &mut redis::Pipeline, key: &[u8], value: &str, ttl: Ttl) {
    let command = pipeline.cmd("SET").arg(key).arg(value);
    command.arg("NX").arg("PX").arg(ttl.as_millis());
}
