//! The failure of a node to contribute to a quorum.

use crate::protocol::{Event, Exclusion, Time};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// The beginning of the failure of a server that closes a connection during its set-up after an error reply.
pub(crate) const CLOSED_BY_SERVER: &str = "closed by the server: ";

/// The failure of a TLS handshake with a server that does not speak TLS.
pub(crate) const NO_TLS: &str = "the server does not speak TLS: use redis://";

/// Parts of the reasons why a connection can never be established with the current settings. The last two are messages
/// of rustls.
const PERMANENT_REASONS: [&str; 4] =
    [NO_TLS, "HELLO 3 is ", "invalid peer certificate: ", "received fatal alert: "];

/// Codes of replies that only other settings, or the deletion of a key, can change.
const PERMANENT_CODES: [&str; 6] =
    ["WRONGPASS", "NOAUTH", "NOPERM", "NOPROTO", "DENIED", "COUNTER"];

/// Parts of such replies without a code of their own. The last two report a missing permission for a command in a
/// script: Redis 7.0 and later, and earlier versions.
const PERMANENT_DETAILS: [&str; 6] = [
    "unknown command",
    "DB index is out of range",
    "invalid DB index",
    "SELECT is not allowed in cluster mode",
    "ACL failure in script",
    "The user executing the script can't",
];

/// Maximum length of the text that [`last_error`] returns, in characters.
const MAX_ERROR: usize = 200;

/// The reason why a node did not contribute to a quorum. A failure never means that another client holds the lock.
///
/// `Display` writes a short phrase, for example `timeout 50ms` or `connection refused`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(tag = "kind", content = "detail", rename_all = "snake_case")
)]
pub enum NodeFailure {
    /// The node did not reply within the given time. This time is the node timeout, or less if the acquire's wait time
    /// ended earlier.
    #[error("timeout {}", short(*.0))]
    Timeout(
        #[cfg_attr(feature = "serde", serde(serialize_with = "crate::wire::seconds"))] Duration,
    ),
    /// The client did not send the command within the given time, because it was still establishing the first
    /// connection or replacing a broken one. See [`Redlock::ready`](crate::Redlock::ready).
    #[error("connecting for {}", short(*.0))]
    Connecting(
        #[cfg_attr(feature = "serde", serde(serialize_with = "crate::wire::seconds"))] Duration,
    ),
    /// The client had too many other commands to send. The client did not send this command within the given time, or
    /// sent it too late to receive a reply. This failure does not indicate a fault of the node.
    #[error("queued in this client for {}", short(*.0))]
    Queued(#[cfg_attr(feature = "serde", serde(serialize_with = "crate::wire::seconds"))] Duration),
    /// The node has stalled: it has not replied to an earlier command for the given time. The client therefore did not
    /// send this command.
    #[error("stalled for {}", short(*.0))]
    Stalled(
        #[cfg_attr(feature = "serde", serde(serialize_with = "crate::wire::seconds"))] Duration,
    ),
    /// The client did not send the command, because it has no connection to the node. Contains the reason.
    #[error("{0}")]
    Unreachable(Arc<str>),
    /// The connection broke before the reply arrived. The node may have executed the command. Contains the reason.
    #[error("disconnected: {0}")]
    Disconnected(Arc<str>),
    /// The node replied with an error, such as `LOADING`, `READONLY`, `OOM` or `BUSY`.
    #[error("{code}{}{detail}", if detail.is_empty() { "" } else { " " })]
    Refused {
        /// The first word of the error message.
        code: Arc<str>,
        /// The rest of the error message.
        detail: Arc<str>,
    },
    /// The node is a replica. Redlock requires independent masters.
    #[error("replica: configure the address of a master")]
    Replica,
    /// The node is the same server process as another node of this client, under a different address. Contains the name
    /// of the other node.
    #[error("same server as {0}")]
    SameServer(Arc<str>),
    /// The server has restarted and may have lost locks, so its grants do not count towards a quorum yet. See
    /// [`RestartGuard`](crate::RestartGuard).
    #[error("restarted {} ago, counts again in {}", short(*ago), short(*counts_in))]
    Restarted {
        /// Time since the restart, or since its detection if the time of the restart is unknown.
        #[cfg_attr(
            feature = "serde",
            serde(rename = "ago_seconds", serialize_with = "crate::wire::seconds")
        )]
        ago: Duration,
        /// Time until the node's grants count again.
        #[cfg_attr(
            feature = "serde",
            serde(rename = "counts_in_seconds", serialize_with = "crate::wire::seconds")
        )]
        counts_in: Duration,
    },
    /// The server may have restarted, so its grants do not count towards a quorum yet. The connection is new, and
    /// `INFO` does not prove that the server process is the same as before.
    #[error(
        "maybe restarted ({missing}): connected {} ago, counts again in {}",
        short(*ago),
        short(*counts_in)
    )]
    MaybeRestarted {
        /// Time since the connection was established.
        #[cfg_attr(
            feature = "serde",
            serde(rename = "ago_seconds", serialize_with = "crate::wire::seconds")
        )]
        ago: Duration,
        /// Time until the node's grants count again.
        #[cfg_attr(
            feature = "serde",
            serde(rename = "counts_in_seconds", serialize_with = "crate::wire::seconds")
        )]
        counts_in: Duration,
        /// Reason why the proof is missing, for example `INFO is not permitted`. In this example, permit `INFO` with
        /// `ACL SETUSER … +info`.
        missing: &'static str,
    },
    /// The server's keys were flushed, so its grants do not count towards a quorum yet. See
    /// [`RestartGuard`](crate::RestartGuard).
    #[error("flushed {} ago, counts again in {}", short(*ago), short(*counts_in))]
    Flushed {
        /// Time since the flush.
        #[cfg_attr(
            feature = "serde",
            serde(rename = "ago_seconds", serialize_with = "crate::wire::seconds")
        )]
        ago: Duration,
        /// Time until the node's grants count again.
        #[cfg_attr(
            feature = "serde",
            serde(rename = "counts_in_seconds", serialize_with = "crate::wire::seconds")
        )]
        counts_in: Duration,
    },
    /// The server's clock is unreliable, for one of two reasons:
    ///
    /// - The clock runs too fast, so keys expire too early. The node's votes on acquires and extensions do not count.
    /// - The clock has stepped forward too far. The node's grant does not count, because the lock would expire before a
    ///   former holder's lease is certain to have ended; see
    ///   [`VoteEligibility::Deferred`](crate::VoteEligibility::Deferred).
    ///
    /// Correct the clock (`chronyd`, `ntpd`).
    #[error(
        "suspect: its clock stepped forward or runs fast (by about {}), counts again in {}; check its time service",
        short(*ahead),
        short(*counts_in)
    )]
    Suspect {
        /// Approximate time that the server's clock has gained on this client's clock.
        #[cfg_attr(
            feature = "serde",
            serde(rename = "ahead_seconds", serialize_with = "crate::wire::seconds")
        )]
        ahead: Duration,
        /// Time until the node's votes count again, provided that its clock does not deviate further.
        #[cfg_attr(
            feature = "serde",
            serde(rename = "counts_in_seconds", serialize_with = "crate::wire::seconds")
        )]
        counts_in: Duration,
    },
    /// The reply is not valid for the command. Contains a description of the reply.
    #[error("unexpected reply: {0}")]
    Unexpected(Arc<str>),
    /// The runtime that served the connection was shut down.
    #[error("the runtime has shut down")]
    ShutDown,
}

