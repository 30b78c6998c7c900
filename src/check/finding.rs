//! The problems that a check reports for a node.

use super::offset::ClockOffset;
use crate::wire::{Fsync, INFO_NOT_PERMITTED, NodeFailure, Persistence, short};
use std::fmt;
use std::time::Duration;

/// The severity of a [`Finding`]. The order is `Note` < `Warning` < `Danger`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Severity {
    /// The finding is for information only. Locks are not at risk.
    Note,
    /// Occasional events, such as a restart, can cause the loss of locks.
    Warning,
    /// The node cannot be used, or it loses locks in normal operation.
    Danger,
}

/// A problem of a node, or a fact that the check could not determine; see
/// [`NodeCheck::findings`](crate::NodeCheck::findings). The `Display` text states the consequence and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(tag = "kind", rename_all = "snake_case"))]
pub enum Finding {
    /// The node does not reply, so it has no vote. Severity: danger.
    Unreachable {
        /// Reason why the check received no reply.
        failure: NodeFailure,
    },
    /// The node may have lost locks in a restart or a flush, so it is in quarantine; see
    /// [`RestartGuard`](crate::RestartGuard). Until the quarantine ends, acquires ignore its vote. The deployment then
    /// tolerates one failure less, as if this node were unreachable. Severity: danger.
    Quarantined {
        /// Reason for the quarantine: [`Restarted`](NodeFailure::Restarted),
        /// [`MaybeRestarted`](NodeFailure::MaybeRestarted) or [`Flushed`](NodeFailure::Flushed).
        failure: NodeFailure,
        /// Time until the node's vote counts in acquires again.
        #[cfg_attr(
            feature = "serde",
            serde(rename = "counts_in_seconds", serialize_with = "crate::wire::seconds")
        )]
        counts_in: Duration,
    },
    /// The node is a replica, so it has no vote. Locks require a master. Severity: danger.
    Replica,
    /// This node and another node are the same server, which would have two votes. Severity: danger.
    SameServer {
        /// Address of the other node.
        other: String,
    },
    /// The server refuses a command that locks use. Severity: danger, or note for `SCRIPT LOAD`, because locks work
    /// without this command.
    Refused {
        /// Name of the refused command.
        command: &'static str,
        /// Error reply of the server.
        failure: NodeFailure,
    },
    /// The server evicts keys when its memory is full. The evicted keys can be locks. Severity: danger.
    Evicting {
        /// The `maxmemory-policy` of the server.
        policy: String,
        /// Number of keys that the server has evicted since it started.
        evicted: u64,
    },
    /// The server does not permit `TIME`. Clients therefore cannot detect that the server's clock steps forward or runs
    /// fast, which expires locks early. Severity: danger.
    ClockUnreadable,
    /// The server's clock differs from the other nodes' clocks by more than 125 ms. The difference itself is harmless,
    /// but a forward step that corrects the clock expires locks early. Severity: warning.
    ClockOff {
        /// Size and direction of the difference.
        offset: ClockOffset,
    },
    /// The nodes' clocks disagree by more than 125 ms, and this client's clock does not agree with a majority of them.
    /// The clocks of the majority may therefore be wrong. Reported for every node whose clock was read. Severity:
    /// warning.
    ClocksDisagree {
        /// Difference between the clocks of the two groups of nodes.
        #[cfg_attr(
            feature = "serde",
            serde(rename = "by_seconds", serialize_with = "crate::wire::seconds")
        )]
        by: Duration,
        /// Addresses of the nodes whose clocks are closer to this client's clock.
        near_client: Vec<String>,
        /// Addresses of the other nodes.
        others: Vec<String>,
    },
    /// The server's persistence settings do not protect locks from loss in a restart or a crash. Severity: warning.
    NotDurable {
        /// Persistence settings of the server.
        persistence: Persistence,
    },
    /// The server does not fsync its append-only file during a rewrite (`no-appendfsync-on-rewrite`), so a crash of the
    /// machine during a rewrite loses locks. Severity: warning.
    NoFsyncOnRewrite,
    /// The server does not notify clients when a lock is released, so waiting for a lock takes longer. Severity: note.
    NoPushes {
        /// Reason why the server sends no notifications.
        failure: NodeFailure,
    },
    /// The server has replicas. If one of them is promoted, locks can be lost. Severity: warning.
    HasReplicas {
        /// Number of connected replicas.
        count: u64,
    },
    /// Redis Sentinel monitors the server and may promote a replica in its place. Locks can then be lost. Severity:
    /// warning.
    Watched {
        /// Number of Sentinels that monitor the server.
        sentinels: u64,
    },
    /// Another client uses a semaphore with another number of permits than this client: the node refused a permit of
    /// this client, because the other client held it. All clients must use the same number. Reported for the rest of
    /// this client's life. Severity: warning.
    PermitsDiffer {
        /// Name of the semaphore.
        semaphore: String,
        /// Number of permits that this client uses.
        permits: usize,
        /// Number of permits that the other client uses.
        other_permits: usize,
    },
    /// The check could not determine a fact, because the server does not permit the necessary command. Severity: note.
    Unknown {
        /// Name of the unknown fact.
        what: &'static str,
        /// Missing permission, in the syntax of `ACL SETUSER`.
        needs: &'static str,
    },
}

