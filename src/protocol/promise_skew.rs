//! Detects nodes whose clocks run ahead, by the remaining ttls of keys. For nodes on which `TIME` is forbidden.
//!
//! A node expires keys by its wall clock. If that jumps ahead or runs too fast, the node drops locks
//! too early. Without `TIME`, only the remaining ttl of a key shows this: the script that extends it returns the
//! ttl that it found. If that is less than the drift allowance explains, more time has passed
//! on the node than on the client, so one of the two clocks is wrong. If more nodes deviate than a
//! quorum can do without, the client's clock has stood still.
//!
//! - Event: [`PromiseSkew::handle_deviation`], for a deviation that [`PromiseSkew::ahead`] has measured.
//! - Query: [`PromiseSkew::suspect`], how far a node is ahead, and for how long its grants do not count.

use super::quorum::{NodeId, Quorum};
use super::validity::{Drift, Time, Ttl};
use std::time::Duration;

/// A node's promise to keep the keys for `ttl`. Counted from when the command was written, which is before the node
/// began to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Promise {
    pub(crate) written: Time,
    pub(crate) ttl: Ttl,
}

impl Promise {
    pub(crate) fn until(self) -> Time {
        self.written.after(self.ttl.as_duration())
    }
}

/// Deviations within this time of each other have one cause. The nodes reply to an extension within a
/// node timeout, and each lease is extended on all nodes at once.
const SAME_CAUSE_WINDOW: Duration = Duration::from_secs(1);

/// `PTTL` is truncated to milliseconds.
const PRECISION: Duration = Duration::from_millis(1);

/// The deviations of all nodes of a client.
#[derive(Debug)]
pub(crate) struct PromiseSkew {
    quorum: Quorum,
    drift: Drift,
    /// How long a node stays suspect after a deviation.
    suspect_period: Duration,
    marks: Vec<Option<Mark>>,
    /// When the client's clock was last found to have stood still. Earlier promises cannot be measured by it.
    stood_still: Option<Time>,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Time,
    ahead: Duration,
}

/// The cause of a deviation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Already known: the promise was made before the last mark.
    Known,
    /// The node is suspect from now on.
    Suspect,
    /// Too many nodes deviate: the client's clock stood still, and no node is suspect for it.
    StoodStill,
}

impl PromiseSkew {
    pub(crate) fn new(quorum: Quorum, drift: Drift, suspect_period: Duration) -> Self {
        Self { quorum, drift, suspect_period, marks: vec![None; quorum.nodes()], stood_still: None }
    }

    /// How far a node's clock is ahead at least, if a promised key has only `left` to live; `None` if drift can explain
    /// it. `now` is read after the reply: a late reply makes the key seem to live longer than it should, never shorter.
    pub(crate) fn ahead(&self, promise: Promise, left: Duration, now: Time) -> Option<Duration> {
        let due = promise.until().since(now);
        let allowance = self.drift.allowance(promise.ttl).saturating_add(PRECISION);
        (due > left.saturating_add(allowance)).then(|| due.saturating_sub(left))
    }

    /// A promised key showed at `now` that `node` is this far ahead.
    pub(crate) fn handle_deviation(
        &mut self,
        node: NodeId,
        promise: Promise,
        ahead: Duration,
        now: Time,
    ) -> Verdict {
        let seen = self.marks[node.index()].map(|mark| mark.at).max(self.stood_still);
        if seen.is_some_and(|at| promise.written <= at) {
            return Verdict::Known;
        }
        self.marks[node.index()] = Some(Mark { at: now, ahead });
        let is_recent = |mark: &Mark| now.since(mark.at) < SAME_CAUSE_WINDOW;
        let recent = self.marks.iter().flatten().filter(|mark| is_recent(mark)).count();
        if recent <= self.quorum.nodes() - self.quorum.needed() {
            return Verdict::Suspect;
        }
        for mark in &mut self.marks {
            let _ = mark.take_if(|mark| is_recent(mark));
        }
        self.stood_still = Some(now);
        Verdict::StoodStill
    }

    /// True if there is a mark on `node`, which may have ended.
    pub(crate) fn is_marked(&self, node: NodeId) -> bool {
        self.marks[node.index()].is_some()
    }

