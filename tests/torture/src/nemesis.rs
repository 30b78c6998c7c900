//! The kinds of faults (nemeses) of nodes and clients.

use Nemesis as N;
use harness::choice::LONGEST_TTL;
use harness::record::WIPE;
use harness::steps::STEP_EFFECT;
use std::time::Duration;

/// Name of the fault that restarts several nodes without their data.
pub(crate) const ROLLING: &str = "restart nodes empty, one after the other";

pub(crate) const NODE_TIMEOUT: Duration = Duration::from_millis(60);
/// The quarantine period of a restarted node: the longest TTL × (1 + 2 × 1 %) + 1 s.
pub(crate) const QUARANTINE: Duration = Duration::from_millis(3_040);
/// The age from which every client recognises that a server is older than [`QUARANTINE`]. The
/// margin is needed because `INFO` reports whole seconds.
pub(crate) const MIN_OLD_AGE: Duration = QUARANTINE.saturating_add(Duration::from_millis(2_500));
/// The maximum time until clients reconnect to a node after a fault.
const RECOVERY: Duration = Duration::from_secs(1);
/// The maximum time from the end of a delay of a node's replies until clients have read the node's
/// clock precisely again.
pub(crate) const CLOCK_REREAD_LIMIT: Duration = Duration::from_millis(200);

/// The kind of target that a fault affects. A target has at most one fault of each class at a time,
/// except for `Step` and `Delayed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum TargetClass {
    /// The process of a server.
    Server,
    /// The rate of a server's clock, or a large jump of the clock.
    Clock,
    /// A small step of a server's clock. Clients can detect the step, so the clocks of all nodes
    /// may step repeatedly.
    Step,
    /// The network connection to a server.
    Wire,
    /// A node that is restarted without data as part of a rolling restart.
    Rolling,
    /// A node that all clients can reach while other nodes are restarted, and that they recognise
    /// as running for long enough to have lost no lock.
    Witness,
    /// A node that recently started or recently had a fault, and therefore cannot be a
    /// [`Witness`](Self::Witness). This class is not a fault.
    RecentlyFaulty,
    /// A node whose replies are delayed or were delayed until recently. This class is not a fault.
    Delayed,
    Client,
    /// A client process that has not connected to the nodes before.
    NewClient,
    /// The network connections to all nodes. No vote is lost.
    Network,
    /// The data of all nodes.
    AllData,
}

