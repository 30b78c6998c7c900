//! The clocks of all nodes of a client: whose has stepped, or runs fast, and whether it was ours that
//! stood still.

use super::node_clock::{Fast, NodeClock, Offset, Reading, Step};
use super::quorum::{NodeId, Quorum};
use super::validity::{Drift, Time};
use std::time::Duration;

/// A node that was not read for so long has nothing to say of what is new: idle ones are read every
/// five seconds.
const SILENCE: Duration = Duration::from_secs(12);

/// What the clocks of a client's nodes show.
#[derive(Debug)]
pub(crate) struct ClockSkew {
    clocks: Vec<NodeClock>,
}

/// What a reading has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// The grants that came before it over the same connection count from then on.
    pub(crate) counts_from: Time,
    /// By how much, at most, keys end sooner than was promised, if that was seen just now: the node's
    /// clock has stepped ahead, or ours has stood still.
    pub(crate) ahead: Option<Duration>,
    /// True if it may have been our clock, and no node's: all have stepped alike.
    pub(crate) stood_still: bool,
}

impl ClockSkew {
    /// Clocks that were not read yet. A key stands for `term` at most.
    pub(crate) fn new(quorum: Quorum, drift: Drift, term: Duration) -> Self {
        Self { clocks: quorum.ids().map(|_| NodeClock::new(drift, term)).collect() }
    }

    /// Takes what the clock of `node` showed.
    pub(crate) fn handle_reading(&mut self, node: NodeId, reading: Reading) -> Verdict {
        let told = self.clocks[node.index()].handle_reading(reading);
        let ahead = told
            .step
            .map(|step| Duration::from_nanos(u64::try_from(step.by.highest).unwrap_or_default()));
        if !told.step.is_some_and(|step| self.is_standstill(step, reading.received)) {
            return Verdict { counts_from: told.counts_from, ahead, stood_still: false };
        }
        for it in self.clocks.iter_mut().filter(|it| it.step().is_some()) {
            it.handle_standstill();
        }
        Verdict { counts_from: told.counts_from, ahead, stood_still: true }
    }

    /// True if `step`, which was just seen, can be explained by our clock having stood still: if all nodes
    /// that are read have stepped by as much, at the same moment of ours. There is no telling where only
    /// one is.
    fn is_standstill(&self, step: Step, now: Time) -> bool {
        let (mut after, mut before, mut by) = (step.after, step.before, step.by);
        let mut alike = 0;
        for it in &self.clocks {
            let Some(read_at) = it.read_at() else { continue };
            let other = it.step().and_then(|other| {
                let by = by.narrowed(other.by)?;
                let together = (after.max(other.after), before.min(other.before));
                (together.0 <= together.1).then_some((together, by))
            });
            match other {
                Some((together, narrowed)) => {
                    (after, before) = together;
                    by = narrowed;
                    alike += 1;
                }
                None if now.since(read_at) > SILENCE => {}
                None => return false,
            }
        }
        alike >= 2
    }

    /// Why nothing that `node` grants counts at `now`.
    pub(crate) fn fast(&self, node: NodeId, now: Time) -> Option<Fast> {
        self.clocks[node.index()].fast(now)
    }

    /// How far the clock of `node` is ahead of ours, in nanoseconds, as far as it is known.
    pub(crate) fn offset(&self, node: NodeId) -> Option<Offset> {
        self.clocks[node.index()].offset()
    }
}

#[cfg(test)]
#[path = "clock_skew_tests.rs"]
mod tests;
