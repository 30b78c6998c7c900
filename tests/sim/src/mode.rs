//! Modes of the simulation: the faults of a run, and the rules that it checks.

use crate::rule::Rule;

/// The faults of a run, and the rules that it checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Faults within the guarantee, and then none. Mutual exclusion, the limits of all calls, and
    /// the cleanup are checked.
    Promise,
    /// Healthy nodes and network. Runtimes are shut down or held up, processes are stopped and
    /// tasks are delayed: released locks must nevertheless be free at once.
    Quiet,
    /// Healthy nodes and network except for short outages of all nodes. Leases with auto-extension
    /// must survive them.
    Outages,
    /// Keys are lost at any time, and some nodes lose all data. Committed tokens must differ and
    /// follow the order of the tenures, wherever two quorums share a node that has kept its
    /// counter. Mutual exclusion is not checked.
    Tokens,
    /// Nodes restart without data, and clients have a restart guard. Mutual exclusion is checked.
    Guarded(Guarded),
    /// Clocks of nodes step after every client has read them. Mutual exclusion is checked.
    Stepped(Stepped),
    /// One kind of node fault for minutes. Locks that the fault must not affect are acquired, held
    /// and released.
    Single(Single),
    /// No faults. 100 clients wait for one lock.
    ManyWaiters,
    /// One kind of fault outside the guarantee. Overlaps of holders are counted.
    Outside(Outside),
    /// Loss of counters. Tokens out of order are counted.
    Wiped(Wiped),
}

/// Setting of the restart guard, and the restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarded {
    /// `Observed`. Every client has connected to every node before. Any number of nodes restarts.
    Observed,
    /// `Observed`, with new clients. A fixed minority restarts repeatedly.
    Minority,
    /// `Strict`, with new clients. Any number of nodes restarts.
    Strict,
    /// `Observed`, with new clients. Up to all nodes except one restart, one after the other. Every
    /// new client reaches that one.
    Rolling,
    /// `Observed`, with new clients and a new deployment. No node restarts, and no vote may be
    /// withheld.
    Fresh,
}

/// Faults in addition to steps of the nodes' clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stepped {
    /// The faults of `Promise`. The rates of clocks differ by at most 100 parts per million.
    Known,
    /// The same, and nodes restart without data. Clients have a restart guard, and have connected
    /// to every node before.
    Restarts,
}

/// The only kind of fault in a run, which takes minutes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Single {
    /// Masters of a minority become replicas. Each becomes a master again, or its address leads to
    /// another server.
    Failover,
    /// Servers close a connection that sends a command with the key of one lock.
    ClosingCommand,
    /// The keys of some locks have values of several megabytes, set by other clients.
    LargeValue,
    /// The coordinator of a client panics, and nodes send many pushes.
    Panic,
}

/// Faults outside the guarantee of Redlock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outside {
    /// Nodes restart immediately without data.
    Amnesia,
    /// Node clocks jump forward.
    Jump,
    /// The clocks of some nodes run 10 % fast.
    FastNodes,
    /// Up to all nodes restart immediately without data, and clients have no restart guard.
    Unguarded,
    /// The same with the guard `Observed` and new clients.
    Newcomers,
    /// Nodes restart one after the other while the others are stalled, and new clients start.
    SilentOld,
    /// The clocks of most nodes step forward at once, and new clients start after that.
    StepNewcomers,
    /// Clocks step, and drift to the limit of the allowance.
    StepDrift,
    /// The clocks of clients stop while their process is stopped.
    Standstill,
}

/// A loss of counters: some nodes restart at once without data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wiped {
    /// The nodes form a majority; otherwise a minority.
    pub is_majority: bool,
    /// The hint that clients send for the counters.
    pub hint: Hint,
}

/// Source of the hint for a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// No hint.
    None,
    /// Wall clocks of clients, which differ by at most this number of milliseconds.
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

    /// Name on the command line.
    pub fn label(self) -> &'static str {
        Self::ALL.iter().find(|(_, mode)| *mode == self).map_or("", |(label, _)| label)
    }

    /// Returns true if the mode has a guarantee to check. Otherwise violations are only counted.
    pub fn is_promised(self) -> bool {
        !matches!(self, Self::Outside(_) | Self::Wiped(_))
    }

    /// Seeds per turn of a hunt. `Promise` has more, because its runs use most of the API.
    pub fn turn(self) -> u64 {
        if self == Self::Promise { 150 } else { self.share(25) }
    }

    /// Number of seeds of this mode in a sweep of `seeds` seeds of all modes. Slow modes get a
    /// fraction.
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

    /// Returns true if a violation of `rule` is a finding. Otherwise it is only counted.
    pub fn checks(self, rule: Rule) -> bool {
        match rule {
            Rule::Exclusion | Rule::Adopted => self.is_exclusive(),
            Rule::Updates | Rule::Tokens | Rule::Counters | Rule::Liveness => self.is_promised(),
            // Without a guarantee, clients do not finish with the last acquires.
            Rule::Closes | Rule::NoKeys | Rule::NoPendingWork | Rule::NoTasks | Rule::NoAlarms => {
                self.is_promised()
            }
            Rule::NotLost => self.keeps_all_data(),
            Rule::Withheld => matches!(self, Self::Guarded(_)),
            Rule::Renewed => self == Self::Outages,
            // This limit is measured by the client's clock.
            Rule::ClocksRead => !matches!(self, Self::Outside(_)),
            _ => true,
        }
    }

    /// Returns true if nodes keep all relevant data and clocks do not step, so that all rules
    /// apply.
    pub(crate) fn keeps_all_data(self) -> bool {
        let is_kept = matches!(self, Self::Single(single) if single != Single::Failover);
        is_kept || matches!(self, Self::Promise | Self::Quiet | Self::Outages | Self::ManyWaiters)
    }

    /// Returns true if mutual exclusion is guaranteed.
    pub(crate) fn is_exclusive(self) -> bool {
        self.is_promised() && self != Self::Tokens
    }

    /// Returns true if every lock has a token, and keys may be lost at any time.
    pub(crate) fn is_about_tokens(self) -> bool {
        matches!(self, Self::Tokens | Self::Wiped(_))
    }

    /// Returns true if groups of nodes restart immediately without data.
    pub(crate) fn restarts_groups(self) -> bool {
        matches!(
            self,
            Self::Guarded(_)
                | Self::Stepped(Stepped::Restarts)
                | Self::Outside(Outside::Unguarded | Outside::Newcomers | Outside::SilentOld)
        )
    }

    /// Returns true if the clocks of nodes step.
    pub(crate) fn has_steps(self) -> bool {
        let outside = matches!(self, Self::Outside(Outside::StepNewcomers | Outside::StepDrift));
        outside || matches!(self, Self::Stepped(_))
    }

    /// Returns true if some clients start later than others.
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

    /// Returns true if a client may start at any time, without knowledge of earlier restarts and
    /// clock steps.
    pub(crate) fn admits_anybody(self) -> bool {
        self.keeps_all_data() || self.is_about_tokens()
    }

    /// The only fault of the mode's runs, if there is just one.
    pub(crate) fn single(self) -> Option<Single> {
        if let Self::Single(single) = self { Some(single) } else { None }
    }

    pub(crate) fn is_new_deployment(self) -> bool {
        self == Self::Guarded(Guarded::Fresh)
    }

    pub(crate) fn is_rolling(self) -> bool {
        self == Self::Guarded(Guarded::Rolling)
    }
}
