//! The record of a run. The checks and the HTML page are computed from this record.
//!
//! All times are nanoseconds since the start of the run, on the boot clock (`CLOCK_BOOTTIME`),
//! which all processes share. No time is read from a node.

use serde::{Deserialize, Serialize};

/// The name of the fault that deletes the data of all nodes at once, including all fencing
/// counters.
pub const WIPE: &str = "FLUSHALL on all nodes at once";

/// A period in which a client held the lock of a resource (a tenure), as observed by the client.
/// The period begins when the acquire returns. It ends with the release, at `valid_until`, or with
/// the report of the loss, whichever is earliest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hold {
    /// The number of the resource.
    pub resource: u16,
    /// The number of the client process.
    pub client: u16,
    /// The number of the task within the client.
    pub task: u16,
    /// The ID of the tenure within the client. A tenure of several resources is recorded as one
    /// hold per resource.
    pub id: u64,
    /// The fencing token with which the holder writes, if any.
    pub token: Option<u64>,
    /// The time at which the acquire began.
    pub asked: u64,
    /// The time at which the acquire returned.
    pub from: u64,
    /// The time at which the hold ended.
    pub until: u64,
    /// The reason why the hold ended.
    pub end: End,
    /// Whether the library extended the lease in the background.
    pub is_renewed: bool,
}

/// The reason why a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum End {
    /// The holder released the lease while it was valid.
    Released,
    /// The validity ended before the release.
    ValidUntil,
    /// The library reported the loss of the lease.
    Lost,
}

/// A fault of nodes or clients that was applied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// The kind of fault, such as `hang a node`.
    pub nemesis: String,
    /// The affected node or client, such as `node 3` or `client 1`.
    pub target: String,
    /// The time at which the fault began.
    pub from: u64,
    /// The time at which the fault ended.
    pub until: u64,
    /// Whether Redlock guarantees mutual exclusion under this fault.
    pub is_guaranteed: bool,
}

/// A fault that could not be applied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SkippedFault {
    /// The kind of fault, as in [`Fault::nemesis`].
    pub nemesis: String,
    /// The affected node or client, as in [`Fault::target`].
    pub target: String,
    /// The time at which the fault's command started.
    pub from: u64,
    /// The time at which the repair command ended. Before this time, the fault may have been partly
    /// applied.
    pub until: u64,
    /// The error of the fault's command.
    pub why: String,
}

/// The kind of a recorded call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Verb {
    /// A call of `acquire` or `try_acquire`.
    Acquire,
    /// A call of `extend`.
    Extend,
    /// A call of `release`.
    Release,
}

/// One call that a client made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// The kind of call.
    pub verb: Verb,
    /// The number of the client process.
    pub client: u16,
    /// The time at which the call began.
    pub from: u64,
    /// The time at which the call returned or was dropped.
    pub until: u64,
    /// The maximum duration that the library promises for the call, in nanoseconds.
    pub bound: u64,
    /// The result of the call: `ok`, `contended`, `no quorum`, `expired`, `timeout`, …
    pub outcome: String,
}

/// Two overlapping holds of one resource, which violate mutual exclusion.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Overlap {
    /// The hold that began first.
    pub first: Hold,
    /// The hold that began before `first` had ended.
    pub second: Hold,
    /// The names of the faults that were active from the start of the earlier acquire until the
    /// acquire of `second` returned.
    pub under: Vec<String>,
}

/// A violation of the guarantees of fencing tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Breach {
    /// The kind of violation.
    pub kind: BreachKind,
    /// The hold whose acquire returned first. For stale writes and lower tokens, this acquire
    /// returned before the acquire of `second` began.
    pub first: Hold,
    /// The other hold of the same resource.
    pub second: Hold,
    /// The names of the faults that were active from the start of the first acquire until the
    /// second acquire returned.
    pub under: Vec<String>,
}

/// The kind of a fencing violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum BreachKind {
    /// A write of the first holder was accepted after a write of the second holder.
    StaleWrite,
    /// The second holder has a lower token than the first holder.
    LowerToken,
    /// Both holders have the same token.
    EqualTokens,
    /// A write of a holder was refused while its lease was valid.
    HolderRefused,
}

/// Statistics of fencing tokens and fenced writes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fencing {
    /// The number of tokens. The token of a lease of several resources is counted once per
    /// resource.
    pub tokens: u64,
    /// The number of tokens that had to be higher than an earlier token. A token is earlier if its
    /// acquire returned before the other acquire began.
    pub ordered: u64,
    /// The number of accepted writes.
    pub accepted: u64,
    /// The number of refused writes.
    pub refused: u64,
    /// The number of writes that arrived after the end of their lease's validity, whether accepted
    /// or refused.
    pub late: u64,
    /// The number of holds whose validity ended while their client was stopped.
    pub slept_through: u64,
    /// Violations that are not findings: violations after all nodes lost their data, and refused
    /// writes of holders outside the guarantee.
    pub excused: Vec<Breach>,
}

