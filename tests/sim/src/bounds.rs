//! Time limits of calls and waits.

use crate::clock::{Instant, MS, S};
use crate::fault::Fault;
use crate::mode::{Mode, Single};
use crate::process::nanos;
use crate::scenario::{FaultPlan, Scenario};

/// Additional time for processes whose tasks and alarms are delayed.
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
    /// Maximum time until a pending release is delivered after all faults have ended: a stalled
    /// connection is replaced, and the release is sent, and repeated while an old connection may
    /// deliver earlier commands.
    pub(crate) fn delivery(&self) -> Instant {
        let node = nanos(self.times.node_timeout);
        // Constants of the library; see DESIGN. A node in trouble also refuses to kill connections.
        let is_refused = |it: &FaultPlan| matches!(it.fault, Fault::Trouble { .. });
        let is_sure =
            self.permits_kill && !self.forbids_info && !self.faults.iter().any(is_refused);
        let doubt = if is_sure { 0 } else { 10 * S };
        let patience = (10 * node).max(S);
        doubt + patience + 3 * S + 8 * node + nanos(self.times.connect_timeout) + 600 * MS
    }

    /// Maximum time for which a vote may be withheld after a restart is known, with a margin for
    /// reports that are checked late. Zero in a new deployment. `None` if nodes do not send `INFO`:
    /// then each lost connection may be a restart.
    pub(crate) fn withheld_for(&self) -> Option<Instant> {
        let longest = if self.mode.is_new_deployment() { 0 } else { 3 * self.term() };
        (!self.forbids_info).then_some(longest)
    }

    /// Maximum wait for a free lock, including the competition of other waiters.
    pub(crate) fn longest_wait(&self) -> Instant {
        let slack = Slack::of(self).slack;
        // With auto-extension, work that started late continues for long.
        let holds = if self.mode == Mode::Outages { 16 } else { 4 } * nanos(self.max_ttl());
        let guards = self.term() + self.steps();
        holds + guards + 2 * nanos(self.longest_delay) + self.delivery() + 4 * slack
    }

    /// Maximum wait for a lock without a holder, with healthy nodes and network.
    pub(crate) fn quick_wait(&self) -> Instant {
        let (node, connect) = (nanos(self.times.node_timeout), nanos(self.times.connect_timeout));
        let slack = Slack::of(self).slack;
        2 * connect + 12 * node + 4 * nanos(self.longest_delay) + 4 * slack
    }

    /// Maximum time until the effects of faults have ended.
    pub(crate) fn rest(&self) -> Instant {
        let closing = self.mode == Mode::Single(Single::ClosingCommand);
        // A release without an answer ends at the expiry of its key plus the stale window.
        let expiry = if closing { self.longest_key() + 10 * S } else { 0 };
        self.delivery() + expiry + 4 * Slack::of(self).slack
    }
}