impl TargetClass {
    /// Returns true if a fault of this class can make a node or a client unavailable.
    pub(crate) fn breaks(self) -> bool {
        match self {
            Self::Server | Self::Clock | Self::Wire | Self::Client | Self::NewClient => true,
            Self::Step
            | Self::Rolling
            | Self::Witness
            | Self::RecentlyFaulty
            | Self::Delayed
            | Self::Network
            | Self::AllData => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Nemesis {
    HangNode,
    DelayedRestart,
    DurableRestart,
    OutOfMemory,
    ReadOnly,
    Busy,
    ForgetScripts,
    Password,
    CannotSave,
    TooManyClients,
    BlackHole,
    LoseRequests,
    LoseReplies,
    HoldRequests,
    HoldReplies,
    Refuse,
    HoldConnects,
    Reset,
    CutReply,
    Latency,
    SlowNetwork,
    HangClient,
    KillClient,
    DriftClock,
    EmptyRestart,
    FlushAll,
    JumpClock,
    FastClock,
    WipeAll,
    NewClient,
    StepForward,
    StepBack,
    RollingRestart,
}

impl Nemesis {
    pub(crate) const ALL: [Self; 33] = [
        N::HangNode,
        N::DelayedRestart,
        N::DurableRestart,
        N::OutOfMemory,
        N::ReadOnly,
        N::Busy,
        N::ForgetScripts,
        N::Password,
        N::CannotSave,
        N::TooManyClients,
        N::BlackHole,
        N::LoseRequests,
        N::LoseReplies,
        N::HoldRequests,
        N::HoldReplies,
        N::Refuse,
        N::HoldConnects,
        N::Reset,
        N::CutReply,
        N::Latency,
        N::SlowNetwork,
        N::HangClient,
        N::KillClient,
        N::DriftClock,
        N::EmptyRestart,
        N::FlushAll,
        N::JumpClock,
        N::FastClock,
        N::WipeAll,
        N::NewClient,
        N::StepForward,
        N::StepBack,
        N::RollingRestart,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            N::HangNode => "hang a node",
            N::DelayedRestart => "kill a node, restart it empty after the longest ttl",
            N::DurableRestart => "kill a durable node, restart it at once",
            N::OutOfMemory => "OOM",
            N::ReadOnly => "READONLY",
            N::Busy => "BUSY",
            N::ForgetScripts => "NOSCRIPT",
            N::Password => "NOAUTH",
            N::CannotSave => "MISCONF",
            N::TooManyClients => "maxclients",
            N::BlackHole => "black hole",
            N::LoseRequests => "lose requests",
            N::LoseReplies => "lose replies",
            N::HoldRequests => "withhold requests",
            N::HoldReplies => "withhold replies",
            N::Refuse => "refuse connections",
            N::HoldConnects => "connections without an answer",
            N::Reset => "reset connections",
            N::CutReply => "truncated reply",
            N::Latency => "latency",
            N::SlowNetwork => "slow network",
            N::HangClient => "hang a client",
            N::KillClient => "kill a client",
            N::DriftClock => "clock drifts by half a percent",
            N::EmptyRestart => "kill a node, restart it empty at once",
            N::FlushAll => "FLUSHALL",
            N::JumpClock => "clock jumps by a minute",
            N::FastClock => "clock runs 10 % fast",
            N::WipeAll => WIPE,
            N::NewClient => "start a new client",
            N::StepForward => "clock steps forward by 5 to 200 ms",
            N::StepBack => "clock steps back by 5 to 200 ms",
            N::RollingRestart => ROLLING,
        }
    }

    pub(crate) fn target_class(self) -> TargetClass {
        match self {
            N::HangClient => TargetClass::Client,
            // The client that replaces a killed client is new.
            N::KillClient | N::NewClient => TargetClass::NewClient,
            N::StepForward | N::StepBack => TargetClass::Step,
            N::RollingRestart => TargetClass::Rolling,
            N::SlowNetwork => TargetClass::Network,
            N::WipeAll => TargetClass::AllData,
            N::DriftClock | N::JumpClock | N::FastClock => TargetClass::Clock,
            N::BlackHole
            | N::LoseRequests
            | N::LoseReplies
            | N::HoldRequests
            | N::HoldReplies
            | N::Refuse
            | N::HoldConnects
            | N::Reset
            | N::CutReply
            | N::Latency => TargetClass::Wire,
            _ => TargetClass::Server,
        }
    }

    /// Returns true if mutual exclusion is guaranteed under this fault. `is_inside` is true in a
    /// run within the guarantee. Some faults are only guaranteed in such a run, because its plan
    /// limits the other faults.
    pub(crate) fn is_guaranteed(self, is_inside: bool) -> bool {
        match self {
            N::EmptyRestart | N::FlushAll | N::JumpClock | N::FastClock | N::WipeAll => false,
            N::StepForward | N::RollingRestart => is_inside,
            _ => true,
        }
    }

    /// Returns how long after the fault a node is [`RecentlyFaulty`](TargetClass::RecentlyFaulty).
    pub(crate) fn recovery_time(self) -> Duration {
        match self.target_class() {
            _ if self.restarts() => MIN_OLD_AGE,
            TargetClass::Server | TargetClass::Wire => RECOVERY,
            _ => Duration::ZERO,
        }
    }

    /// Returns true if the fault delays replies by more than the drift allowance. Clients then read
    /// the clock imprecisely.
    pub(crate) fn delays(self) -> bool {
        matches!(
            self,
            N::HangNode
                | N::Busy
                | N::HoldRequests
                | N::HoldReplies
                | N::HoldConnects
                | N::Latency
                | N::SlowNetwork
        )
    }

    pub(crate) fn restarts(self) -> bool {
        matches!(self, N::DelayedRestart | N::DurableRestart | N::EmptyRestart | N::RollingRestart)
    }

    /// Returns true if a node loses its data in the fault with this name.
    pub(crate) fn loses_data(name: &str) -> bool {
        let losing =
            [N::DelayedRestart, N::EmptyRestart, N::FlushAll, N::WipeAll, N::RollingRestart];
        losing.iter().any(|nemesis| nemesis.name() == name)
    }

    /// Returns true if the fault is possible on a node with this persistence. A durable restart
    /// requires a durable node, and an empty restart a node that is not durable.
    pub(crate) fn suits(self, is_durable: bool) -> bool {
        match self {
            N::DurableRestart => is_durable,
            N::DelayedRestart | N::EmptyRestart => !is_durable,
            _ => true,
        }
    }

    pub(crate) fn weight(self, is_inside: bool) -> u32 {
        match self {
            // The fault makes a node unavailable for a long time.
            N::DelayedRestart => 1,
            // `Setup::steps` draws clock steps separately.
            N::StepForward | N::StepBack => 0,
            N::NewClient => 14,
            // Within the guarantee, other faults often exclude a rolling restart.
            N::RollingRestart => {
                if is_inside {
                    12
                } else {
                    1
                }
            }
            // Leases that expire in a stopped process are the main purpose of fencing.
            N::HangClient => 6,
            // Faults outside the guarantee are the purpose of the mode `outside`. Durable restarts
            // are possible on only some of the nodes.
            N::DurableRestart
            | N::EmptyRestart
            | N::FlushAll
            | N::JumpClock
            | N::FastClock
            | N::WipeAll => 4,
            _ => 2,
        }
    }

    pub(crate) fn lasts(self) -> (Duration, Duration) {
        let ms = Duration::from_millis;
        match self {
            N::DelayedRestart => (LONGEST_TTL + ms(300), LONGEST_TTL + ms(1_000)),
            N::HangClient => (ms(50), 3 * LONGEST_TTL),
            N::KillClient => (ms(50), ms(1_000)),
            N::Busy => (ms(50), ms(400)),
            N::NewClient => (ms(400), ms(4_000)),
            N::StepForward => (STEP_EFFECT, STEP_EFFECT),
            N::Latency | N::SlowNetwork => (ms(200), ms(3_000)),
            N::DriftClock | N::FastClock => (ms(500), ms(5_000)),
            N::DurableRestart
            | N::EmptyRestart
            | N::FlushAll
            | N::JumpClock
            | N::WipeAll
            | N::ForgetScripts
            | N::Reset
            | N::CutReply
            | N::StepBack
            | N::RollingRestart => (Duration::ZERO, Duration::ZERO),
            _ => (ms(100), ms(1_500)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn faults_are_listed_once_and_have_distinct_names() {
        let all: BTreeSet<_> = N::ALL.into_iter().collect();
        let names: BTreeSet<_> = N::ALL.into_iter().map(N::name).collect();
        assert_eq!((all.len(), names.len()), (N::ALL.len(), N::ALL.len()));
    }

    #[test]
    fn term_equals_quarantine_period_of_the_library() {
        // 1.02 follows from the default drift factor.
        assert_eq!(QUARANTINE, LONGEST_TTL.mul_f64(1.02) + Duration::from_secs(1));
    }

    #[test]
    fn delayed_restart_lasts_longer_than_any_ttl() {
        assert!(N::DelayedRestart.lasts().0 > LONGEST_TTL);
    }
}
