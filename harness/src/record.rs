//! Record of a run, from which the checks and the page are made.
//!
//! Times are nanoseconds of the boot clock (`CLOCK_BOOTTIME`), which all processes share, since the
//! start of the run. They never come from a node.

use serde::{Deserialize, Serialize};

/// The fault that also deletes all fencing counters.
pub const WIPE: &str = "FLUSHALL on all nodes at once";

/// One tenure, as observed by its holder: from the return of the acquire to the earliest of its
/// release, its `valid_until`, and the report of its loss.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hold {
    /// Number of the resource.
    pub resource: u16,
    /// Number of the client process.
    pub client: u16,
    /// Number of the task in the client.
    pub task: u16,
    /// Number of the tenure in the client. A tenure of several resources is one hold per resource.
    pub id: u64,
    /// Fencing token with which the holder writes.
    pub token: Option<u64>,
    /// Start of the acquire.
    pub asked: u64,
    /// Return of the acquire.
    pub from: u64,
    /// End of the tenure.
    pub until: u64,
    /// Cause of the end.
    pub end: End,
    /// The lease was extended in the background.
    pub is_renewed: bool,
}

/// How a tenure ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum End {
    /// The holder released it in time.
    Released,
    /// The validity ended before the release.
    ValidUntil,
    /// The library reported the loss.
    Lost,
}

/// A fault of nodes or clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// Kind of fault, such as `hang a node`.
    pub nemesis: String,
    /// The affected node or client, such as `node 3` or `client 1`.
    pub target: String,
    /// Start of the fault.
    pub from: u64,
    /// End of the fault.
    pub until: u64,
    /// Redlock guarantees mutual exclusion under this fault.
    pub is_guaranteed: bool,
}

/// A fault that could not be applied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SkippedFault {
    /// Its nemesis, as in [`Fault::nemesis`].
    pub nemesis: String,
    /// Its target, as in [`Fault::target`].
    pub target: String,
    /// Start of its command.
    pub from: u64,
    /// End of its repair command. Until then, the fault may have been partly applied.
    pub until: u64,
    /// Error of its command.
    pub why: String,
}

/// Kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Verb {
    /// `acquire` or `try_acquire`.
    Acquire,
    /// `extend`.
    Extend,
    /// `release`.
    Release,
}

/// One call of a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// Kind of call.
    pub verb: Verb,
    /// Number of the client process.
    pub client: u16,
    /// Start of the call.
    pub from: u64,
    /// Return of the call.
    pub until: u64,
    /// Maximum duration that the library promises, in nanoseconds.
    pub bound: u64,
    /// Result: `ok`, `contended`, `no quorum`, `expired`, `timeout`, …
    pub outcome: String,
}

/// Two tenures of one resource that overlap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Overlap {
    /// The tenure that began first.
    pub first: Hold,
    /// The tenure that began before the first had ended.
    pub second: Hold,
    /// Faults that were active from the first acquire to the second.
    pub under: Vec<String>,
}

/// A violation of the guarantees of fencing tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Breach {
    /// Kind of violation.
    pub kind: BreachKind,
    /// The holder whose acquire returned before the other's began. For equal tokens and refused
    /// holders, the holder that acquired the resource first.
    pub first: Hold,
    /// The other holder of the same resource.
    pub second: Hold,
    /// Faults that were active from the first acquire to the second.
    pub under: Vec<String>,
}

/// Kind of a fencing violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum BreachKind {
    /// A write of the first holder was accepted after a write of the second.
    StaleWrite,
    /// The second holder has a lower token.
    LowerToken,
    /// Both holders have the same token.
    EqualTokens,
    /// A write of one of them was refused while its lease was valid.
    HolderRefused,
}

