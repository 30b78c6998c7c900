//! Messages between the controller and a client process: JSON, one per line.

use crate::record::{Call, End};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::Write;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Configuration of a client: the first line of its standard input. The later ones are
/// [`ControlMessage`]s.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ClientConfig {
    /// Seed of all choices.
    pub(crate) seed: u64,
    /// Number of this part of the run.
    pub(crate) part: u16,
    /// Number of this client.
    pub(crate) client: u16,
    pub(crate) tasks: u16,
    pub(crate) resources: u16,
    /// Nodes and client settings.
    pub(crate) nodes: Nodes,
    /// Start of the run on the boot clock, in nanoseconds.
    pub(crate) origin: u64,
    /// Intentional defect of this client.
    pub(crate) sabotage: Option<Sabotage>,
}

/// The nodes of a run, and the settings of its clients.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Nodes {
    /// URLs of the nodes.
    pub urls: Vec<String>,
    /// URLs of the same nodes, in the same order, for every second client. Empty if all clients use
    /// `urls`.
    pub other_urls: Vec<String>,
    /// Prefix of all keys.
    pub prefix: String,
    /// Node timeout of the clients.
    pub node_timeout: Duration,
    /// Connect timeout of the clients; `None` for the default.
    pub connect_timeout: Option<Duration>,
    /// Ttl of unused fencing counters; `None` for the default.
    pub token_ttl: Option<Duration>,
    /// Value of the setting `trust_persistence`.
    pub is_trusting: bool,
}

/// An intentional defect of a client, to test that the checks detect it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sabotage {
    /// Works without the lock after a refusal, with a guessed token.
    Lock,
    /// Writes with tokens that are higher than those it received.
    Token,
}

impl FromStr for Sabotage {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "lock" => Ok(Self::Lock),
            "token" => Ok(Self::Token),
            _ => Err("expected `lock` or `token`"),
        }
    }
}

impl fmt::Display for Sabotage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lock => "lock",
            Self::Token => "token",
        })
    }
}

/// Message from the controller to a client.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum ControlMessage {
    /// Reply to a store request.
    Answer {
        /// Number of the request.
        ask: u64,
        /// The number that was read, or 1 for a successful write.
        answer: u64,
    },
    /// End of the session.
    End,
}

/// Request to the store of counters and fenced cells.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Reads the counter.
    Read { resource: u16 },
    /// Sets the counter.
    Write {
        resource: u16,
        value: u64,
        /// End of the validity on the boot clock.
        until: u64,
    },
    /// Reads the highest accepted token.
    Highest { resource: u16 },
    /// Writes to the fenced cell.
    WriteFenced {
        resource: u16,
        /// Number of the tenure in its client.
        id: u64,
        token: u64,
        /// End of the validity on the boot clock; 0 if it has ended.
        until: u64,
    },
}

impl Request {
    pub(crate) fn resource(self) -> u16 {
        match self {
            Self::Read { resource }
            | Self::Write { resource, .. }
            | Self::Highest { resource }
            | Self::WriteFenced { resource, .. } => resource,
        }
    }
}

/// Message from a client to the controller. It is written before the action that follows, so that
/// the records are correct even if the client is killed in between.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum ClientMessage {
    /// A tenure has begun.
    Begun {
        /// Number of the tenure in this client.
        id: u64,
        resources: Vec<u16>,
        task: u16,
        /// Fencing token with which the holder writes.
        token: Option<u64>,
        /// Start of the acquire.
        asked: u64,
        /// Return of the acquire.
        from: u64,
        /// End of the validity, as known now.
        until: u64,
        /// The lease is extended in the background.
        is_renewed: bool,
    },
    /// The validity of a tenure was extended.
    Extended {
        id: u64,
        /// New end of the validity.
        until: u64,
    },
    /// A tenure has ended, or is about to be released.
    Ended { id: u64, until: u64, end: End },
    /// The library reported the loss of a lease.
    LossReported {
        /// End of the validity.
        until: u64,
        /// Time of the report.
        at: u64,
    },
    /// A call has returned.
    Called(Call),
    /// A request to the store.
    StoreRequest {
        /// Number of the request.
        ask: u64,
        request: Request,
    },
    /// A counter write was refused because it arrived after the validity.
    TooLate,
    /// The nodes lost the keys of a lease before its validity ended.
    LostEarly(EarlyLoss),
    /// Every node has replied to this client.
    Ready,
    /// An unexpected error.
    Error(String),
    /// The client was closed, and the process ends.
    Finished {
        /// Number of tasks that remain in its runtime.
        tasks: u64,
        /// Number of releases that were still pending.
        undelivered: u64,
    },
}

/// A report that a valid lease no longer has its keys.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct EarlyLoss {
    /// The library's result.
    pub(crate) report: String,
    /// Remaining validity, in nanoseconds.
    pub(crate) early: u64,
    /// Time of the report, since the run's origin.
    pub(crate) at: u64,
}

/// Writer of a client's messages.
#[derive(Debug, Default)]
pub(crate) struct MessageWriter {
    ids: AtomicU64,
}

impl MessageWriter {
    /// Returns a number for a new tenure.
    pub(crate) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Writes a message, and returns when it is in the pipe. From then on it survives this process.
    #[expect(clippy::unused_self, reason = "only holders of a writer may write")]
    pub(crate) fn send(&self, message: &ClientMessage) {
        let mut text = serde_json::to_vec(message).expect("plain data");
        text.push(b'\n');
        // The pipe accepts a message of this size as a whole. Without a reader, this process ends
        // soon.
        let _ = std::io::stdout().lock().write_all(&text);
    }
}
