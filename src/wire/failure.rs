//! Why a node's vote is Failed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Characters of an [error before a close](last_error).
const MAX_ERROR: usize = 200;

/// Why a node gave no answer that counts. It is never a sign that somebody holds the lock.
///
/// Prints as a short phrase, for example `timeout 50ms` or `connection refused`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeFailure {
    /// No answer within this time (the node timeout, or what the wait bound left of it).
    Timeout(Duration),
    /// Nothing could be sent to it within this time: the first connection to it is being made, or a new
    /// one after the old was lost. See [`Redlock::ready`](crate::Redlock::ready).
    Connecting(Duration),
    /// Not asked in time, or so late that it could not answer within this time: this client had too
    /// much else to send. Nothing speaks against the node.
    Queued(Duration),
    /// Not asked: it has left an earlier command without an answer for this long.
    Stalled(Duration),
    /// Not asked: there is no connection, for this reason.
    Unreachable(Arc<str>),
    /// The connection broke before the answer came; the command may have run.
    Disconnected(Arc<str>),
    /// The node answered with this error (for example `LOADING`, `READONLY`, `OOM`, `BUSY`).
    Refused {
        /// The error's first word.
        code: Arc<str>,
        /// The rest of it.
        detail: Arc<str>,
    },
    /// The node is a replica. Redlock needs independent masters.
    Replica,
    /// The node is the same server process as this other one, under another address.
    SameServer(Arc<str>),
    /// The server was restarted, and may have forgotten locks in that: what it grants does not count
    /// yet. See [`RestartGuard`](crate::RestartGuard).
    Restarted {
        /// How long ago that was, as far as it is known.
        ago: Duration,
        /// How long until it counts again.
        counts_in: Duration,
    },
    /// The connection to the server was lost and made again, or is the first one, and `INFO` does not show
    /// whether the server was restarted: its grants do not count yet.
    MaybeRestarted {
        /// How long ago the connection was made.
        ago: Duration,
        /// How long until it counts again.
        counts_in: Duration,
        /// The missing proof, for example `INFO is not permitted` (then permit it: `ACL SETUSER … +info`).
        missing: &'static str,
    },
    /// The server has lost its keys in a flush: what it grants does not count yet. See
    /// [`RestartGuard`](crate::RestartGuard).
    Flushed {
        /// How long ago that was.
        ago: Duration,
        /// How long until it counts again.
        counts_in: Duration,
    },
    /// The server's clock runs too fast, so that it forgets locks before their time: what it grants, and
    /// what it extends, does not count. Or it has stepped ahead, by so much that a lock which it grants now
    /// would be of no use when the time of a former holder is over for certain; see
    /// [`VoteEligibility::Deferred`](crate::VoteEligibility::Deferred). Mend its clock (`chronyd`, `ntpd`).
    Suspect {
        /// How far ahead of ours it has got at least.
        ahead: Duration,
        /// How long until it counts again, if it does not deviate any more.
        counts_in: Duration,
    },
    /// The node sent something that is no answer to the command.
    Unexpected(Arc<str>),
    /// The runtime that ran the connection was shut down.
    ShutDown,
}

impl NodeFailure {
    /// How long until the node counts again, if it is only for a time that it does not.
    pub(crate) fn counts_in(&self) -> Option<Duration> {
        match *self {
            Self::Restarted { counts_in, .. }
            | Self::MaybeRestarted { counts_in, .. }
            | Self::Flushed { counts_in, .. }
            | Self::Suspect { counts_in, .. } => Some(counts_in),
            _ => None,
        }
    }

    /// True for an error reply that the server gives to every write over the connection: it has become a
    /// replica, or wants another login. Before Redis 7.0, a script's error contains the error of its command.
    pub(crate) fn refuses_all(&self) -> bool {
        let Self::Refused { code, detail } = self else { return matches!(self, Self::Replica) };
        matches!(&**code, "READONLY" | "MASTERDOWN" | "NOAUTH")
            || &**code == "ERR" && detail.contains("-READONLY ")
    }

