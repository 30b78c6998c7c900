//! What a run is about, and what must never be in it.

use crate::rule::Rule;

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Faults inside the promise, and then none: no two hold at a time, all calls end in time, and
    /// nothing is left behind.
    Promise,
    /// The nodes and the network are well. Runtimes end and are held up, processes are stopped, tasks wait: what
    /// is let go of is free at once all the same.
    Quiet,
    /// Nodes and network are well, but for short outages of all of them: leases that are kept up outlive these.
    Outages,
    /// Keys go at any moment, and some nodes forget all: committed tokens differ, and follow the
    /// order of tenures, wherever two quorums share a node that has kept its counter. Exclusion is not
    /// looked at.
    Tokens,
    /// Nodes forget all and restart at once, and clients guard against it: no two hold at a time.
    Guarded(Guarded),
    /// Clocks of nodes step, and every client has read them before: no two hold at a time.
    Stepped(Stepped),
    /// One kind of node fault without any other: locks that the fault must not affect are acquired, held and released
    /// as without it.
    Single(Single),
    /// No faults. 100 clients wait for one lock.
    ManyWaiters,
    /// One kind of fault outside the promise: how often do two hold at a time?
    Outside(Outside),
    /// Counters are lost: how often do tokens not follow the order of leases?
    Wiped(Wiped),
}

/// Whom a restart guard protects against what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarded {
    /// `Observed`: every client has seen every node before. Any number restarts.
    Observed,
    /// `Observed`, and clients that come new. The same minority restarts, again and again.
    Minority,
    /// `Strict`, and clients that come new. Any number restarts.
    Strict,
    /// `Observed`, and clients that come new. Up to all nodes but one restart, one after the other; that
    /// one is met by whoever comes.
    Rolling,
    /// `Observed`, and clients that come new to nodes that are. Nothing restarts, and no vote is withheld.
    Fresh,
}

/// What happens beside steps of nodes' clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stepped {
    /// What happens in the safety mode; but clocks keep within 100 parts per million.
    Known,
    /// Nodes forget all and restart at once, too. Clients guard against it, and have seen every node before.
    Restarts,
}

/// The only kind of fault in a run, which lasts for minutes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Single {
    /// Masters of a minority become replicas. Each becomes a master again, or its address leads to another server.
    Failover,
    /// Servers close a connection that sends a command with the key of one lock.
    ClosingCommand,
    /// The keys of some locks have foreign values of megabytes.
    LargeValue,
    /// The coordinator of a client panics, and nodes send many pushes.
    Panic,
}

/// Faults against which Redlock promises nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outside {
    /// Nodes forget all and restart at once.
    Amnesia,
    /// Node clocks jump forward.
    Jump,
    /// Some nodes' clocks run 10 % fast.
    FastNodes,
    /// Up to all nodes forget all at once, and restart at once; there is no restart guard.
    Unguarded,
    /// The same under the guard `Observed`, and clients that come new.
    Newcomers,
    /// Nodes restart one after the other, the others are silent, and clients come new.
    SilentOld,
    /// The clocks of most nodes step ahead at once, and clients come new after it.
    StepNewcomers,
    /// Clocks step, and drift to the edge of the allowance.
    StepDrift,
    /// Clients' clocks stand still, for as long as the process does.
    Standstill,
}

/// A loss of counters: at one moment so many nodes forget all, and restart at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wiped {
    /// As many as make a majority; else as many as make no majority.
    pub is_majority: bool,
    /// What clients ask the counters to go to.
    pub hint: Hint,
}

/// What a client knows of the time when it asks for a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// It gives no hint.
    None,
    /// Wall clocks of clients that agree within so many milliseconds.
    Within(u64),
}

const fn wiped(is_majority: bool, hint: Hint) -> Mode {
    Mode::Wiped(Wiped { is_majority, hint })
}

impl Mode {
    /// All modes, with their names on the command line.
    pub const ALL: [(&str, Self); 35] = [
        ("promise", Self::Promise),
        ("quiet", Self::Quiet),
        ("outages", Self::Outages),
        ("many-waiters", Self::ManyWaiters),
        ("tokens", Self::Tokens),
        ("guard-observed", Self::Guarded(Guarded::Observed)),
        ("guard-minority", Self::Guarded(Guarded::Minority)),
        ("guard-strict", Self::Guarded(Guarded::Strict)),
        ("guard-rolling", Self::Guarded(Guarded::Rolling)),
        ("guard-fresh", Self::Guarded(Guarded::Fresh)),
        ("steps", Self::Stepped(Stepped::Known)),
        ("steps-restarts", Self::Stepped(Stepped::Restarts)),
        ("failover", Self::Single(Single::Failover)),
        ("closing-command", Self::Single(Single::ClosingCommand)),
        ("large-value", Self::Single(Single::LargeValue)),
        ("panic", Self::Single(Single::Panic)),
        ("amnesia", Self::Outside(Outside::Amnesia)),
        ("jump", Self::Outside(Outside::Jump)),
        ("fast-nodes", Self::Outside(Outside::FastNodes)),
        ("steps-newcomers", Self::Outside(Outside::StepNewcomers)),
        ("steps-drift", Self::Outside(Outside::StepDrift)),
        ("standstill", Self::Outside(Outside::Standstill)),
        ("guard-off", Self::Outside(Outside::Unguarded)),
        ("guard-newcomers", Self::Outside(Outside::Newcomers)),
        ("guard-silent", Self::Outside(Outside::SilentOld)),
        ("wiped-minority-no-hint", wiped(false, Hint::None)),
        ("wiped-minority-5-ms", wiped(false, Hint::Within(5))),
        ("wiped-minority-50-ms", wiped(false, Hint::Within(50))),
        ("wiped-minority-500-ms", wiped(false, Hint::Within(500))),
        ("wiped-minority-5000-ms", wiped(false, Hint::Within(5_000))),
        ("wiped-majority-no-hint", wiped(true, Hint::None)),
        ("wiped-majority-5-ms", wiped(true, Hint::Within(5))),
        ("wiped-majority-50-ms", wiped(true, Hint::Within(50))),
        ("wiped-majority-500-ms", wiped(true, Hint::Within(500))),
        ("wiped-majority-5000-ms", wiped(true, Hint::Within(5_000))),
    ];