impl Finding {
    /// Returns the severity of the finding.
    pub fn severity(&self) -> Severity {
        match self {
            Self::Refused { command: "SCRIPT LOAD", .. }
            | Self::NoPushes { .. }
            | Self::Unknown { .. } => Severity::Note,
            Self::ClockOff { .. }
            | Self::ClocksDisagree { .. }
            | Self::NotDurable { .. }
            | Self::NoFsyncOnRewrite
            | Self::HasReplicas { .. }
            | Self::Watched { .. }
            | Self::PermitsDiffer { .. } => Severity::Warning,
            Self::Unreachable { .. }
            | Self::Quarantined { .. }
            | Self::Replica
            | Self::SameServer { .. }
            | Self::Refused { .. }
            | Self::Evicting { .. }
            | Self::ClockUnreadable => Severity::Danger,
        }
    }
}

/// Describes which locks a server with these settings can lose, according to the "Redis persistence" page of the Redis
/// documentation.
fn loss(persistence: Persistence) -> &'static str {
    match persistence {
        Persistence::Nothing => "no persistence: a restart loses all locks",
        Persistence::Snapshots => {
            "only snapshots: a restart loses the locks acquired since the last snapshot, and \
             restores released locks"
        }
        Persistence::AppendOnly(Some(Fsync::Always)) => "no locks are lost",
        Persistence::AppendOnly(Some(Fsync::EverySecond)) => {
            "appendfsync is everysec: a crash of the machine loses the locks of about the last second"
        }
        Persistence::AppendOnly(Some(Fsync::Never)) => {
            "appendfsync is no: a crash of the machine loses the locks that the operating \
             system has not written to disk yet"
        }
        Persistence::AppendOnly(None) => {
            "appendfsync is unknown: unless it is always, a crash of the machine loses locks"
        }
    }
}

const NOT_DURABLE_REMEDY: &str = "; the restart guard excludes a restarted node for max_ttl plus a \
                                  margin (62.2 s by default). To count it at once, set appendonly \
                                  yes, appendfsync always and trust_persistence";

const QUARANTINED: &str = "it may have lost locks, and has no vote in acquires until then; do not restart another \
                           node before that";

const PERMIT_INFO: &str =
    "; permit +info, so that clients can detect whether the server was restarted";

const REPLICA_REMEDY: &str = "a promoted replica may miss the latest locks, and new clients cannot \
                              detect that; use a single server per node, and while a node has \
                              replicas, do not set trust_persistence";

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
                    "its clock cannot be read: clients cannot detect a forward step, which expires locks early; \
                     permit +time"
                )
            }
            Self::ClockOff { offset } => {
                let of = if offset.is_ahead() { " of" } else { "" };
                write!(
                    f,
                    "its clock is {offset}{of} the other nodes: the offset is harmless, but correcting it in one \
                     step may not be (a forward step expires locks early); slew the clock, or hold no locks \
                     while it is stepped"
                )
            }
            Self::ClocksDisagree { by, near_client, others } => {
                let (by, near, others) = (short(*by), near_client.join(", "), others.join(", "));
                write!(
                    f,
                    "the nodes' clocks disagree by {by}: {near} (near this client's clock) and {others}; find \
                     out which clocks are right before you correct any: a forward step expires locks early, a \
                     backward step expires them late"
                )
            }
            _ => self.fmt_refusal(f),
        }
    }

    fn fmt_refusal(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { command: command @ "SCRIPT LOAD", failure } => {
                write!(
                    f,
                    "{command} is refused ({failure}): every command contains its full script; for NOPERM, permit \
                     +script|load"
                )
            }
            Self::Refused { command, failure } => {
                let right = command.to_ascii_lowercase();
                write!(
                    f,
                    "{command} is refused ({failure}): locks require it; for NOPERM, permit +{right} on the keys \
                     of the locks"
                )
            }
            Self::NoPushes { failure } => {
                write!(
                    f,
                    "it sends no notification when a lock is released ({failure}): waiting takes longer; for \
                     NOPERM, permit +client|tracking"
                )
            }
            Self::Unknown { what, needs } => {
                write!(
                    f,
                    "cannot determine: {what} (no reply in time, not permitted or not supported); for NOPERM, \
                     permit {needs}"
                )
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { failure } => write!(f, "cannot be used: {failure}; it has no vote"),
            Self::Quarantined { failure, .. } => {
                let lacks_info = matches!(
                    failure,
                    NodeFailure::MaybeRestarted { missing: INFO_NOT_PERMITTED, .. }
                );
                write!(f, "{failure}: {QUARANTINED}{}", if lacks_info { PERMIT_INFO } else { "" })
            }
            Self::Replica => {
                write!(f, "it is a replica and has no vote; configure the address of a master")
            }
            Self::SameServer { other } => {
                write!(f, "it is the same server as {other}; each node must be a different server")
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
            Self::NotDurable { persistence } => {
                write!(f, "{}{NOT_DURABLE_REMEDY}", loss(*persistence))
            }
            Self::NoFsyncOnRewrite => {
                write!(
                    f,
                    "no-appendfsync-on-rewrite is yes: a crash of the machine during a rewrite loses locks; set \
                     it to no before you use trust_persistence"
                )
            }
            Self::HasReplicas { count } => write!(f, "replicas: {count}; {REPLICA_REMEDY}"),
            Self::Watched { sentinels } => {
                write!(f, "monitored by Sentinels: {sentinels}; {REPLICA_REMEDY}")
            }
            Self::PermitsDiffer { semaphore, permits, other_permits } => {
                write!(
                    f,
                    "the semaphore {semaphore} has {permits} permits for this client, and {other_permits} for another \
                     client: the larger number is the limit; use the same number in all clients"
                )
            }
            _ => self.fmt_clock(f),
        }
    }
}
