//! What a run leaves behind: everything that the check and the page are made from.
//!
//! Times are nanoseconds of the machine's boot clock (`CLOCK_BOOTTIME`), which all processes share,
//! less the run's start. They are never taken from a node.

use serde::{Deserialize, Serialize};

/// The name of the nemesis that no fencing counter survives.
pub const WIPE: &str = "FLUSHALL on all nodes at once";

/// One tenure, as the holder saw it: from the moment the acquire returned to the earliest of its
/// release, its `valid_until`, and the loss it was told of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hold {
    /// The resource, by number.
    pub resource: u16,
    /// The client process, by number.
    pub client: u16,
    /// The task in it.
    pub task: u16,
    /// Which of the client's tenures it is. One that is of several resources is a hold of each.
    pub id: u64,
    /// The fencing token that the holder writes with.
    pub token: Option<u64>,
    /// When the acquire began.
    pub asked: u64,
    /// When the acquire returned.
    pub from: u64,
    /// When it ended.
    pub until: u64,
    /// How it ended.
    pub end: End,
    /// True if it was extended in the background.
    pub is_renewed: bool,
}

/// How a tenure ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum End {
    /// The holder released it in time.
    Released,
    /// Its validity ended before the holder had finished.
    ValidUntil,
    /// The holder was told of the loss.
    Lost,
}

/// Something that was done to nodes or clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// Which nemesis did it, for example `hang a node`.
    pub nemesis: String,
    /// To whom, for example `node 3` or `client 1`.
    pub target: String,
    /// When it began.
    pub from: u64,
    /// When it was over.
    pub until: u64,
    /// True if Redlock promises exclusion under it.
    pub is_promised: bool,
}

/// A fault that could not be applied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SkippedFault {
    /// Its nemesis, as in [`Fault::nemesis`].
    pub nemesis: String,
    /// Its target, as in [`Fault::target`].
    pub target: String,
    /// When its command started.
    pub from: u64,
    /// When its mending command had ended: it may have been applied in part until then.
    pub until: u64,
    /// The error of its command.
    pub why: String,
}

/// What a client asked for.
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
    /// What was asked for.
    pub verb: Verb,
    /// The client process.
    pub client: u16,
    /// When it began.
    pub from: u64,
    /// When it returned.
    pub until: u64,
    /// How long it may take, in nanoseconds, by the library's promise.
    pub bound: u64,
    /// What came of it, in a word: `ok`, `contended`, `no quorum`, `expired`, `timeout`, …
    pub outcome: String,
}

/// Two tenures of one resource that overlap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Overlap {
    /// The one that began first.
    pub first: Hold,
    /// The one that began before the first had ended.
    pub second: Hold,
    /// Nemeses at work from the first one's acquire to the second one's.
    pub under: Vec<String>,
}

/// What fencing tokens are to prevent, or an order of theirs that could not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Breach {
    /// What it is.
    pub kind: BreachKind,
    /// The holder whose acquire had returned before the other's began; of equal tokens and of a
    /// refused holder, the one that got the resource first.
    pub first: Hold,
    /// The other one, of the same resource.
    pub second: Hold,
    /// Nemeses at work from the first one's acquire to the second one's.
    pub under: Vec<String>,
}

/// In what way fencing failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum BreachKind {
    /// A write of the first holder was accepted after one of the second.
    StaleWrite,
    /// The second holder has the lower token.
    LowerToken,
    /// Both have the same token.
    EqualTokens,
    /// A write of one of them was refused while its lease was valid.
    HolderRefused,
}

/// What went on at the cells that refuse lower tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fencing {
    /// Tokens that were used, one for each resource of a tenure.
    pub tokens: u64,
    /// Those of them that have to be higher than another: some acquire had returned before theirs
    /// began.
    pub ordered: u64,
    /// Writes that were accepted.
    pub accepted: u64,
    /// Writes that were refused: a holder with a higher token had written.
    pub refused: u64,
    /// Writes that landed after the validity of their lease; the cell took them or refused them.
    pub late: u64,
    /// Tenures whose validity ended while their client hung.
    pub slept_through: u64,
    /// What is no finding: after the memory of all nodes was wiped, or, of holders that were
    /// refused, outside the promise.
    pub excused: Vec<Breach>,
}

impl BreachKind {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::StaleWrite, Self::LowerToken, Self::EqualTokens, Self::HolderRefused];

    /// In a word or two, of one and of several.
    pub fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::StaleWrite => ("stale write accepted", "stale writes accepted"),
            Self::LowerToken => ("token out of order", "tokens out of order"),
            Self::EqualTokens => ("pair of equal tokens", "pairs of equal tokens"),
            Self::HolderRefused => ("holder refused", "holders refused"),
        }
    }

    /// How many of these are of that kind.
    pub fn count(self, breaches: &[Breach]) -> u64 {
        breaches.iter().filter(|breach| breach.kind == self).count() as u64
    }
}

/// A part of a run with one number of nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stretch {
    /// How many nodes there are in it.
    pub nodes: u16,
    /// When it begins.
    pub from: u64,
}

/// What must be zero inside the promise; breaches also outside.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    /// Tenures of one resource that overlap.
    pub overlaps: Vec<Overlap>,
    /// What fencing tokens did not prevent.
    pub breaches: Vec<Breach>,
    /// Updates of shared counters that were lost.
    pub lost_updates: u64,
    /// Losses that were told after `valid_until` and the slack for a busy machine.
    pub late_losses: u64,
    /// Calls that took longer than their bound and the slack for a busy machine.
    pub overdue_calls: u64,
    /// Panics in clients.
    pub panics: u64,
    /// Tasks that were left in clients.
    pub leaked_tasks: u64,
    /// Connections that were left open on nodes.
    pub leaked_connections: u64,
    /// Keys that were left on nodes, and did not expire.
    pub leaked_keys: u64,
    /// Anything else that went wrong, in words.
    pub others: Vec<String>,
}

/// How a run was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// The command that makes it again.
    pub command: String,
    /// The seed of every choice.
    pub seed: u64,
    /// The mode: `inside` or `outside` the promise.
    pub mode: String,
    /// How many nodes there were at the most.
    pub nodes: u16,
    /// How many client processes.
    pub clients: u16,
    /// How many resources.
    pub resources: u16,
    /// How long it lasted, in nanoseconds.
    pub lasted: u64,
    /// The server's version, as it says.
    pub server: String,
    /// The library's version.
    pub library: String,
    /// The machine: processors, kernel.
    pub machine: String,
    /// When it was made, in words.
    pub made_at: String,
}

/// A run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// How it was made.
    pub setting: Setting,
    /// Its parts, in order.
    pub stretches: Vec<Stretch>,
    /// Every tenure.
    pub holds: Vec<Hold>,
    /// Every fault.
    pub faults: Vec<Fault>,
    /// The faults that could not be applied.
    #[serde(default)]
    pub skipped: Vec<SkippedFault>,
    /// Every call.
    pub calls: Vec<Call>,
    /// What fencing did.
    pub fencing: Fencing,
    /// What was found.
    pub findings: Findings,
}

impl Findings {
    /// Adds what was found elsewhere.
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

    /// True if nothing was found.
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
    /// Adds what went on elsewhere.
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
