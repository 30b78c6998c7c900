//! Findings of a check.

use super::disagreement::Disagreement;
use super::offset::ClockOffset;
use crate::observe::Excess;
use crate::wire::{Fsync, NodeFailure, Persistence, short};
use std::fmt;
use std::time::Duration;

/// Severity of a [`Finding`]. Ordered: danger is the highest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Severity {
    /// For information.
    Note,
    /// Locks can be lost by occasional events, such as a restart.
    Warning,
    /// The node cannot be used, or loses locks in normal operation.
    Danger,
}

/// A problem of a node, or a fact that could not be determined. Displays as a sentence with the consequence and the
/// remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// The node does not reply, so it has no vote. A danger.
    Unreachable {
        /// The reason.
        failure: NodeFailure,
    },
    /// The node may have forgotten locks after a restart or a flush, and has no vote in an acquire until it counts
    /// again; see [`RestartGuard`](crate::RestartGuard). A danger: like an unreachable node, it reduces the number of
    /// failures that can be tolerated.
    Quarantined {
        /// The reason: [`Restarted`](NodeFailure::Restarted), [`MaybeRestarted`](NodeFailure::MaybeRestarted) or
        /// [`Flushed`](NodeFailure::Flushed).
        failure: NodeFailure,
        /// Time until the node counts again.
        counts_in: Duration,
    },
    /// The node is a replica. A danger.
    Replica,
    /// The node is the same server as another node, whose vote would count twice. A danger.
    SameServer {
        /// Address of the other node.
        other: String,
    },
    /// The server refuses a command that locks require. A danger; for `SCRIPT LOAD` only a note.
    Refused {
        /// The command.
        command: &'static str,
        /// Error reply of the server.
        failure: NodeFailure,
    },
    /// The server evicts keys, including locks, when its memory is full. A danger.
    Evicting {
        /// Its `maxmemory-policy`.
        policy: String,
        /// Number of keys evicted since it started.
        evicted: u64,
    },
    /// The server does not permit `TIME`, so clients cannot detect that its clock steps forward or runs fast. Severity:
    /// danger.
    ClockUnreadable,
    /// The server's clock was stepped during the check. A danger.
    ClockMoved {
        /// Lower bound of the step.
        by: Duration,
    },
    /// The server's clock differs from the other nodes' clocks by more than 125 ms. A warning.
    ClockOff {
        /// Size and direction of the difference.
        offset: ClockOffset,
    },
    /// The nodes' clocks disagree by more than 125 ms, and this client's clock is nearer to the smaller group, so the
    /// larger one may be wrong. Reported for all nodes. A warning.
    ClocksDisagree {
        /// Size of the difference.
        by: Duration,
        /// Nodes whose clocks are nearer to this client's.
        near_client: Vec<String>,
        /// The other nodes.
        others: Vec<String>,
    },
    /// A lock has a longer remaining TTL than this client's `max_ttl`. The node's clock was set back, or another client
    /// has a longer [`max_ttl`](crate::Builder::max_ttl). A warning.
    ///
    /// Locks are found by a single `SCAN` call, which may miss some on a server with thousands of keys.
    ExceedsMaxTtl {
        /// Key of the lock with the longest remaining TTL.
        key: String,
        /// Its remaining TTL.
        ttl: Duration,
        /// The `max_ttl` of this client.
        max_ttl: Duration,
    },
    /// A restart or crash loses locks. A warning.
    NotDurable {
        /// Persistence of the server.
        persistence: Persistence,
    },
    /// The server does not fsync its append-only file during a rewrite (`no-appendfsync-on-rewrite`). A warning.
    NoFsyncOnRewrite,
    /// The server is older than Redis 6.2, the oldest tested version. A warning.
    Old {
        /// Compatible Redis version: major and minor.
        version: (u32, u32),
    },
    /// The server does not push the release of locks. A note.
    NoPushes {
        /// The reason.
        failure: NodeFailure,
    },
    /// The server has replicas. If one is promoted, locks can be lost. A warning.
    HasReplicas {
        /// Number of replicas.
        count: u64,
    },
    /// Redis Sentinel monitors the server and may promote a replica in its place. A warning.
    Watched {
        /// Number of Sentinels.
        sentinels: u64,
    },
    /// Other connected clients of this library have different settings. A danger if both can hold the same lock; a
    /// warning if that requires a failure; otherwise a note.
    Disagrees {
        /// Addresses of their connections, as the node sees them.
        clients: Vec<String>,
        /// The setting on which the clients disagree.
        about: Disagreement,
    },
    /// The server runs in cluster mode. A note.
    Clustered,
    /// A fact is unknown because a command is not permitted. A note.
    Unknown {
        /// The fact.
        what: &'static str,
        /// The missing permission, in the syntax of `ACL SETUSER`.
        needs: &'static str,
    },
}

impl Finding {
    /// Severity of the finding.
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
            | Self::NoFsyncOnRewrite
            | Self::HasReplicas { .. }
            | Self::Watched { .. }
            | Self::Old { .. } => Severity::Warning,
            Self::Disagrees { about, .. } => disagreement_severity(about),
            Self::Unreachable { .. }
            | Self::Quarantined { .. }
            | Self::Replica
            | Self::SameServer { .. }
            | Self::Refused { .. }
            | Self::Evicting { .. }
            | Self::ClockUnreadable
            | Self::ClockMoved { .. } => Severity::Danger,
        }
    }
}

fn disagreement_severity(about: &Disagreement) -> Severity {
    match about {
        Disagreement::Nodes { splits: true, .. } => Severity::Danger,
        Disagreement::Nodes { splits: false, .. } | Disagreement::MaxTtl { .. } => {
            Severity::Warning
        }
        Disagreement::Names | Disagreement::KeyPrefix => Severity::Note,
    }
}

