//! Time limits of calls and waits.

use crate::clock::{Instant, MS, S};
use crate::fault::Fault;
use crate::mode::{Mode, Single};
use crate::process::nanos;
use crate::scenario::{FaultPlan, Scenario};

/// The extra time that limits allow, because tasks and alarms of processes may be delayed.
pub(crate) struct Slack {
    pub(crate) slack: Instant,
}

impl Slack {
    pub(crate) fn of(scenario: &Scenario) -> Self {
        let delays = scenario.delays;
        let holds = if delays.holds > 0 { 40 * delays.longest } else { 0 };
        Self { slack: 20 * MS + 3 * delays.late_alarms + holds }
    }
}

impl Scenario {
    /// Returns how long a client may take to deliver a pending release after all faults have ended.
    /// The client may first have to replace a stalled connection. It then repeats the release for
    /// as long as an old connection could still deliver earlier commands.
    pub(crate) fn delivery(&self) -> Instant {
        let node = nanos(self.times.node_timeout);
        // `docs/DESIGN.md` explains these constants of the library. A node in trouble also refuses
        // to kill connections.
        let is_refused = |it: &FaultPlan| matches!(it.fault, Fault::Trouble { .. });
        let is_sure =
            self.permits_kill && !self.forbids_info && !self.faults.iter().any(is_refused);
        let doubt = if is_sure { 0 } else { 10 * S };
        let patience = (10 * node).max(S);
        doubt + patience + 3 * S + 8 * node + nanos(self.times.connect_timeout) + 600 * MS
    }

    /// Returns how long a client may ignore a node's vote after learning that the node has
    /// restarted. The time includes a margin for reports that are checked late. In a new
    /// deployment, it is zero. If the nodes forbid `INFO`, returns `None`, which means no limit,
    /// because every lost connection may then be a restart.
    pub(crate) fn withheld_for(&self) -> Option<Instant> {
        let longest = if self.mode.is_new_deployment() { 0 } else { 3 * self.quarantine_period() };
        (!self.forbids_info).then_some(longest)
    }

    /// Returns the maximum time that an acquire may take if the lock is free but other waiters
    /// compete for it.
    pub(crate) fn longest_wait(&self) -> Instant {
        let slack = Slack::of(self).slack;
        // With auto-extension, work that started late can hold the lock for a long time.
        let holds = if self.mode == Mode::Outages { 16 } else { 4 } * nanos(self.max_ttl());
        let guards = self.quarantine_period() + self.steps();
        holds + guards + 2 * nanos(self.longest_delay) + self.delivery() + 4 * slack
    }

    /// Returns the maximum time that an acquire may take if the lock has no holder, and the nodes
    /// and the network are healthy.
    pub(crate) fn quick_wait(&self) -> Instant {
        let (node, connect) = (nanos(self.times.node_timeout), nanos(self.times.connect_timeout));
        let slack = Slack::of(self).slack;
        2 * connect + 12 * node + 4 * nanos(self.longest_delay) + 4 * slack
    }

    /// Returns how long the effects of faults may last after the last fault has ended.
    pub(crate) fn rest(&self) -> Instant {
        let closing = self.mode == Mode::Single(Single::ClosingCommand);
        // A release that gets no reply ends when its key has expired and the stale window has
        // passed.
        let expiry = if closing { self.longest_key() + 10 * S } else { 0 };
        self.delivery() + expiry + 4 * Slack::of(self).slack
    }
}
