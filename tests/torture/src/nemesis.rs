//! What can be done to nodes and clients.

use crate::choice::LONGEST_TTL;
use Nemesis as N;
use std::time::Duration;

/// The name of the nemesis that no counter survives.
pub(crate) const WIPE: &str = "FLUSHALL on all nodes at once";

/// Whom a nemesis is after, and with what else it can go together: a target suffers one nemesis of
/// each kind at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// The server's process.
    Server,
    /// Its clock.
    Clock,
    /// The wire to it.
    Wire,
    /// A client process.
    Client,
    /// The wires to all nodes at once; no vote is lost.
    Network,
    /// The memory of all nodes at once.
    Memory,
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
}

impl Nemesis {
    /// All of them.
    pub(crate) const ALL: [Self; 29] = [
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
        }
    }

    /// Whom it is after.
    pub(crate) fn kind(self) -> Kind {
        match self {
            N::HangClient | N::KillClient => Kind::Client,
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

    /// True if Redlock promises exclusion under it.
    pub(crate) fn is_promised(self) -> bool {
        let is_outside = matches!(
            self,
            N::EmptyRestart | N::FlushAll | N::JumpClock | N::FastClock | N::WipeAll
        );
        !is_outside
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
    pub(crate) fn weight(self) -> u32 {
        match self {
            // It takes a node away for long.
            N::DelayedRestart => 1,
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
            N::Latency | N::SlowNetwork => (ms(200), ms(3_000)),
            N::DriftClock | N::FastClock => (ms(500), ms(5_000)),
            N::DurableRestart
            | N::EmptyRestart
            | N::FlushAll
            | N::JumpClock
            | N::WipeAll
            | N::ForgetScripts
            | N::Reset
            | N::CutReply => (Duration::ZERO, Duration::ZERO),
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
    fn a_node_that_comes_back_empty_was_away_for_longer_than_any_ttl() {
        assert!(N::DelayedRestart.lasts().0 > LONGEST_TTL);
    }
}