/// Statistics of fenced writes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fencing {
    /// Number of tokens, one for each resource of a tenure.
    pub tokens: u64,
    /// Number of tokens that must be higher than an earlier one, because the
    /// earlier acquire had returned before the later one began.
    pub ordered: u64,
    /// Number of accepted writes.
    pub accepted: u64,
    /// Number of refused writes.
    pub refused: u64,
    /// Number of writes that arrived after the validity of their lease, accepted or refused.
    pub late: u64,
    /// Number of tenures whose validity ended while their client was stopped.
    pub slept_through: u64,
    /// Violations that are no findings: after all nodes lost their data, and refused holders
    /// outside the guarantee.
    pub excused: Vec<Breach>,
}

impl BreachKind {
    /// All kinds.
    pub const ALL: [Self; 4] =
        [Self::StaleWrite, Self::LowerToken, Self::EqualTokens, Self::HolderRefused];

    /// Name of the violation, in singular and plural.
    pub fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::StaleWrite => ("stale write accepted", "stale writes accepted"),
            Self::LowerToken => ("token out of order", "tokens out of order"),
            Self::EqualTokens => ("pair of equal tokens", "pairs of equal tokens"),
            Self::HolderRefused => ("holder refused", "holders refused"),
        }
    }

    /// Counts the violations of this kind.
    pub fn count(self, breaches: &[Breach]) -> u64 {
        breaches.iter().filter(|breach| breach.kind == self).count() as u64
    }
}

/// A part of a run with a fixed number of nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stretch {
    /// Number of nodes.
    pub nodes: u16,
    /// Start of the part.
    pub from: u64,
}

/// Counts and lists that must be empty within the guarantee. `breaches` must also be empty outside.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    /// Overlapping tenures of one resource.
    pub overlaps: Vec<Overlap>,
    /// Fencing violations.
    pub breaches: Vec<Breach>,
    /// Lost updates of shared counters.
    pub lost_updates: u64,
    /// Losses that were reported later than `valid_until` plus the slack for a busy machine.
    pub late_losses: u64,
    /// Calls that exceeded their limit plus the slack for a busy machine.
    pub overdue_calls: u64,
    /// Panics in clients.
    pub panics: u64,
    /// Tasks that remained in clients.
    pub leaked_tasks: u64,
    /// Connections that remained open on nodes.
    pub leaked_connections: u64,
    /// Keys that remained on nodes without expiring.
    pub leaked_keys: u64,
    /// Descriptions of all other findings.
    pub others: Vec<String>,
}

/// Parameters and environment of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// Command that repeats the run.
    pub command: String,
    /// Seed of all choices.
    pub seed: u64,
    /// `inside` or `outside` the guarantee.
    pub mode: String,
    /// Maximum number of nodes.
    pub nodes: u16,
    /// Number of client processes.
    pub clients: u16,
    /// Number of resources.
    pub resources: u16,
    /// Duration in nanoseconds.
    pub lasted: u64,
    /// Server version that a node reports.
    pub server: String,
    /// Version of the library.
    pub library: String,
    /// Processors and kernel of the machine.
    pub machine: String,
    /// Date and time of the run.
    pub made_at: String,
}

/// Record of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Parameters and environment.
    pub setting: Setting,
    /// Parts, in order.
    pub stretches: Vec<Stretch>,
    /// All tenures.
    pub holds: Vec<Hold>,
    /// All faults.
    pub faults: Vec<Fault>,
    /// Faults that could not be applied.
    #[serde(default)]
    pub skipped: Vec<SkippedFault>,
    /// All calls.
    pub calls: Vec<Call>,
    /// Statistics of fenced writes.
    pub fencing: Fencing,
    /// Results of the checks.
    pub findings: Findings,
}

impl Findings {
    /// Adds the findings of another part.
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

    /// Returns true if there are no findings.
    pub fn is_clean(&self) -> bool {
        *self == Self::default()
    }

    /// True if a run with these findings has failed: within the guarantee, because of any finding; outside the
    /// guarantee, because of fencing violations only.
    pub fn is_failure(&self, is_inside: bool) -> bool {
        (is_inside && !self.is_clean()) || !self.breaches.is_empty()
    }
}

impl Fencing {
    /// Adds the statistics of another part.
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
