//! How long things may take.

use crate::clock::{Instant, MS, S};
use crate::fault::Fault;
use crate::mode::{Mode, Single};
use crate::process::nanos;
use crate::scenario::{FaultPlan, Scenario};

/// How much longer things take where processes are looked after badly.
pub(crate) struct Weathered {
    pub(crate) slack: Instant,
}

impl Weathered {
    pub(crate) fn of(scenario: &Scenario) -> Self {
        let nerves = scenario.nerves;
        let holds = if nerves.holds > 0 { 40 * nerves.longest } else { 0 };
        Self { slack: 20 * MS + 3 * nerves.late_alarms + holds }
    }
}

impl Scenario {
    /// How long what is owed takes at most, once all is healed: a hung connection is replaced, the node is
    /// told, and told again while an old connection may deliver something.
    pub(crate) fn delivery(&self) -> Instant {
        let node = nanos(self.times.node_timeout);
        // STALE_WINDOW, patience and pauses of the library, as DESIGN has them. A node in trouble refuses to
        // kill connections, too.
        let is_refused = |it: &FaultPlan| matches!(it.fault, Fault::Trouble { .. });
        let is_sure = self.kills && !self.hides_info && !self.faults.iter().any(is_refused);
        let doubt = if is_sure { 0 } else { 10 * S };
        let patience = (10 * node).max(S);
        doubt + patience + 3 * S + 8 * node + nanos(self.times.connect_timeout) + 600 * MS
    }

    /// A vote may be withheld for so long once a restart is known, with much to spare, as a report may be looked at late:
    /// not at all where all nodes are new.
    /// Where nodes do not say who they are, each connection that was lost may be a restart: none.
    pub(crate) fn withheld_for(&self) -> Option<Instant> {
        let longest = if self.mode.is_fresh() { 0 } else { 3 * self.term() };
        (!self.hides_info).then_some(longest)
    }

    /// Within this a lock is won, once it is free and somebody waits for it.
    pub(crate) fn longest_wait(&self) -> Instant {
        let slack = Weathered::of(self).slack;
        // Where leases are kept up, work that has begun late goes on for long.
        let holds = if self.mode == Mode::Outages { 16 } else { 4 } * nanos(self.max_ttl());
        let guards = self.term() + self.steps();
        holds + guards + 2 * nanos(self.longest_delay) + self.delivery() + 4 * slack
    }

    /// Within this a lock is won that nobody holds, where nodes and network are well.
    pub(crate) fn quick_wait(&self) -> Instant {
        let (node, connect) = (nanos(self.times.node_timeout), nanos(self.times.connect_timeout));
        let slack = Weathered::of(self).slack;
        2 * connect + 12 * node + 4 * nanos(self.longest_delay) + 4 * slack
    }

    /// What faults have left is over after so long.
    pub(crate) fn rest(&self) -> Instant {
        let closing = self.mode == Mode::Single(Single::ClosingCommand);
        // A release without an answer ends at the expiry of its key plus the stale window.
        let expiry = if closing { self.longest_key() + 10 * S } else { 0 };
        self.delivery() + expiry + 4 * Weathered::of(self).slack
    }
}