impl NodeFailure {
    /// Returns the time until the node's votes count again. Returns `None` unless the node is excluded for a limited
    /// time.
    pub(crate) fn counts_in(&self) -> Option<Duration> {
        match *self {
            Self::Restarted { counts_in, .. }
            | Self::MaybeRestarted { counts_in, .. }
            | Self::Flushed { counts_in, .. }
            | Self::Suspect { counts_in, .. } => Some(counts_in),
            _ => None,
        }
    }

    /// Returns true if the failure lasts until an operator changes the settings of the client or of the server: the
    /// server rejects the login, refuses the command or the database, or holds another value in the key of a counter; one
    /// side rejects the other's certificate; the server speaks no TLS or no RESP3, or is the [same](Self::SameServer) as
    /// another node. Retries cannot succeed before that.
    ///
    /// Returns false if the node may recover by itself, or if the cause is unknown.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::SameServer(_) => true,
            Self::Refused { code, detail } => is_permanent_reply(code, detail),
            Self::Unreachable(reason) => {
                let reply = reason.strip_prefix(CLOSED_BY_SERVER).unwrap_or(reason);
                let (code, detail) = reply.split_once(' ').unwrap_or((reply, ""));
                is_permanent_reply(code, detail)
                    || PERMANENT_REASONS.iter().any(|part| reason.contains(part))
            }
            _ => false,
        }
    }

    /// Returns true if every write on this connection would fail in the same way, because the server is a replica or
    /// requires authentication. Before Redis 7.0, the error of a script contains the error of the command that failed
    /// in it.
    pub(crate) fn refuses_every_write(&self) -> bool {
        let Self::Refused { code, detail } = self else { return matches!(self, Self::Replica) };
        matches!(&**code, "READONLY" | "MASTERDOWN" | "NOAUTH")
            || &**code == "ERR" && detail.contains("-READONLY ")
    }

    /// Returns true if a cluster node does not serve the key (`MOVED`). Either another node serves the key, or the node
    /// has become a replica.
    pub(crate) fn is_moved(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if &**code == "MOVED")
    }

    /// Creates the failure of a node whose grants do not count because of a restart or a flush.
    pub(crate) fn excluded(exclusion: Exclusion, now: Time) -> Self {
        let (ago, counts_in) = (exclusion.ago(now), exclusion.until.since(now));
        match exclusion.event {
            Event::Restart => Self::Restarted { ago, counts_in },
            Event::MaybeRestart(missing) => Self::MaybeRestarted { ago, counts_in, missing },
            Event::Flush => Self::Flushed { ago, counts_in },
        }
    }

    pub(crate) fn unreachable(error: &redis::RedisError) -> Self {
        Self::Unreachable(describe_connection_error(error).into())
    }

    /// Creates the failure for a broken connection. `last_error` is the last error reply of the server, if any.
    pub(crate) fn disconnected(error: &redis::RedisError, last_error: Option<&str>) -> Self {
        let mut reason = describe_connection_error(error);
        if let Some(last_error) = last_error {
            reason = format!("{reason}: {last_error}");
        }
        if error.kind() == redis::ErrorKind::Parse {
            // The server is reachable, but does not speak the Redis protocol.
            return Self::Unexpected(reason.into());
        }
        Self::Disconnected(reason.into())
    }

    /// Creates the failure for an error reply. `secret` contains the digits of a lock's value, which the function
    /// replaces in the error text.
    pub(crate) fn refused(error: &redis::ServerError, secret: Option<&str>) -> Self {
        let mut detail = redact_detail(error.details().unwrap_or_default());
        if let Some(secret) = secret {
            detail = detail.replace(secret, "<value>");
        }
        Self::Refused { code: error.code().into(), detail: detail.into() }
    }
}

