//! Modes of the simulation. A mode determines the faults of a run and the rules that the run
//! checks.

use crate::rule::Rule;

/// The kind of a run: which faults occur, and which rules are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Faults within the guarantee, and a final period without faults. The run checks mutual
    /// exclusion, the time limits of all calls, and the cleanup.
    Promise,
    /// Healthy nodes and a healthy network. Runtimes are shut down or blocked, processes are
    /// stopped, and tasks are delayed. Nevertheless, released locks must be free immediately.
    Quiet,
    /// Healthy nodes and a healthy network, except for short outages of all nodes. Leases with
    /// auto-extension must survive the outages.
    Outages,
    /// Loss of keys at any time, and loss of all data on some nodes. Every lease must have a
    /// different token. A later holder must have a higher token if its quorum and the earlier
    /// quorum share a node that has kept its counter. Mutual exclusion is not checked.
    Tokens,
    /// All clients have a restart guard. Nodes restart and lose their data, unless they are
    /// durable. In [`Guarded::Fresh`], no node restarts. The run checks mutual exclusion.
    Guarded(Guarded),
    /// Steps of the nodes' clocks, after every client has read the clocks. The run checks mutual
    /// exclusion.
    Stepped(Stepped),
    /// One kind of node fault, for 40 s to 5 min. Clients acquire, hold and release locks that the
    /// fault must not affect.
    Single(Single),
    /// 100 clients that wait for one lock, without faults.
    ManyWaiters,
    /// One kind of fault outside the guarantee. The run counts pairs of leases that were valid at
    /// the same time.
    Outside(Outside),
    /// Loss of fencing counters. The run counts tokens that are out of order.
    Wiped(Wiped),
}

/// The setting of the restart guard, and the nodes that restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarded {
    /// The restart guard is `Observed`. Every client has connected to every node before the first
    /// restart. Any number of nodes may restart.
    Observed,
    /// The restart guard is `Observed`, and new clients start. A fixed minority of the nodes
    /// restarts repeatedly.
    Minority,
    /// The restart guard is `Strict`, and new clients start. Any number of nodes may restart.
    Strict,
    /// The restart guard is `Observed`, and new clients start. Nodes restart one after the other,
    /// but at least one node never restarts. Every new client can reach that node.
    Rolling,
    /// The restart guard is `Observed`, and new clients start in a new deployment. No node
    /// restarts, and clients may not ignore any vote.
    Fresh,
}

/// The faults that occur in addition to steps of the nodes' clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stepped {
    /// The faults of [`Mode::Promise`]. The rates of clocks differ by at most 100 parts per
    /// million.
    Known,
    /// The faults of [`Stepped::Known`]. In addition, nodes restart and lose their data. Clients
    /// have a restart guard, and have connected to every node before the first restart.
    Restarts,
}

/// The only kind of fault in a run. Faults occur for 40 s to 5 min.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Single {
    /// Masters of a minority of the nodes become replicas. Later, each replica becomes a master
    /// again, or its address leads to another server.
    Failover,
    /// Servers close every connection that sends a command with the key of an affected lock.
    ClosingCommand,
    /// Other clients set the keys of some locks to values of several megabytes.
    LargeValue,
    /// The coordinator task of a client panics, and nodes send many pushes.
    Panic,
}

/// A kind of fault outside the guarantee of Redlock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outside {
    /// Nodes restart immediately and lose their data, or are flushed.
    Amnesia,
    /// Node clocks jump forward.
    Jump,
    /// The clocks of some nodes run 10 % fast.
    FastNodes,
    /// Up to all nodes restart immediately and lose their data. Clients have no restart guard.
    Unguarded,
    /// Up to all nodes restart immediately and lose their data. Clients have the restart guard
    /// `Observed`, and new clients start.
    Newcomers,
    /// Nodes restart one after the other while the remaining nodes are stalled, and new clients
    /// start.
    SilentOld,
    /// The clocks of most nodes step forward at the same time, and new clients start afterwards.
    StepNewcomers,
    /// Clocks step, and drift up to the limit that the library allows for.
    StepDrift,
    /// The clock of a client stops while its process is stopped.
    Standstill,
}

