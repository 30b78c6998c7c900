//! The messages between the controller and a client process. Each line contains one message as
//! JSON.

use crate::record::{Call, End};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::Write;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The configuration of a client. It is the first line of the client's standard input, and all
/// other lines are [`ControlMessage`]s.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ClientConfig {
    pub(crate) seed: u64,
    pub(crate) part: u16,
    pub(crate) client: u16,
    pub(crate) tasks: u16,
    pub(crate) resources: u16,
    pub(crate) nodes: Nodes,
    /// The start of the run on the boot clock, in nanoseconds.
    pub(crate) origin: u64,
    /// An intentional defect of this client, if any.
    pub(crate) sabotage: Option<Sabotage>,
}

/// The nodes of a run and the settings of its clients.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Nodes {
    /// The URLs of the nodes.
    pub urls: Vec<String>,
    /// The URLs that clients with odd numbers use for the same nodes, in the same order. Empty if
    /// all clients use `urls`.
    pub other_urls: Vec<String>,
    /// The prefix of all keys.
    pub prefix: String,
    /// The node timeout of the clients.
    pub node_timeout: Duration,
    /// The connect timeout of the clients, or `None` for the library's default.
    pub connect_timeout: Option<Duration>,
    /// The TTL of unused fencing counters, or `None` for the library's default.
    pub token_ttl: Option<Duration>,
    /// The value of the clients' setting `trust_persistence`.
    pub is_trusting: bool,
}

/// An intentional defect of a client, to test that the checks detect it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sabotage {
    /// The client works without the lock after a refused acquire, and guesses a token.
    Lock,
    /// The client writes with tokens that are higher than the tokens that it received.
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

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum ControlMessage {
    /// The reply to a request to the store.
    Reply {
        request_id: u64,
        /// The value that was read. For a write, 1 if the store accepted the write, and 0
        /// otherwise.
        value: u64,
    },
    End,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// A read of the resource's counter.
    Read { resource: u16 },
    Write {
        resource: u16,
        value: u64,
        /// The end of the lease's validity on the boot clock.
        until: u64,
    },
    /// A read of the highest token that the resource's cell has accepted.
    Highest { resource: u16 },
    WriteFenced {
        resource: u16,
        /// The ID of the writer's tenure within its client.
        id: u64,
        token: u64,
        /// The end of the lease's validity on the boot clock, or 0 if the validity has ended.
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

/// A message from a client to the controller. The client sends each message before its next action,
/// so that the records are correct even if the client is killed in between.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum ClientMessage {
    Begun {
        /// The ID of the tenure within this client.
        id: u64,
        resources: Vec<u16>,
        task: u16,
        /// The fencing token with which the holder writes, if any.
        token: Option<u64>,
        asked: u64,
        from: u64,
        /// The end of the validity at the start of the tenure.
        until: u64,
        /// Whether the library extends the lease in the background.
        is_renewed: bool,
    },
    /// An extension of the lease of a tenure.
    Extended {
        id: u64,
        /// The new end of the validity.
        until: u64,
    },
    /// The end of a tenure. In the case of a release, the client sends this message before it calls
    /// `release`.
    Ended { id: u64, until: u64, end: End },
    /// The loss of a lease, as reported by the library.
    LossReported {
        /// The end of the validity.
        until: u64,
        /// The time at which the library reported the loss.
        at: u64,
    },
    /// A call that has returned or was dropped.
    Called(Call),
    StoreRequest {
        /// An ID that the reply repeats.
        request_id: u64,
        request: Request,
    },
    /// The store refused a counter write, because it arrived after the end of the validity.
    TooLate,
    /// The nodes lost a lease's keys before its validity ended.
    LostEarly(EarlyLoss),
    /// Every node has replied to this client.
    Ready,
    /// An unexpected error, as text.
    Error(String),
    /// The end of the process, after its client was closed.
    Finished {
        /// The number of tasks that are still alive in the runtime.
        tasks: u64,
        /// The number of releases that were still pending.
        undelivered: u64,
    },
}

/// A report that a valid lease lost its keys.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct EarlyLoss {
    /// The library's result, as text.
    pub(crate) report: String,
    /// The remaining validity at the time of the report, in nanoseconds.
    pub(crate) early: u64,
    /// The time of the report, in nanoseconds since the start of the run.
    pub(crate) at: u64,
}

/// Writes a client's messages, and assigns the IDs of its tenures.
#[derive(Debug, Default)]
pub(crate) struct MessageWriter {
    ids: AtomicU64,
}

impl MessageWriter {
    pub(crate) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Writes a message to standard output. When this function returns, the message is in the pipe,
    /// and the controller receives it even if this process is killed.
    #[expect(clippy::unused_self, reason = "only holders of a writer may write")]
    pub(crate) fn send(&self, message: &ClientMessage) {
        let mut text = serde_json::to_vec(message).expect("plain data");
        text.push(b'\n');
        // The pipe accepts a message of this size as a whole. Errors are ignored, because a process
        // without a controller ends soon.
        let _ = std::io::stdout().lock().write_all(&text);
    }
}
