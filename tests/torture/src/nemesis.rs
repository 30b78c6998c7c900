//! What can be done to nodes and clients.

use Nemesis as N;
use harness::choice::LONGEST_TTL;
use harness::record::WIPE;
use harness::steps::FELT;
use std::time::Duration;

/// The name of the nemesis that lets most nodes forget, but not all.
pub(crate) const ROLLING: &str = "restart nodes empty, one after the other";

/// How long a client waits for a node.
pub(crate) const NODE_TIMEOUT: Duration = Duration::from_millis(60);
/// How long a node does not count that was restarted: the longest ttl x (1 + 2 x 1 %) + 1 s.
pub(crate) const TERM: Duration = Duration::from_millis(3_040);
/// How long after its start all see that a server is older than that: it tells whole seconds.
pub(crate) const OLD: Duration = TERM.saturating_add(Duration::from_millis(2_500));
/// How long clients may take to find a node again that was broken.
const RECOVERY: Duration = Duration::from_secs(1);
/// How long clients may take to read a node's clock exactly again, once its replies are prompt.
pub(crate) const REREAD: Duration = Duration::from_millis(200);

/// Whom a nemesis is after, and with what else it can go together: a target suffers one nemesis of
/// each kind at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// The server's process.
    Server,
    /// The rate of its clock, or all of what it shows.
    Clock,
    /// What its clock shows, by little. Clients measure that; all nodes may be hit, and again.
    Step,
    /// The wire to it.
    Wire,
    /// A node that is restarted empty in its turn.
    Rolling,
    /// A node that all can reach, and see to be old, while others are restarted.
    Witness,
    /// No fault: a node that was broken a moment ago, or is young. It is no witness.
    Shaken,
    /// No fault: replies of the node take long, or did until a moment ago.
    Delayed,
    /// A client process.
    Client,
    /// A client process that has not seen the nodes before.
    Newcomer,
    /// The wires to all nodes at once; no vote is lost.
    Network,
    /// The memory of all nodes at once.
    Memory,
}

impl Kind {
    /// Whether it can keep a node or a client from doing its part.
    pub(crate) fn breaks(self) -> bool {
        match self {
            Self::Server | Self::Clock | Self::Wire | Self::Client | Self::Newcomer => true,
            Self::Step
            | Self::Rolling
            | Self::Witness
            | Self::Shaken
            | Self::Delayed
            | Self::Network
            | Self::Memory => false,
        }
    }
}

/// What is done.
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
    Newcomer,
    StepForward,
    StepBack,
    RollingRestart,
}

impl Nemesis {
    /// All of them.
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
        N::Newcomer,
        N::StepForward,
        N::StepBack,
        N::RollingRestart,
    ];

    /// Its name, for people.
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
            N::HoldRequests => "hold requests back",
            N::HoldReplies => "hold replies back",
            N::Refuse => "refuse connections",
            N::HoldConnects => "connections that hang",
            N::Reset => "reset connections",
            N::CutReply => "half a reply",
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
            N::Newcomer => "a client comes new",
            N::StepForward => "clock steps forward by 5 to 200 ms",
            N::StepBack => "clock steps back by 5 to 200 ms",
            N::RollingRestart => ROLLING,
        }
    }

    /// Whom it is after.
    pub(crate) fn kind(self) -> Kind {
        match self {
            N::HangClient => Kind::Client,
            // Its successor knows nothing.
            N::KillClient | N::Newcomer => Kind::Newcomer,
            N::StepForward | N::StepBack => Kind::Step,
            N::RollingRestart => Kind::Rolling,
            N::SlowNetwork => Kind::Network,
            N::WipeAll => Kind::Memory,
            N::DriftClock | N::JumpClock | N::FastClock => Kind::Clock,
            N::BlackHole
            | N::LoseRequests
            | N::LoseReplies
            | N::HoldRequests
            | N::HoldReplies
            | N::Refuse
            | N::HoldConnects
            | N::Reset
            | N::CutReply
            | N::Latency => Kind::Wire,
            _ => Kind::Server,
        }
    }

    /// True if exclusion is promised under it. Under some that hangs on what else goes on, which the
    /// plan of a run inside the promise sees to.
    pub(crate) fn is_promised(self, is_inside: bool) -> bool {
        match self {
            N::EmptyRestart | N::FlushAll | N::JumpClock | N::FastClock | N::WipeAll => false,
            N::StepForward | N::RollingRestart => is_inside,
            _ => true,
        }
    }

    /// How long after it a node is [`Shaken`](Kind::Shaken).
    pub(crate) fn shakes(self) -> Duration {
        match self.kind() {
            _ if self.restarts() => OLD,
            Kind::Server | Kind::Wire => RECOVERY,
            _ => Duration::ZERO,
        }
    }

    /// True if replies take longer than the drift allowance, so that clients read the clock inexactly.
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

    /// Whether a node is another process afterwards.
    pub(crate) fn restarts(self) -> bool {
        matches!(self, N::DelayedRestart | N::DurableRestart | N::EmptyRestart | N::RollingRestart)
    }

    /// Whether it can be done to such a node: what comes back with its data must be durable, and
    /// what comes back empty must not.
    pub(crate) fn suits(self, is_durable: bool) -> bool {
        match self {
            N::DurableRestart => is_durable,
            N::DelayedRestart | N::EmptyRestart => !is_durable,
            _ => true,
        }
    }

    /// How often it comes, beside others.
    pub(crate) fn weight(self, is_inside: bool) -> u32 {
        match self {
            // It takes a node away for long.
            N::DelayedRestart => 1,
            // They are drawn apart.
            N::StepForward | N::StepBack => 0,
            N::Newcomer => 14,
            // Inside the promise it finds room seldom.
            N::RollingRestart => {
                if is_inside {
                    12
                } else {
                    1
                }
            }
            // Who sleeps through the end of a lease is what fencing is for.
            N::HangClient => 6,
            // Those that Redlock does not promise anything for are what a run outside is made for; and
            // not every node is durable.
            N::DurableRestart
            | N::EmptyRestart
            | N::FlushAll
            | N::JumpClock
            | N::FastClock
            | N::WipeAll => 4,
            _ => 2,
        }
    }

    /// From how long to how long it lasts.
    pub(crate) fn lasts(self) -> (Duration, Duration) {
        let ms = Duration::from_millis;
        match self {
            N::DelayedRestart => (LONGEST_TTL + ms(300), LONGEST_TTL + ms(1_000)),
            N::HangClient => (ms(50), 3 * LONGEST_TTL),
            N::KillClient => (ms(50), ms(1_000)),
            N::Busy => (ms(50), ms(400)),
            N::Newcomer => (ms(400), ms(4_000)),
            N::StepForward => (FELT, FELT),
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
    fn all_are_listed_once_and_have_names_of_their_own() {
        let all: BTreeSet<_> = N::ALL.into_iter().collect();
        let names: BTreeSet<_> = N::ALL.into_iter().map(N::name).collect();
        assert_eq!((all.len(), names.len()), (N::ALL.len(), N::ALL.len()));
    }

    #[test]
    fn a_term_is_that_of_the_library() {
        // With the drift factor that is the default.
        assert_eq!(TERM, LONGEST_TTL.mul_f64(1.02) + Duration::from_secs(1));
    }

    #[test]
    fn a_node_that_comes_back_empty_was_away_for_longer_than_any_ttl() {
        assert!(N::DelayedRestart.lasts().0 > LONGEST_TTL);
    }
}
