//! By how much clocks of nodes have stepped forward, and when.

use crate::boot;
use crate::choice::LONGEST_TTL;
use std::time::Duration;

/// How long a step of a clock is felt: as long as a key can stand that was set before.
pub const FELT: Duration = LONGEST_TTL.saturating_add(Duration::from_millis(200));

/// All steps of a part.
#[derive(Clone, Debug, Default)]
pub struct Steps(Vec<Step>);

#[derive(Clone, Copy, Debug)]
struct Step {
    node: u16,
    at: u64,
    by: u64,
}

impl Steps {
    /// Notes a forward step.
    pub fn note(&mut self, node: u16, at: u64, by: u64) {
        self.0.push(Step { node, at, by });
    }

    /// How far the clock of one node has stepped at the most, of what is felt between two times: a
    /// key may go by that much too early, and a grant counts by that much later.
    pub fn felt(&self, from: u64, until: u64) -> u64 {
        let from = from.saturating_sub(boot::nanos(FELT));
        let felt = || self.0.iter().filter(move |step| (from..=until).contains(&step.at));
        let of = |node| felt().filter(|step| step.node == node).map(|step| step.by).sum();
        felt().map(|step| of(step.node)).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_node_has_stepped_adds_up_for_as_long_as_it_is_felt() {
        let mut steps = Steps::default();
        let (felt, second) = (boot::nanos(FELT), 1_000_000_000);
        steps.note(0, 10 * second, 5);
        steps.note(1, 10 * second, 30);
        steps.note(0, 11 * second, 40);
        assert_eq!(steps.felt(9 * second, 9 * second), 0);
        assert_eq!(steps.felt(9 * second, 10 * second), 30);
        assert_eq!(steps.felt(11 * second, 11 * second), 45);
        assert_eq!(steps.felt(10 * second + felt + 1, 20 * second), 40);
        assert_eq!(steps.felt(11 * second + felt + 1, 20 * second), 0);
    }
}