/// Consequences, according to the "Redis persistence" page of the Redis documentation.
fn loss(persistence: Persistence) -> &'static str {
    match persistence {
        Persistence::Nothing => "no persistence: a restart loses all locks",
        Persistence::Snapshots => {
            "only snapshots: a restart loses the locks since the last snapshot, and restores \
             released ones"
        }
        Persistence::AppendOnly(Some(Fsync::Always)) => "no locks are lost",
        Persistence::AppendOnly(Some(Fsync::EverySecond)) => {
            "appendfsync is everysec: a crash of the machine loses the locks of about one second"
        }
        Persistence::AppendOnly(Some(Fsync::Never)) => {
            "appendfsync is no: a crash of the machine loses the locks that the system has not \
             written yet"
        }
        Persistence::AppendOnly(None) => {
            "appendfsync is unknown: unless it is always, a crash of the machine loses locks"
        }
    }
}

fn forgets(persistence: Persistence) -> String {
    format!(
        "{}; the restart guard excludes a restarted node for max_ttl. To count it at once, set appendonly yes, \
         appendfsync always and trust_persistence",
        loss(persistence)
    )
}

/// Consequence of a restart or a flush, and the remedy.
const QUARANTINED: &str = "it may have lost locks, and has no vote in acquires until then; do not restart another \
                           node before";

/// Consequence of a failover to a replica, and the remedy.
const PROMOTED: &str = "a promoted replica may miss the latest locks, and new clients cannot detect \
                        that: use a single server per node, without trust_persistence";

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
    fn fmt_clock(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClockUnreadable => {
                write!(
                    f,
                    "its clock cannot be read: clients cannot detect a forward step, which "
                )?;
                write!(f, "expires locks early; permit +time")
            }
            Self::ClockMoved { by } => {
                write!(f, "its clock was stepped by {} during the check: ", short(*by))?;
                write!(f, "a forward step expires locks early; slew the clock instead")
            }
            Self::ClockOff { offset } => {
                write!(f, "its clock is {offset} of the other nodes: this is harmless, but the ")?;
                write!(
                    f,
                    "step that corrects it may not be (a forward step expires locks early); "
                )?;
                write!(f, "slew it, or hold no locks while it is stepped")
            }
            Self::ClocksDisagree { by, near_client, others } => {
                let (by, near, others) = (short(*by), near_client.join(", "), others.join(", "));
                write!(
                    f,
                    "the nodes' clocks disagree by {by}: {near} (near this client's clock) "
                )?;
                write!(f, "and {others}; find out which are right before you correct any: a ")?;
                write!(f, "forward step expires locks early, a backward step late")
            }
            Self::ExceedsMaxTtl { key, ttl, max_ttl } => {
                write!(f, "the key {} has a TTL of {}, ", key.escape_debug(), short(*ttl))?;
                write!(f, "{}", Excess(*max_ttl))
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { failure } => write!(f, "no reply: {failure}; it has no vote"),
            Self::Quarantined { failure, .. } => write!(f, "{failure}: {QUARANTINED}"),
            Self::Replica => {
                write!(f, "it is a replica and has no vote; configure the address of a master")
            }
            Self::SameServer { other } => {
                write!(f, "it is the same server as {other}; each node must be a different server")
            }
            Self::Refused { command: command @ "SCRIPT LOAD", failure } => {
                write!(
                    f,
                    "{command} is refused ({failure}): every command sends its script's source; "
                )?;
                write!(f, "permit +script|load")
            }
            Self::Refused { command, failure } => {
                write!(f, "{command} is refused ({failure}): locks require it")
            }
            Self::Evicting { policy, evicted } => {
                write!(
                    f,
                    "maxmemory-policy is {policy}: the server evicts locks when its memory is full"
                )?;
                if *evicted > 0 {
                    write!(f, " ({evicted} keys evicted so far)")?;
                }
                write!(f, "; set maxmemory-policy noeviction")
            }
            Self::ClockUnreadable
            | Self::ClockMoved { .. }
            | Self::ClockOff { .. }
            | Self::ClocksDisagree { .. }
            | Self::ExceedsMaxTtl { .. } => self.fmt_clock(f),
            Self::NotDurable { persistence } => f.write_str(&forgets(*persistence)),
            Self::NoFsyncOnRewrite => {
                write!(f, "no-appendfsync-on-rewrite is yes: a crash of the machine during a ")?;
                write!(f, "rewrite loses locks; set it to no before you use trust_persistence")
            }
            Self::Old { version: (major, minor) } => {
                write!(f, "it is compatible with Redis {major}.{minor}; the oldest version that ")?;
                write!(f, "quorlock is tested with is 6.2: use a newer one")
            }
            Self::NoPushes { failure } => {
                write!(
                    f,
                    "it sends no notification when a lock is released ({failure}): waiting "
                )?;
                write!(
                    f,
                    "takes longer; use RESP3 (Redis 6.0 or later) and permit +client|tracking"
                )
            }
            Self::HasReplicas { count } => write!(f, "replicas: {count}; {PROMOTED}"),
            Self::Watched { sentinels } => {
                write!(f, "monitored by Sentinels: {sentinels}; {PROMOTED}")
            }
            Self::Disagrees { clients, about } => about.write(clients, f),
            Self::Clustered => {
                write!(
                    f,
                    "it runs in cluster mode: acquire_all requires resources in one slot, and "
                )?;
                write!(f, "this node must serve the slots of all resources")
            }
            Self::Unknown { what, needs } => write!(f, "unknown {what}; permit {needs}"),
        }
    }
}