    /// True for the error reply of a cluster's node that does not serve a key: another one does, or the server
    /// has become a replica and serves none.
    pub(crate) fn is_moved(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if &**code == "MOVED")
    }

    /// The failure behind an error of a connection that could not be made.
    pub(crate) fn unreachable(error: &redis::RedisError) -> Self {
        Self::Unreachable(phrase(error).into())
    }

    /// The failure behind an error of a connection that was in use, with the error reply that the server sent last.
    pub(crate) fn disconnected(error: &redis::RedisError, last_error: Option<&str>) -> Self {
        let mut reason = phrase(error);
        if let Some(last_error) = last_error {
            reason = format!("{reason}: {last_error}");
        }
        if error.kind() == redis::ErrorKind::Parse {
            // The server is there, and does not speak as one of Redis does.
            return Self::Unexpected(reason.into());
        }
        Self::Disconnected(reason.into())
    }

    /// The failure behind an error reply. The `secret` digits of a value do not appear in it.
    pub(crate) fn refused(error: &redis::ServerError, secret: Option<&str>) -> Self {
        let mut detail = plain(error.details().unwrap_or_default());
        if let Some(secret) = secret {
            detail = detail.replace(secret, "<value>");
        }
        Self::Refused { code: error.code().into(), detail: detail.into() }
    }
}

/// An error reply that the server sent before it closed the connection, in one line. It may belong to any command,
/// so values of all locks are left out.
pub(super) fn last_error(error: &redis::ServerError) -> String {
    let detail = plain(error.details().unwrap_or_default());
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
    // The protected mode's error is a page of advice.
    shown.chars().take(MAX_ERROR).collect()
}

/// What an error reply says, without what it repeats.
fn plain(detail: &str) -> String {
    // A server that does not know a command repeats its arguments: a value, or a password.
    let detail = detail.split(", with args").next().unwrap_or_default();
    // An error inside of a script ends with the script's hash and line.
    let detail = detail.split(" script: ").next().unwrap_or_default();
    without_user(detail)
}

/// A refusal of the access rules without the name of our user, which servers from Redis 7.2 on tell.
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

/// What went wrong with a connection, without the crate's preamble and without addresses.
fn phrase(error: &redis::RedisError) -> String {
    if error.is_connection_refusal() {
        return "connection refused".to_owned();
    }
    if error.is_timeout() {
        return "timeout".to_owned();
    }
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {}", plain(detail)),
        (Some(code), None) => code.to_owned(),
        (None, _) => error.to_string(),
    }
}

impl fmt::Display for NodeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout(after) => write!(f, "timeout {}", short(*after)),
            Self::Connecting(after) => write!(f, "connecting for {}", short(*after)),
            Self::Queued(after) => write!(f, "queued here for {}", short(*after)),
            Self::Stalled(silence) => write!(f, "stalled for {}", short(*silence)),
            Self::Unreachable(reason) => write!(f, "{reason}"),
            Self::Disconnected(reason) => write!(f, "disconnected: {reason}"),
            Self::Refused { code, detail } if detail.is_empty() => write!(f, "{code}"),
            Self::Refused { code, detail } => write!(f, "{code} {detail}"),
            Self::Replica => write!(f, "a replica; give the address of a master"),
            Self::SameServer(other) => write!(f, "the same server as {other}"),
            Self::Restarted { ago, counts_in } => {
                write!(f, "restarted {} ago, counts again in {}", short(*ago), short(*counts_in))
            }
            Self::MaybeRestarted { ago, counts_in, missing } => {
                let (ago, counts_in) = (short(*ago), short(*counts_in));
                write!(
                    f,
                    "maybe restarted ({missing}): connected {ago} ago, counts again in {counts_in}"
                )
            }
            Self::Flushed { ago, counts_in } => {
                write!(f, "flushed {} ago, counts again in {}", short(*ago), short(*counts_in))
            }
            Self::Suspect { ahead, counts_in } => {
                let (ahead, counts_in) = (short(*ahead), short(*counts_in));
                write!(f, "suspect: its clock is {ahead} ahead, counts again in {counts_in}")
            }
            Self::Unexpected(reply) => write!(f, "unexpected reply: {reply}"),
            Self::ShutDown => write!(f, "the runtime was shut down"),
        }
    }
}

impl std::error::Error for NodeFailure {}

/// A duration as people read it in a report: `0.9ms`, `50ms`, `1.2s`.
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
mod tests {
    use super::*;

