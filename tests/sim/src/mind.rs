//! What a client knows of its nodes' clocks and memories.

use crate::guard::Sight;
use crate::protocol::{ClockSkew, Quarantine, Time};
use crate::scenario::Scenario;
use std::time::Duration;

/// What a client knows of its nodes.
pub(crate) struct Mind {
    pub(crate) clocks: ClockSkew,
    pub(crate) memory: Quarantine<u32>,
    /// Until then its first attempt waits for nodes that it has not met.
    pub(crate) settles_by: Time,
    pub(crate) sights: Vec<Sight>,
    /// What only clients with a mutation go by: the oldest node, and the last step of each.
    pub(crate) oldest: Option<(Time, Duration)>,
    pub(crate) steps: Vec<Option<(Time, Duration)>>,
}

impl Mind {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        Self {
            clocks: scenario.clock_skew(),
            memory: scenario.quarantine(),
            settles_by: Time::default(),
            sights: vec![Sight::default(); scenario.nodes],
            oldest: None,
            steps: vec![None; scenario.nodes],
        }
    }
}
