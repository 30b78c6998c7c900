//! Forward steps of node clocks.

use crate::boot;
use crate::choice::LONGEST_TTL;
use std::time::Duration;

/// How long a clock step can affect keys that were set before the step: the longest TTL, plus a
/// margin.
pub const STEP_EFFECT: Duration = LONGEST_TTL.saturating_add(Duration::from_millis(200));

/// The forward clock steps of all nodes in one part of a run.
#[derive(Clone, Debug, Default)]
pub struct Steps(Vec<Step>);

#[derive(Clone, Copy, Debug)]
struct Step {
    node: u16,
    at: u64,
    by: u64,
}

impl Steps {
    /// Records that the clock of `node` stepped forward by `by` nanoseconds at the time `at`.
    pub fn record(&mut self, node: u16, at: u64, by: u64) {
        self.0.push(Step { node, at, by });
    }

    /// Adds up the steps of each node that affect the time between `from` and `until`, and returns
    /// the largest sum in nanoseconds. Keys may expire early by this much, and grants may count
    /// late by this much.
    pub fn largest(&self, from: u64, until: u64) -> u64 {
        let from = from.saturating_sub(boot::nanos(STEP_EFFECT));
        let relevant = || self.0.iter().filter(move |step| (from..=until).contains(&step.at));
        let of = |node| relevant().filter(|step| step.node == node).map(|step| step.by).sum();
        relevant().map(|step| of(step.node)).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_one_node_add_up_while_they_have_an_effect() {
        let mut steps = Steps::default();
        let (effect, second) = (boot::nanos(STEP_EFFECT), 1_000_000_000);
        steps.record(0, 10 * second, 5);
        steps.record(1, 10 * second, 30);
        steps.record(0, 11 * second, 40);
        assert_eq!(steps.largest(9 * second, 9 * second), 0);
        assert_eq!(steps.largest(9 * second, 10 * second), 30);
        assert_eq!(steps.largest(11 * second, 11 * second), 45);
        assert_eq!(steps.largest(10 * second + effect + 1, 20 * second), 40);
        assert_eq!(steps.largest(11 * second + effect + 1, 20 * second), 0);
    }
}