    /// How far `node` is ahead, and for how long its grants do not count.
    pub(crate) fn suspect(&self, node: NodeId, now: Time) -> Option<(Duration, Duration)> {
        let Mark { at, ahead } = self.marks[node.index()]?;
        let counts_in = at.after(self.suspect_period).since(now);
        (!counts_in.is_zero()).then_some((ahead, counts_in))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUSPECT_PERIOD: Duration = Duration::from_mins(1);

    fn at(ms: u64) -> Time {
        Time::default().after(Duration::from_millis(ms))
    }

    fn promise(written: u64, ttl: u64) -> Promise {
        let ttl = Ttl::from_duration(Duration::from_millis(ttl)).expect("a good ttl");
        Promise { written: at(written), ttl }
    }

    fn suspects(nodes: usize) -> PromiseSkew {
        PromiseSkew::new(Quorum::majority(nodes), Drift::DEFAULT, SUSPECT_PERIOD)
    }

    fn deviate(suspects: &mut PromiseSkew, node: usize, written: u64, now: u64) -> Verdict {
        let (node, ahead) = (NodeId::new(node), Duration::from_secs(5));
        suspects.handle_deviation(node, promise(written, 10_000), ahead, at(now))
    }

    fn suspected(suspects: &PromiseSkew, now: u64) -> Vec<usize> {
        let ids = suspects.quorum.ids();
        ids.filter(|id| suspects.suspect(*id, at(now)).is_some()).map(NodeId::index).collect()
    }

    #[test]
    fn deviation_exceeds_drift_allowance() {
        let ahead = |now, left| {
            let ahead = suspects(3).ahead(promise(0, 10_000), Duration::from_millis(left), at(now));
            ahead.map(|ahead| ahead.as_millis())
        };
        // 1 % and 2 ms are the allowance, 1 ms the precision.
        assert_eq!(ahead(4_000, 6_000), None);
        assert_eq!(ahead(4_000, 5_897), None);
        assert_eq!(ahead(4_000, 5_896), Some(104));
        assert_eq!(ahead(4_000, 9_000), None, "a longer ttl than expected");
        assert_eq!(ahead(20_000, 0), None, "its time is over");
    }

    #[test]
    fn few_deviations_suspect_nodes_many_the_own_clock() {
        let mut five = suspects(5);
        assert_eq!(deviate(&mut five, 1, 0, 1_000), Verdict::Suspect);
        assert_eq!(deviate(&mut five, 3, 0, 1_100), Verdict::Suspect);
        assert_eq!(suspected(&five, 1_100), [1, 3]);
        assert_eq!([1, 2].map(|node| five.is_marked(NodeId::new(node))), [true, false]);
        assert_eq!(deviate(&mut five, 0, 0, 1_200), Verdict::StoodStill);
        assert_eq!(suspected(&five, 1_200), [0; 0], "the marks are removed");
        assert!(!five.is_marked(NodeId::new(1)));
        assert_eq!(deviate(&mut five, 2, 1_150, 9_000), Verdict::Known, "promised before");
        assert_eq!(deviate(&mut five, 2, 1_300, 9_000), Verdict::Suspect);
        let mut one = suspects(1);
        assert_eq!(deviate(&mut one, 0, 0, 1_000), Verdict::StoodStill, "no other node to compare");
    }

    #[test]
    fn separate_deviations_have_separate_causes() {
        let mut three = suspects(3);
        assert_eq!(deviate(&mut three, 0, 0, 1_000), Verdict::Suspect);
        assert_eq!(deviate(&mut three, 1, 0, 2_000), Verdict::Suspect);
        assert_eq!(suspected(&three, 2_000), [0, 1]);
    }

    #[test]
    fn suspicion_ends_and_old_promises_do_not_renew_it() {
        let mut three = suspects(3);
        deviate(&mut three, 0, 0, 1_000);
        assert_eq!(deviate(&mut three, 0, 900, 30_000), Verdict::Known, "promised before the jump");
        assert_eq!(suspected(&three, 60_999), [0]);
        assert_eq!(suspected(&three, 61_000), [0; 0]);
        assert_eq!(deviate(&mut three, 0, 30_000, 50_000), Verdict::Suspect, "a new deviation");
        assert_eq!(suspected(&three, 109_999), [0]);
    }
}
