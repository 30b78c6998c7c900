//! Nodes whose clocks have left ours, told from a clock of ours that stood still, where they may not be
//! asked what time it is.
//!
//! A node keeps keys by its wall clock. If that jumps ahead or runs too fast, the node forgets locks
//! before their time. Where `TIME` is forbidden, nothing but the time left to a key tells: the script
//! that extends it answers how much it found. If that is less than the drift allowance explains, time went by on the
//! node that did not go by here. Then one of the two is wrong; where more nodes say so than a quorum
//! can do without, it is not they.

use super::claim::Promise;
use crate::protocol::{Drift, NodeId, Quorum, Time};
use crate::sync::lock;
use crate::wire::NodeFailure;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Deviations within this time of each other have one cause. The nodes answer an extension within a
/// node timeout, and each lease extends on all nodes at once.
const TOGETHER: Duration = Duration::from_secs(1);

/// What PTTL cuts off.
const PRECISION: Duration = Duration::from_millis(1);

/// What all nodes of a client have in common.
pub(super) struct PromiseSkew {
    quorum: Quorum,
    drift: Drift,
    /// How long a node is suspect, after what made it so.
    span: Duration,
    /// The nodes that have a mark, by bit: looked at with each vote.
    marked: AtomicU32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    marks: Vec<Option<Mark>>,
    /// When our clock was last found to have stood still: what was promised before is no measure.
    stood_still: Option<Time>,
}

#[derive(Clone, Copy)]
struct Mark {
    at: Time,
    ahead: Duration,
}

/// What a deviation comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing new.
    Known,
    /// The node is suspect from now on.
    Suspect,
    /// Too many deviate: it was our clock, and nobody is suspect for it.
    StoodStill,
}

impl PromiseSkew {
    pub(super) fn new(quorum: Quorum, drift: Drift, span: Duration) -> Self {
        let state = State { marks: vec![None; quorum.nodes()], stood_still: None };
        Self { quorum, drift, span, marked: AtomicU32::new(0), state: Mutex::new(state) }
    }

    /// How far ahead of our clock a node's is at least, on which a key that it has promised us has
    /// only `left` to live; `None` if that can be due to drift. `now` is read after the answer: a late
    /// one makes the key seem to stand for longer than it should, never shorter.
    pub(super) fn ahead(&self, promise: Promise, left: Duration, now: Time) -> Option<Duration> {
        let due = promise.until().since(now);
        let allowance = self.drift.allowance(promise.ttl).saturating_add(PRECISION);
        (due > left.saturating_add(allowance)).then(|| due.saturating_sub(left))
    }

    /// `node` was seen at `now` to be so far ahead, by a key that it had promised.
    pub(super) fn handle_deviation(
        &self,
        node: NodeId,
        promise: Promise,
        ahead: Duration,
        now: Time,
    ) -> Verdict {
        let mut state = lock(&self.state);
        let seen = state.marks[node.index()].map(|mark| mark.at).max(state.stood_still);
        if seen.is_some_and(|at| promise.written <= at) {
            return Verdict::Known;
        }
        state.marks[node.index()] = Some(Mark { at: now, ahead });
        let is_recent = |mark: &Mark| now.since(mark.at) < TOGETHER;
        let recent = state.marks.iter().flatten().filter(|mark| is_recent(mark)).count();
        let finding = if recent > self.quorum.nodes() - self.quorum.needed() {
            let recent = |mark: &mut Mark| now.since(mark.at) < TOGETHER;
            for mark in &mut state.marks {
                let _ = mark.take_if(recent);
            }
            state.stood_still = Some(now);
            Verdict::StoodStill
        } else {
            Verdict::Suspect
        };
        let marked = self.quorum.ids().filter(|node| state.marks[node.index()].is_some());
        self.marked.store(marked.fold(0, |all, node| all | node.bit()), Ordering::Release);
        finding
    }

