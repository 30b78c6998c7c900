//! What speaks against a node.

use super::deployment::Disagreement;
use super::offset::ClockOffset;
use crate::observe::Excess;
use crate::wire::{Fsync, NodeFailure, Persistence, short};
use std::fmt;
use std::time::Duration;

/// How bad a [`Finding`] is. Ordered: a danger is the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Severity {
    /// Good to know.
    Note,
    /// A lock can be forgotten or lost by what happens to servers once in a while.
    Warning,
    /// The node cannot be used, or forgets locks in normal operation.
    Danger,
}

/// What speaks against a node, or could not be found out. Prints as a sentence that says what it
/// means and what to set.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// It does not answer: it has no vote. A danger.
    Unreachable {
        /// Why.
        failure: NodeFailure,
    },
    /// It may have forgotten locks in a restart or a flush, and has no vote in an acquire until it counts again; see
    /// [`RestartGuard`](crate::RestartGuard). A danger: as with a node that does not answer, the next failure may be
    /// one too many.
    Quarantined {
        /// Why: [`Restarted`](NodeFailure::Restarted), [`MaybeRestarted`](NodeFailure::MaybeRestarted) or
        /// [`Flushed`](NodeFailure::Flushed).
        failure: NodeFailure,
        /// How long until it counts again.
        counts_in: Duration,
    },
    /// It is a replica. A danger.
    Replica,
    /// It is the same server as another node, whose vote would count twice. A danger.
    SameServer {
        /// The other node's address.
        other: String,
    },
    /// A command that a lock needs is refused. A danger; of `SCRIPT LOAD` alone a note.
    Refused {
        /// The command.
        command: &'static str,
        /// What the server answered.
        failure: NodeFailure,
    },
    /// It evicts keys when its memory is full, and with them locks. A danger.
    Evicting {
        /// Its `maxmemory-policy`.
        policy: String,
        /// How many keys it has evicted since it started.
        evicted: u64,
    },
    /// Its clock was put forward or back while it was looked at. A danger.
    ClockMoved {
        /// By how much, at least.
        by: Duration,
    },
    /// Its clock differs from those of the other nodes by more than 125 ms. A warning.
    ClockOff {
        /// By how much, and in which direction.
        offset: ClockOffset,
    },
    /// The nodes' clocks disagree by more than 125 ms, and this client's own clock is nearer to the smaller group: the
    /// larger one may be wrong. Reported for all nodes. A warning.
    ClocksDisagree {
        /// By how much.
        by: Duration,
        /// The nodes whose clocks are nearer to this client's.
        near_client: Vec<String>,
        /// The other nodes.
        others: Vec<String>,
    },
    /// A lock has more time to live there than any lock of this client can have. The node's clock was put back, or
    /// another client has a longer [`max_ttl`](crate::Builder::max_ttl). A warning.
    ///
    /// One call of `SCAN` looks for locks, so on a server with thousands of keys some may not be seen.
    ExceedsMaxTtl {
        /// The key of the lock that has most time to live.
        key: String,
        /// How long that is.
        ttl: Duration,
        /// The `max_ttl` of this client.
        max_ttl: Duration,
    },
    /// A restart forgets locks. A warning.
    NotDurable {
        /// What it keeps.
        persistence: Persistence,
    },
    /// It does not force its file to the disk while a file is written anew
    /// (`no-appendfsync-on-rewrite`). A warning.
    RestsOnRewrite,
    /// It is older than Redis 6.2, the oldest that quorlock is tested with. A warning.
    Old {
        /// The version of Redis whose commands it has: major and minor.
        version: (u32, u32),
    },
    /// It does not tell when locks are released. A note.
    NoPushes {
        /// What the server answered.
        failure: NodeFailure,
    },
    /// It has replicas: if one is promoted behind its address, locks can be forgotten. A warning.
    HasReplicas {
        /// How many.
        count: u64,
    },
    /// Redis Sentinel watches it, and may promote a replica in its place. A warning.
    Watched {
        /// How many Sentinels do.
        sentinels: u64,
    },
    /// Other clients of this library that are connected to it are set up otherwise. A danger, where they and we can
    /// hold the same lock; a warning, where only a failure lets that happen; else a note.
    Disagrees {
        /// Their addresses, as the node sees them: one for each connection.
        clients: Vec<String>,
        /// What is otherwise.
        about: Disagreement,
    },
    /// It runs in cluster mode. A note.
    Clustered,
    /// Something was not told. A note.
    Unknown {
        /// What.
        what: &'static str,
        /// What a user must be permitted for it to be told, as `ACL SETUSER` takes it.
        needs: &'static str,
    },
}

impl Finding {
    /// How bad it is.
    pub fn severity(&self) -> Severity {
        match self {
            Self::Refused { command: "SCRIPT LOAD", .. }
            | Self::NoPushes { .. }
            | Self::Clustered
            | Self::Unknown { .. } => Severity::Note,
            Self::ClockOff { .. }
            | Self::ClocksDisagree { .. }
            | Self::ExceedsMaxTtl { .. }
            | Self::NotDurable { .. }
            | Self::RestsOnRewrite
            | Self::HasReplicas { .. }
            | Self::Watched { .. }
            | Self::Old { .. } => Severity::Warning,
            Self::Disagrees { about, .. } => about.severity(),
            Self::Unreachable { .. }
            | Self::Quarantined { .. }
            | Self::Replica
            | Self::SameServer { .. }
            | Self::Refused { .. }
            | Self::Evicting { .. }
            | Self::ClockMoved { .. } => Severity::Danger,
        }
    }
}