    /// Its name on the command line.
    pub fn label(self) -> &'static str {
        Self::ALL.iter().find(|(_, mode)| *mode == self).map_or("", |(label, _)| label)
    }

    /// True if there is something that must never be; else it is only counted.
    pub fn is_promised(self) -> bool {
        !matches!(self, Self::Outside(_) | Self::Wiped(_))
    }

    /// Seeds per turn of a hunt. `Promise` has more, because its runs use the most of the API.
    pub fn turn(self) -> u64 {
        if self == Self::Promise { 150 } else { self.share(25) }
    }

    /// Number of seeds to play of this mode in a sweep of `seeds` of all modes: less of those whose runs take long.
    pub fn share(self, seeds: u64) -> u64 {
        match self {
            Self::ManyWaiters => seeds.div_ceil(100),
            Self::Single(_) => seeds.div_ceil(4),
            Self::Guarded(Guarded::Minority | Guarded::Strict | Guarded::Rolling) => {
                seeds.div_ceil(3)
            }
            Self::Quiet | Self::Outages => seeds.div_ceil(2),
            _ => seeds,
        }
    }

    /// Whether it is a finding if `rule` is broken; else that is only counted.
    pub fn looks_at(self, rule: Rule) -> bool {
        match rule {
            Rule::Exclusion | Rule::Adopted => self.is_exclusive(),
            Rule::Updates | Rule::Tokens | Rule::Counters | Rule::Liveness => self.is_promised(),
            // Where nothing is promised, nobody uses a client between the faults and its end.
            Rule::Closes | Rule::NoKeys | Rule::NoRemains | Rule::NoTasks | Rule::NoAlarms => {
                self.is_promised()
            }
            Rule::NotLost => self.is_whole(),
            Rule::Withheld => matches!(self, Self::Guarded(_)),
            Rule::Renewed => self == Self::Outages,
            // By the client's clock.
            Rule::ClocksRead => !matches!(self, Self::Outside(_)),
            _ => true,
        }
    }

    /// True if nodes forget nothing that matters, and clocks do not step: all that is promised is looked at.
    pub(crate) fn is_whole(self) -> bool {
        let is_kept = matches!(self, Self::Single(single) if single != Single::Failover);
        is_kept || matches!(self, Self::Promise | Self::Quiet | Self::Outages | Self::ManyWaiters)
    }

    /// True if it is promised that no two hold at a time.
    pub(crate) fn is_exclusive(self) -> bool {
        self.is_promised() && self != Self::Tokens
    }

    /// True if every lock has a token, and keys may go at any moment.
    pub(crate) fn is_about_tokens(self) -> bool {
        matches!(self, Self::Tokens | Self::Wiped(_))
    }

    /// True if groups of nodes forget all at once, and restart at once.
    pub(crate) fn restarts_groups(self) -> bool {
        matches!(
            self,
            Self::Guarded(_)
                | Self::Stepped(Stepped::Restarts)
                | Self::Outside(Outside::Unguarded | Outside::Newcomers | Outside::SilentOld)
        )
    }

    /// True if it is about steps of nodes' clocks.
    pub(crate) fn has_steps(self) -> bool {
        let outside = matches!(self, Self::Outside(Outside::StepNewcomers | Outside::StepDrift));
        outside || matches!(self, Self::Stepped(_))
    }

    /// True if some clients come in the middle of the run.
    pub(crate) fn has_newcomers(self) -> bool {
        match self {
            Self::Promise => true,
            Self::Guarded(guarded) => guarded != Guarded::Observed,
            Self::Outside(outside) => {
                use Outside::{Newcomers, SilentOld, StepNewcomers};
                matches!(outside, Newcomers | SilentOld | StepNewcomers)
            }
            Self::Quiet
            | Self::Outages
            | Self::Tokens
            | Self::Stepped(_)
            | Self::Single(_)
            | Self::ManyWaiters
            | Self::Wiped(_) => false,
        }
    }

    /// True if a client may be made at any moment, and need not know what nodes and clocks did before.
    pub(crate) fn admits_anybody(self) -> bool {
        self.is_whole() || self.is_about_tokens()
    }

    /// The only fault of its runs, if it is about one.
    pub(crate) fn single(self) -> Option<Single> {
        if let Self::Single(single) = self { Some(single) } else { None }
    }

    pub(crate) fn is_fresh(self) -> bool {
        self == Self::Guarded(Guarded::Fresh)
    }

    pub(crate) fn is_rolling(self) -> bool {
        self == Self::Guarded(Guarded::Rolling)
    }
}
