//! Forward steps of the nodes' clocks. After such a step, keys of a lease may have expired early.
//!
//! The drift allowance covers a small step, but not the sum of several steps. A lease is therefore affected by the
//! total of one node's steps since the client last sent the lease's ttl to the nodes.
//! [`handle_step`](ClockSteps::handle_step) records a step, and [`since`](ClockSteps::since) returns the total.

use super::quorum::NodeId;
use super::validity::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// The maximum number of steps stored for one node. Beyond this number, the oldest step is merged into the next step
/// and gets a later time, so leases may be extended unnecessarily.
const MAX_STEPS: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct ClockSteps {
    nodes: Vec<(NodeId, VecDeque<ClockStep>)>,
}

#[derive(Clone, Copy, Debug)]
struct ClockStep {
    ahead: Duration,
    /// When the step was detected. The clock stepped before this time.
    seen: Time,
}

impl ClockSteps {
    /// Records that the clock of `node` stepped forward by at most `ahead`. `seen` is the time at which the client
    /// detected the step.
    pub(crate) fn handle_step(&mut self, node: NodeId, ahead: Duration, seen: Time) {
        let known = self.nodes.iter().position(|(known, _)| *known == node);
        let index = known.unwrap_or_else(|| {
            self.nodes.push((node, VecDeque::new()));
            self.nodes.len() - 1
        });
        let steps = &mut self.nodes[index].1;
        steps.push_back(ClockStep { ahead, seen });
        if steps.len() > MAX_STEPS
            && let Some(first) = steps.pop_front()
            && let Some(second) = steps.front_mut()
        {
            second.ahead = second.ahead.saturating_add(first.ahead);
        }
    }

    /// Returns how far the clock of any one node can have stepped forward since `t1`. If several clocks stepped, the
    /// largest total applies.
    pub(crate) fn since(&self, t1: Time) -> Duration {
        let of_one = |steps: &VecDeque<ClockStep>| {
            let later = steps.iter().filter(|step| step.seen >= t1);
            later.fold(Duration::ZERO, |sum, step| sum.saturating_add(step.ahead))
        };
        self.nodes.iter().map(|(_, steps)| of_one(steps)).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn nodes() -> [NodeId; 2] {
        [NodeId::new(0), NodeId::new(4)]
    }

    #[test]
    fn steps_add_up_per_node() {
        let [one, other] = nodes();
        let mut steps = ClockSteps::default();
        assert_eq!(steps.since(Time::default()), Duration::ZERO);
        for (node, ahead, seen) in [(one, 40, 10), (other, 40, 11), (one, 50, 20), (other, 45, 30)]
        {
            steps.handle_step(node, ms(ahead), at(seen));
        }
        let since = [0, 10, 11, 20, 21, 30, 31].map(|t1| steps.since(at(t1)).as_millis());
        assert_eq!(since, [90, 90, 85, 50, 45, 45, 0]);
        steps.handle_step(one, Duration::MAX, at(40));
        assert_eq!(steps.since(at(20)), Duration::MAX);
    }

    #[test]
    fn merged_steps_are_not_lost() {
        let [one, _] = nodes();
        let mut steps = ClockSteps::default();
        let many = 4 * MAX_STEPS as u64;
        for step in 1..=many {
            steps.handle_step(one, ms(1), at(step));
            assert!(steps.nodes[0].1.len() <= MAX_STEPS);
            for t1 in 1..=step {
                let (found, actual) = (steps.since(at(t1)), ms(step - t1 + 1));
                assert!(found >= actual, "{found:?} since {t1}, but it is {actual:?}");
            }
        }
        assert_eq!(steps.since(at(0)), ms(many));
        assert_eq!(steps.since(at(many)), ms(1));
    }
}
