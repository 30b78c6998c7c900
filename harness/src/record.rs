//! The record of a run, from which the checks and the HTML page are computed.
//!
//! All times are nanoseconds since the start of the run. They are read from the boot clock
//! (`CLOCK_BOOTTIME`), which all processes share, and never from a node.

use serde::{Deserialize, Serialize};

/// The name of the fault that deletes all data of all nodes simultaneously, including the fencing
/// counters.
pub const WIPE: &str = "FLUSHALL on all nodes at once";

/// A period in which a client held the lock of a resource, as observed by the client. The period
/// begins when the acquire returns. It ends with the release, at `valid_until`, or with the report
/// of the loss, whichever is earliest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hold {
    /// Index of the lock, permit, job or election, less than [`Setting::resources`].
    pub resource: u16,
    /// Number of the client process. A process that replaces a killed client gets a new number.
    pub client: u16,
    /// Index of the task within the client.
    pub task: u16,
    /// ID of the hold within the client. A lease of several resources is recorded as several holds
    /// with the same ID.
    pub id: u64,
    /// Fencing token with which the holder writes, if any.
    pub token: Option<u64>,
    /// Time at which the acquire began.
    pub asked: u64,
    /// Time at which the acquire returned.
    pub from: u64,
    /// Time at which the hold ended.
    pub until: u64,
    /// Why the hold ended.
    pub end: End,
    /// Whether the library extended the lease in the background.
    pub is_renewed: bool,
    /// Time from which the holder is a reader, so that other readers may hold the lock. `None` if
    /// the holder is never a reader.
    pub shared_from: Option<u64>,
    /// Number of the period in which the hold is the only run of a job. `None` if the hold is no
    /// run, if the job may run again after a failure, or if a new period began with the call.
    pub period: Option<u64>,
}

#[cfg(test)]
impl Hold {
    /// Returns a released hold of the first client, whose acquire took no time.
    pub(crate) fn released(resource: u16, from: u64, until: u64) -> Self {
        Self {
            resource,
            client: 0,
            task: 0,
            id: 0,
            token: None,
            asked: from,
            from,
            until,
            end: End::Released,
            is_renewed: false,
            shared_from: None,
            period: None,
        }
    }
}

/// Why a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum End {
    /// The holder released the lease while it was valid.
    Released,
    /// The validity of the lease ended before the holder released the lease. The library did not
    /// report a loss to the holder.
    ValidUntil,
    /// The library reported the loss of the lease.
    Lost,
}

/// A fault that was applied to nodes or clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// Kind of fault, such as `hang a node`.
    pub nemesis: String,
    /// The affected node or client, such as `node 3` or `client 1`.
    pub target: String,
    /// Time at which the fault began.
    pub from: u64,
    /// Time at which the fault ended.
    pub until: u64,
    /// Whether Redlock guarantees mutual exclusion under this fault.
    pub is_guaranteed: bool,
}

/// A fault that could not be applied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SkippedFault {
    /// Kind of fault, as in [`Fault::nemesis`].
    pub nemesis: String,
    /// The affected node or client, as in [`Fault::target`].
    pub target: String,
    /// Time at which the command of the fault started.
    pub from: u64,
    /// Time at which the command that repairs the node ended. Until then, the fault may have been
    /// partly in effect.
    pub until: u64,
    /// Error of the fault's command.
    pub why: String,
}

/// The method that a client called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Verb {
    /// A call of `acquire`, `acquire_all`, `try_acquire` or `try_acquire_all`.
    Acquire,
    /// A call of `acquire_any` or `try_acquire_any`.
    AcquireAny,
    /// A call of `Semaphore::acquire` or `Semaphore::try_acquire`.
    AcquirePermit,
    /// A call of `RwLock::read` or `RwLock::try_read`.
    AcquireRead,
    /// A call of `RwLock::write` or `RwLock::try_write`.
    AcquireWrite,
    /// A call of `ScheduledJob::start`.
    StartJob,
    /// A call of `Election::campaign`.
    Campaign,
    /// A call of `LeaseRef::extend`.
    Extend,
    /// A call of `LeaseRef::downgrade`.
    Downgrade,
    /// A call of `Lease::release` or `StartedJob::finish`.
    Release,
}

impl Hold {
    /// Returns true if the hold is a reader's from its beginning.
    pub(crate) fn is_read(&self) -> bool {
        self.shared_from.is_some_and(|from| from <= self.from)
    }

    /// Returns the time until which the hold excludes every other hold of the resource.
    pub(crate) fn exclusive_until(&self) -> u64 {
        self.shared_from.map_or(self.until, |from| from.min(self.until))
    }
}

impl Verb {
    /// All methods, in the order of the report.
    pub const ALL: [Self; 10] = [
        Self::Acquire,
        Self::AcquireAny,
        Self::AcquirePermit,
        Self::AcquireRead,
        Self::AcquireWrite,
        Self::StartJob,
        Self::Campaign,
        Self::Extend,
        Self::Downgrade,
        Self::Release,
    ];
}