impl BreachKind {
    /// All kinds of violations.
    pub const ALL: [Self; 4] =
        [Self::StaleWrite, Self::LowerToken, Self::EqualTokens, Self::HolderRefused];

    /// Returns the name of the violation in singular and plural.
    pub fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::StaleWrite => ("stale write accepted", "stale writes accepted"),
            Self::LowerToken => ("token out of order", "tokens out of order"),
            Self::EqualTokens => ("pair of equal tokens", "pairs of equal tokens"),
            Self::HolderRefused => ("holder refused", "holders refused"),
        }
    }

    /// Returns the number of violations of this kind.
    pub fn count(self, breaches: &[Breach]) -> u64 {
        breaches.iter().filter(|breach| breach.kind == self).count() as u64
    }
}

/// A part of a run with a fixed number of nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stretch {
    /// The number of nodes in this part.
    pub nodes: u16,
    /// The time at which the part began.
    pub from: u64,
}

/// The findings of all checks. Within the guarantee, all counts must be 0 and all lists must be
/// empty. Outside the guarantee, only `breaches` must be empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    /// Overlapping holds of one resource.
    pub overlaps: Vec<Overlap>,
    /// Fencing violations.
    pub breaches: Vec<Breach>,
    /// The number of lost updates of the shared counters.
    pub lost_updates: u64,
    /// The number of losses that were reported later than `valid_until` plus the slack for a busy
    /// machine.
    pub late_losses: u64,
    /// The number of calls that exceeded their limit plus the slack for a busy machine.
    pub overdue_calls: u64,
    /// The number of panics in clients.
    pub panics: u64,
    /// The number of tasks that remained in closed clients.
    pub leaked_tasks: u64,
    /// The number of connections that remained open on nodes.
    pub leaked_connections: u64,
    /// The number of keys that remained on nodes: locks that should have expired, and fencing
    /// counters without a TTL.
    pub leaked_keys: u64,
    /// Descriptions of all other findings.
    pub others: Vec<String>,
}

/// The parameters and the environment of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// The command that repeats the run.
    pub command: String,
    /// The seed of all random choices.
    pub seed: u64,
    /// Whether the faults are `inside` or `outside` the guarantee.
    pub mode: String,
    /// The maximum number of nodes in any part.
    pub nodes: u16,
    /// The number of client processes.
    pub clients: u16,
    /// The number of resources.
    pub resources: u16,
    /// The duration of the run, in nanoseconds.
    pub lasted: u64,
    /// The product and version of the server, as reported by a node.
    pub server: String,
    /// The version of the library.
    pub library: String,
    /// The machine's number of processors and kernel.
    pub machine: String,
    /// The date and time of the run.
    pub made_at: String,
}

/// The complete record of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The parameters and the environment of the run.
    pub setting: Setting,
    /// The parts of the run, in order.
    pub stretches: Vec<Stretch>,
    /// All periods in which a client held a lock.
    pub holds: Vec<Hold>,
    /// All faults that were applied.
    pub faults: Vec<Fault>,
    /// Faults that could not be applied.
    #[serde(default)]
    pub skipped: Vec<SkippedFault>,
    /// All calls of the clients.
    pub calls: Vec<Call>,
    /// Statistics of fencing tokens and fenced writes.
    pub fencing: Fencing,
    /// The findings of the checks.
    pub findings: Findings,
}

impl Findings {
    /// Adds the findings of another part of the run.
    pub fn add(&mut self, more: Self) {
        self.overlaps.extend(more.overlaps);
        self.breaches.extend(more.breaches);
        self.lost_updates += more.lost_updates;
        self.late_losses += more.late_losses;
        self.overdue_calls += more.overdue_calls;
        self.panics += more.panics;
        self.leaked_tasks += more.leaked_tasks;
        self.leaked_connections += more.leaked_connections;
        self.leaked_keys += more.leaked_keys;
        self.others.extend(more.others);
    }

    /// Returns true if no check has a finding.
    pub fn is_clean(&self) -> bool {
        *self == Self::default()
    }

    /// Returns true if a run with these findings has failed. Within the guarantee, any finding is a
    /// failure. Outside the guarantee, only fencing violations are failures.
    pub fn is_failure(&self, is_inside: bool) -> bool {
        (is_inside && !self.is_clean()) || !self.breaches.is_empty()
    }
}

impl Fencing {
    /// Adds the statistics of another part of the run.
    pub fn add(&mut self, more: Self) {
        self.tokens += more.tokens;
        self.ordered += more.ordered;
        self.accepted += more.accepted;
        self.refused += more.refused;
        self.late += more.late;
        self.slept_through += more.slept_through;
        self.excused.extend(more.excused);
    }
}