    #[test]
    fn durations_are_short() {
        let cases = [
            (0, "0.0ms"),
            (940, "0.9ms"),
            (9_940, "9.9ms"),
            (9_960, "10ms"),
            (50_000, "50ms"),
            (1_240_000, "1.2s"),
        ];
        for (us, text) in cases {
            assert_eq!(short(Duration::from_micros(us)), text);
        }
    }

    #[test]
    fn an_unknown_command_does_not_repeat_its_arguments() {
        let value = "0123456789abcdef0123456789abcdef";
        let text =
            format!("-ERR unknown command 'SET', with args beginning with: 'k' '{value}'\r\n");
        let reply = redis::parse_redis_value(text.as_bytes()).expect("an error reply");
        let redis::Value::ServerError(error) = reply else { panic!("not an error: {reply:?}") };
        let failure = NodeFailure::refused(&error, Some(value)).to_string();
        assert_eq!(failure, "ERR unknown command 'SET'");
        let text = format!("-ERR odd {value}\r\n");
        let reply = redis::parse_redis_value(text.as_bytes()).expect("an error reply");
        let redis::Value::ServerError(error) = reply else { panic!("not an error: {reply:?}") };
        assert_eq!(NodeFailure::refused(&error, Some(value)).to_string(), "ERR odd <value>");
        assert_eq!(NodeFailure::refused(&error, None).to_string(), format!("ERR odd {value}"));
    }

    #[test]
    fn last_error_before_close_shows_no_value_and_is_short() {
        let told = |text: &str| {
            let reply = redis::parse_redis_value(format!("-{text}\r\n").as_bytes());
            let Ok(redis::Value::ServerError(error)) = reply else {
                panic!("not an error: {reply:?}")
            };
            last_error(&error)
        };
        for text in ["ERR max number of clients reached", "OOM", "ERR invalid bulk length 7f"] {
            assert_eq!(told(text), text);
        }
        let value = "0123456789abcdef0123456789abcdef";
        assert_eq!(told(&format!("ERR odd {value}:me, {value}")), "ERR odd <value>:me, <value>");
        assert_eq!(
            told(&format!("ERR unknown command 'SET', with args beginning with: '{value}'")),
            "ERR unknown command 'SET'"
        );
        assert_eq!(told(&format!("DENIED {}", "long ".repeat(99))).len(), MAX_ERROR);
    }

    #[test]
    fn a_replica_and_a_lost_login_refuse_all_writes() {
        let refused = |text: &str| {
            let reply = redis::parse_redis_value(format!("-{text}\r\n").as_bytes());
            let Ok(redis::Value::ServerError(error)) = reply else {
                panic!("not an error: {reply:?}")
            };
            NodeFailure::refused(&error, Some("secret"))
        };
        for (text, refuses_all, is_moved) in [
            ("READONLY You can't write against a read only replica.", true, false),
            (
                "READONLY You can't write against a read only replica. script: 9d, on @user_script:1.",
                true,
                false,
            ),
            (
                "ERR Error running script (call to f_9d): @user_script:1: -READONLY You can't write.",
                true,
                false,
            ),
            (
                "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
                true,
                false,
            ),
            ("NOAUTH Authentication required.", true, false),
            ("MOVED 866 10.0.0.7:6379", false, true),
            ("LOADING Redis is loading the dataset in memory", false, false),
            ("NOPERM this user has no permissions", false, false),
            ("OOM command not allowed", false, false),
        ] {
            let failure = refused(text);
            assert_eq!(
                (failure.refuses_all(), failure.is_moved()),
                (refuses_all, is_moved),
                "{text}"
            );
        }
        assert!(NodeFailure::Replica.refuses_all(), "found at the set-up");
        assert!(!NodeFailure::Stalled(Duration::ZERO).refuses_all());
    }

    #[test]
    fn a_refusal_does_not_name_our_user() {
        let refusal = "User walter has no permissions to run the 'set' command";
        let unnamed = "This user has no permissions to run the 'set' command";
        assert_eq!(without_user(refusal), unnamed);
        assert_eq!(without_user(&format!("in script: {refusal}")), format!("in script: {unnamed}"));
        assert_eq!(without_user(unnamed), unnamed, "as older servers say it");
        assert_eq!(without_user("User"), "User");
    }
}