    /// Why what `node` grants does not count now.
    pub(super) fn failure(&self, node: NodeId, now: Time) -> Option<NodeFailure> {
        if self.marked.load(Ordering::Acquire) & node.bit() == 0 {
            return None;
        }
        let Mark { at, ahead } = lock(&self.state).marks[node.index()]?;
        let counts_in = at.after(self.span).since(now);
        (!counts_in.is_zero()).then_some(NodeFailure::Suspect { ahead, counts_in })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Ttl;

    const SPAN: Duration = Duration::from_mins(1);

    fn at(ms: u64) -> Time {
        Time::default().after(Duration::from_millis(ms))
    }

    fn promise(written: u64, ttl: u64) -> Promise {
        let ttl = Ttl::from_duration(Duration::from_millis(ttl)).expect("a good ttl");
        Promise { written: at(written), ttl }
    }

    fn suspects(nodes: usize) -> PromiseSkew {
        PromiseSkew::new(Quorum::majority(nodes), Drift::DEFAULT, SPAN)
    }

    fn deviate(suspects: &PromiseSkew, node: usize, written: u64, now: u64) -> Verdict {
        let (node, ahead) = (NodeId::new(node), Duration::from_secs(5));
        suspects.handle_deviation(node, promise(written, 10_000), ahead, at(now))
    }

    fn suspected(suspects: &PromiseSkew, now: u64) -> Vec<usize> {
        let ids = suspects.quorum.ids();
        ids.filter(|id| suspects.failure(*id, at(now)).is_some()).map(NodeId::index).collect()
    }

    #[test]
    fn only_what_drift_cannot_explain_is_a_deviation() {
        let ahead = |now, left| {
            let ahead = suspects(3).ahead(promise(0, 10_000), Duration::from_millis(left), at(now));
            ahead.map(|ahead| ahead.as_millis())
        };
        // 1 % and 2 ms are the allowance, 1 ms the precision.
        assert_eq!(ahead(4_000, 6_000), None);
        assert_eq!(ahead(4_000, 5_897), None);
        assert_eq!(ahead(4_000, 5_896), Some(104));
        assert_eq!(ahead(4_000, 9_000), None, "longer than it has to");
        assert_eq!(ahead(20_000, 0), None, "its time is over");
    }

    #[test]
    fn few_are_suspect_and_too_many_are_our_own_clock() {
        let five = suspects(5);
        assert_eq!(deviate(&five, 1, 0, 1_000), Verdict::Suspect);
        assert_eq!(deviate(&five, 3, 0, 1_100), Verdict::Suspect);
        assert_eq!(suspected(&five, 1_100), [1, 3]);
        assert_eq!(deviate(&five, 0, 0, 1_200), Verdict::StoodStill);
        assert_eq!(suspected(&five, 1_200), [0; 0], "the marks are taken back");
        assert_eq!(deviate(&five, 2, 1_150, 9_000), Verdict::Known, "promised before");
        assert_eq!(deviate(&five, 2, 1_300, 9_000), Verdict::Suspect);
        let one = suspects(1);
        assert_eq!(deviate(&one, 0, 0, 1_000), Verdict::StoodStill, "nobody else can tell");
    }

    #[test]
    fn what_lies_apart_has_causes_of_its_own() {
        let three = suspects(3);
        assert_eq!(deviate(&three, 0, 0, 1_000), Verdict::Suspect);
        assert_eq!(deviate(&three, 1, 0, 2_000), Verdict::Suspect);
        assert_eq!(suspected(&three, 2_000), [0, 1]);
    }

    #[test]
    fn a_suspicion_ends_and_is_not_renewed_by_what_is_known() {
        let three = suspects(3);
        deviate(&three, 0, 0, 1_000);
        assert_eq!(deviate(&three, 0, 900, 30_000), Verdict::Known, "promised before the jump");
        assert_eq!(suspected(&three, 60_999), [0]);
        assert_eq!(suspected(&three, 61_000), [0; 0]);
        assert_eq!(deviate(&three, 0, 30_000, 50_000), Verdict::Suspect, "it goes on");
        assert_eq!(suspected(&three, 109_999), [0]);
    }
}