/// A client's call of the library.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// The method that was called.
    pub verb: Verb,
    /// Number of the client process.
    pub client: u16,
    /// Time at which the call began.
    pub from: u64,
    /// Time at which the call returned, or at which its future was dropped.
    pub until: u64,
    /// Maximum duration of the call that the library promises, in nanoseconds.
    pub bound: u64,
    /// Result of the call: `ok`, `contended`, `no quorum`, `expired`, `timeout`, …
    pub outcome: String,
}

/// Two holds that must not overlap: of one resource, at least one of them not a reader's, or of a
/// semaphore with all permits held.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Overlap {
    /// The hold that began first. If there are too many holds of a semaphore, the oldest of them.
    pub first: Hold,
    /// The later hold, which began before `first` had ended.
    pub second: Hold,
    /// Names of the faults that were active between the start of the earlier acquire and the end of
    /// the acquire of `second`.
    pub under: Vec<String>,
}

/// A violation of the guarantees of fencing tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Breach {
    /// Which guarantee was violated.
    pub kind: BreachKind,
    /// The hold whose acquire returned first. For [`BreachKind::StaleWrite`] and
    /// [`BreachKind::LowerToken`], this acquire returned before the acquire of `second` began.
    pub first: Hold,
    /// The other hold of the same resource.
    pub second: Hold,
    /// Names of the faults that were active between the start of the first acquire and the end of
    /// the second acquire.
    pub under: Vec<String>,
}

/// The guarantee of fencing tokens that was violated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum BreachKind {
    /// A cell accepted a write of the first holder after a write of the second holder.
    StaleWrite,
    /// The second holder's token is lower than the first holder's.
    LowerToken,
    /// Both holders have the same token.
    EqualTokens,
    /// A cell refused the write of a holder whose lease was valid.
    HolderRefused,
}

/// Statistics of fencing tokens and fenced writes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fencing {
    /// Number of tokens. The token of a lease counts once for each resource of the lease.
    pub tokens: u64,
    /// Number of tokens that had to be higher than an earlier token of the same resource. Tokens of
    /// concurrent acquires have no required order.
    pub ordered: u64,
    /// Number of writes that the cells accepted.
    pub accepted: u64,
    /// Number of writes that the cells refused.
    pub refused: u64,
    /// Number of accepted or refused writes that arrived after their lease had expired.
    pub late: u64,
    /// Number of holds whose validity ended while their client was stopped.
    pub slept_through: u64,
    /// Violations that are not findings: those after a loss of all data, and, outside the
    /// guarantee, refused writes of holders.
    pub excused: Vec<Breach>,
}

impl BreachKind {
    /// All kinds of violations, in the order of the report.
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

    /// Counts the violations of this kind.
    pub fn count(self, breaches: &[Breach]) -> u64 {
        breaches.iter().filter(|breach| breach.kind == self).count() as u64
    }
}

/// A part of a run during which the number of nodes does not change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stretch {
    /// Number of nodes in this part.
    pub nodes: u16,
    /// Time at which the part began.
    pub from: u64,
}

/// The findings of all checks. Within the guarantee, every list must be empty and every number 0.
/// Outside the guarantee, only `breaches` must be empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    /// Overlapping holds of one resource, unless both are of readers, and holds of a semaphore with
    /// all permits held.
    pub overlaps: Vec<Overlap>,
    /// Violations of the guarantees of fencing tokens.
    pub breaches: Vec<Breach>,
    /// Number of counter updates that another write has overwritten.
    pub lost_updates: u64,
    /// Number of losses that were reported more than 1 s after `valid_until`. The second is the
    /// tolerance for a busy machine.
    pub late_losses: u64,
    /// Number of calls that exceeded their [`bound`](Call::bound) by more than the tolerance of 1
    /// s.
    pub overdue_calls: u64,
    /// Number of panics in client processes.
    pub panics: u64,
    /// Number of tasks that were still alive after their client had been closed.
    pub leaked_tasks: u64,
    /// Number of connections that remained open on the nodes after the session.
    pub leaked_connections: u64,
    /// Number of keys that remained on the nodes: locks that should have expired, and fencing
    /// counters without a TTL.
    pub leaked_keys: u64,
    /// Descriptions of all other findings.
    pub others: Vec<String>,
}

/// The parameters and the environment of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// Command line that repeats the run.
    pub command: String,
    /// Seed of all random choices.
    pub seed: u64,
    /// `inside` or `outside`, depending on whether Redlock's guarantee covers all faults of the
    /// run.
    pub mode: String,
    /// Largest number of nodes in any part of the run.
    pub nodes: u16,
    /// Number of client processes.
    pub clients: u16,
    /// Number of locks, permits, jobs and elections for which the clients compete.
    pub resources: u16,
    /// Duration of the run, in nanoseconds.
    pub lasted: u64,
    /// Product and version of the server, as reported by a node.
    pub server: String,
    /// Version of the library.
    pub library: String,
    /// The machine's number of processors, and its kernel.
    pub machine: String,
    /// Date and time of the run.
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
    /// Faults that were applied.
    pub faults: Vec<Fault>,
    /// Faults that could not be applied.
    #[serde(default)]
    pub skipped: Vec<SkippedFault>,
    /// All calls that clients made.
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

    /// Returns true if these findings make the run a failure. Within the guarantee, every finding
    /// is a failure. Outside the guarantee, only fencing violations are.
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
