//! Forward steps of node clocks.

use crate::boot;
use crate::choice::LONGEST_TTL;
use std::time::Duration;

/// How long a clock step has an effect: the longest TTL of a key that was set before the step, and
/// a margin.
pub const STEP_EFFECT: Duration = LONGEST_TTL.saturating_add(Duration::from_millis(200));

/// All forward clock steps in one part of a run.
#[derive(Clone, Debug, Default)]
pub struct Steps(Vec<Step>);

#[derive(Clone, Copy, Debug)]
struct Step {
    node: u16,
    at: u64,
    by: u64,
}

impl Steps {
    /// Records that a node's clock stepped forward by `by` nanoseconds at the time `at`.
    pub fn record(&mut self, node: u16, at: u64, by: u64) {
        self.0.push(Step { node, at, by });
    }

    /// Returns the largest total length of one node's steps that have an effect between `from` and
    /// `until`, in nanoseconds. By this much, keys may expire early and grants may count late.
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