/// A loss of fencing counters. It occurs because some nodes restart immediately and lose their
/// data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wiped {
    /// Whether a majority of the nodes restarts. Otherwise, a minority restarts.
    pub is_majority: bool,
    /// The source of the minimum token that clients send to the nodes.
    pub hint: Hint,
}

/// The source of the minimum that a client sends for its next token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// Clients send no minimum.
    None,
    /// The wall clocks of clients. These clocks differ by at most this number of milliseconds.
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

    /// Returns the mode's name on the command line.
    pub fn label(self) -> &'static str {
        Self::ALL.iter().find(|(_, mode)| *mode == self).map_or("", |(label, _)| label)
    }

    /// Returns true if the mode has a guarantee to check. In other modes, violations are only
    /// counted.
    pub fn is_promised(self) -> bool {
        !matches!(self, Self::Outside(_) | Self::Wiped(_))
    }

    /// Returns how many seeds a hunt runs in this mode before it moves on to the next mode.
    /// `Promise` has more seeds than other modes, because its runs use most of the API. Its clients
    /// have no restart guard, so the modes with one have more seeds, too.
    pub fn turn(self) -> u64 {
        match self {
            Self::Promise => 75,
            Self::Guarded(Guarded::Observed | Guarded::Strict) => 50,
            _ => self.share(25),
        }
    }

    /// Returns how many seeds to run in this mode, if a sweep of all modes runs `seeds` seeds per
    /// mode. Slow modes run only a fraction.
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

    /// Returns true if a violation of `rule` fails a run of this mode. Otherwise, violations are at
    /// most counted.
    pub fn checks(self, rule: Rule) -> bool {
        match rule {
            Rule::Exclusion | Rule::Readers | Rule::Permits | Rule::Periods | Rule::Adopted => {
                self.is_exclusive()
            }
            // After a panic of the library, its client releases the locks at once.
            Rule::CoolDowns => self.is_exclusive() && self != Self::Single(Single::Panic),
            // In modes without a guarantee, clients also skip the final acquires.
            Rule::Updates
            | Rule::Tokens
            | Rule::ReaderTokens
            | Rule::Counters
            | Rule::Liveness
            | Rule::Closes
            | Rule::NoKeys
            | Rule::NoPendingWork
            | Rule::NoTasks
            | Rule::NoAlarms => self.is_promised(),
            Rule::NotLost => self.keeps_all_data(),
            Rule::Withheld => matches!(self, Self::Guarded(_)),
            Rule::Renewed => self == Self::Outages,
            // Clients measure this limit with their own clocks, which may stop in these modes.
            Rule::ClocksRead => !matches!(self, Self::Outside(_)),
            _ => true,
        }
    }

    /// Returns true if nodes keep each key until it expires, and their clocks never step forward. A
    /// valid lease then never loses its quorum.
    pub(crate) fn keeps_all_data(self) -> bool {
        let is_kept = matches!(self, Self::Single(single) if single != Single::Failover);
        is_kept || matches!(self, Self::Promise | Self::Quiet | Self::Outages | Self::ManyWaiters)
    }

    pub(crate) fn is_exclusive(self) -> bool {
        self.is_promised() && self != Self::Tokens
    }

    /// Returns true if every lock has a fencing token and keys may be lost at any time.
    pub(crate) fn is_about_tokens(self) -> bool {
        matches!(self, Self::Tokens | Self::Wiped(_))
    }

    /// Returns true if several nodes restart immediately and lose their data, in order to test the
    /// restart guard. Includes [`Outside::Unguarded`], which runs without the guard for comparison,
    /// and [`Guarded::Fresh`], in which no node restarts.
    pub(crate) fn restarts_groups(self) -> bool {
        matches!(
            self,
            Self::Guarded(_)
                | Self::Stepped(Stepped::Restarts)
                | Self::Outside(Outside::Unguarded | Outside::Newcomers | Outside::SilentOld)
        )
    }

    pub(crate) fn has_steps(self) -> bool {
        let outside = matches!(self, Self::Outside(Outside::StepNewcomers | Outside::StepDrift));
        outside || matches!(self, Self::Stepped(_))
    }

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
    pub(crate) fn allows_clients_at_any_time(self) -> bool {
        self.keeps_all_data() || self.is_about_tokens()
    }

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