/// What the persistence page of Redis says is lost, and how to keep it.
fn loss(persistence: Persistence) -> &'static str {
    match persistence {
        Persistence::Nothing => "nothing is saved: a restart forgets all locks",
        Persistence::Snapshots => {
            "only snapshots are saved: a restart forgets the locks set since the last one, and brings \
             released ones back"
        }
        Persistence::AppendOnly(Some(Fsync::Always)) => "every lock is kept",
        Persistence::AppendOnly(Some(Fsync::EverySecond)) => {
            "appendfsync is everysec: a crash of the machine forgets the locks of about a second"
        }
        Persistence::AppendOnly(Some(Fsync::Never)) => {
            "appendfsync is no: a crash of the machine forgets the locks that the system had not yet \
             written"
        }
        Persistence::AppendOnly(None) => {
            "appendfsync is not told: unless it is always, a crash of the machine forgets locks"
        }
    }
}

fn forgets(persistence: Persistence) -> String {
    format!(
        "{}; set appendonly yes and appendfsync always, and trust_persistence, if it is to count at once \
         after a restart; else the restart guard leaves it out for max_ttl",
        loss(persistence)
    )
}

/// The consequence of a restart or a flush, and the advice.
const QUARANTINED: &str = "it may have forgotten locks, and has no vote in an acquire before that; restart no other \
                           node until then";

/// What comes of a replica that takes the place of the node.
const PROMOTED: &str = "a replica that is promoted may not know the latest locks, and clients that are new \
                        cannot see that: let a node be one server; trust_persistence is not for it";

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Danger => "danger",
        })
    }
}

impl Finding {
    /// The findings about clocks.
    fn fmt_clock(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClockMoved { by } => {
                write!(f, "its clock was put by {} while it was looked at: ", short(*by))?;
                write!(f, "put forward, it forgets locks; let it be slewed, not stepped")
            }
            Self::ClockOff { offset } => {
                write!(f, "its clock is {offset} of the other nodes: that does no harm, but the ")?;
                write!(f, "step that mends it may (put forward, a node forgets locks); ")?;
                write!(f, "synchronise it by slewing, and keep locks away while it is stepped")
            }
            Self::ClocksDisagree { by, near_client, others } => {
                let (by, near, others) = (short(*by), near_client.join(", "), others.join(", "));
                write!(
                    f,
                    "the nodes' clocks disagree by {by}: {near} (near this client's clock) "
                )?;
                write!(f, "and {others}; find out which are right before you correct any: put ")?;
                write!(f, "forward, a node forgets locks; put back, it keeps them for longer")
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { failure } => write!(f, "no answer: {failure}; it has no vote"),
            Self::Quarantined { failure, .. } => write!(f, "{failure}: {QUARANTINED}"),
            Self::Replica => {
                write!(f, "it is a replica, which cannot vote; give the address of a master")
            }
            Self::SameServer { other } => {
                write!(f, "it is the same server as {other}; each node must be one of its own")
            }
            Self::Refused { command: command @ "SCRIPT LOAD", failure } => {
                write!(
                    f,
                    "{command} is refused ({failure}): scripts are sent with their source; "
                )?;
                write!(f, "permit +script|load")
            }
            Self::Refused { command, failure } => {
                write!(f, "{command} is refused ({failure}): locks need it")
            }
            Self::Evicting { policy, evicted } => {
                write!(f, "maxmemory-policy is {policy}: a node short of memory drops locks")?;
                if *evicted > 0 {
                    write!(f, " (keys evicted so far: {evicted})")?;
                }
                write!(f, "; set maxmemory-policy noeviction")
            }
            Self::ClockMoved { .. } | Self::ClockOff { .. } | Self::ClocksDisagree { .. } => {
                self.fmt_clock(f)
            }
            Self::ExceedsMaxTtl { key, ttl, max_ttl } => {
                write!(f, "the key {} lasts for {}, ", key.escape_debug(), short(*ttl))?;
                write!(f, "{}", Excess(*max_ttl))
            }
            Self::NotDurable { persistence } => f.write_str(&forgets(*persistence)),
            Self::RestsOnRewrite => {
                write!(f, "no-appendfsync-on-rewrite is yes: a crash of the machine during a ")?;
                write!(f, "rewrite forgets locks; set it to no before you use trust_persistence")
            }
            Self::Old { version: (major, minor) } => {
                write!(f, "it is like Redis {major}.{minor}, older than 6.2, the oldest that ")?;
                let lacks = *major < 6;
                let lacks = if lacks { "; before 6.0 it cannot push releases" } else { "" };
                write!(f, "quorlock is tested with{lacks}; use a newer one")
            }
            Self::NoPushes { failure } => {
                write!(f, "it does not tell when locks are released ({failure}): waiting takes ")?;
                write!(f, "longer; permit +client|tracking with RESP3 (Redis from 6.0 on)")
            }
            Self::HasReplicas { count } => write!(f, "replicas: {count}; {PROMOTED}"),
            Self::Watched { sentinels } => {
                write!(f, "Sentinels that watch it: {sentinels}; {PROMOTED}")
            }
            Self::Disagrees { clients, about } => about.write(clients, f),
            Self::Clustered => {
                write!(
                    f,
                    "it runs in cluster mode: acquire_all needs resources of one slot, and "
                )?;
                write!(f, "every key must be served by this very node")
            }
            Self::Unknown { what, needs } => {
                write!(f, "{what}: not told; permit {needs} to see it")
            }
        }
    }
}