fn is_permanent_reply(code: &str, detail: &str) -> bool {
    PERMANENT_CODES.contains(&code)
        || code == "ERR" && PERMANENT_DETAILS.iter().any(|part| detail.contains(part))
}

/// Formats the last error reply of a closed connection on one line. The command that failed is unknown, so all text
/// that looks like a lock's value is replaced.
pub(super) fn last_error(error: &redis::ServerError) -> String {
    let detail = redact_detail(error.details().unwrap_or_default());
    let text = format!("{} {detail}", error.code());
    let (mut shown, mut rest) = (String::new(), text.trim_end());
    while let Some(begin) = rest.find(|c: char| c.is_ascii_hexdigit()) {
        let (before, run) = rest.split_at(begin);
        let length = run.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(run.len());
        shown += before;
        shown += if length < 32 { &run[..length] } else { "<value>" };
        rest = &run[length..];
    }
    shown += rest;
    // The protected-mode error is a page long.
    shown.chars().take(MAX_ERROR).collect()
}

/// Removes repeated arguments, script positions and user names from an error.
fn redact_detail(detail: &str) -> String {
    // Servers repeat the arguments of an unknown command. An argument may be a lock's value or a password.
    let detail = detail.split(", with args").next().unwrap_or_default();
    // The error of a command inside a script ends with the script's hash and line.
    let detail = detail.split(" script: ").next().unwrap_or_default();
    without_user(detail)
}

/// Removes the user name, which servers since Redis 7.2 include in ACL errors.
fn without_user(detail: &str) -> String {
    let named = detail.split_once(" has no permissions");
    let named = named.and_then(|(before, right)| Some((before.rsplit_once("User ")?, right)));
    match named {
        Some(((start, user), right)) if !user.contains(' ') => {
            format!("{start}This user has no permissions{right}")
        }
        _ => detail.to_owned(),
    }
}

/// Describes a connection error without the redis crate's preamble and without addresses.
fn describe_connection_error(error: &redis::RedisError) -> String {
    if error.is_connection_refusal() {
        return "connection refused".to_owned();
    }
    if error.is_timeout() {
        return "timeout".to_owned();
    }
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {}", redact_detail(detail)),
        (Some(code), None) => code.to_owned(),
        (None, _) => error.to_string(),
    }
}

/// Formats a duration for messages, for example `0.9ms`, `50ms` or `1.2s`.
pub(crate) fn short(duration: Duration) -> String {
    let ms = duration.as_secs_f64() * 1e3;
    if ms < 9.95 {
        format!("{ms:.1}ms")
    } else if ms < 999.5 {
        format!("{ms:.0}ms")
    } else {
        format!("{:.1}s", ms / 1e3)
    }
}

#[cfg(test)]
#[path = "failure_tests.rs"]
mod tests;
