//! The messages between the controller and a client process, one JSON object per line.

use crate::record::{Call, End};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::Write;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The configuration of a client. The controller sends it as the first line. All later lines are
/// [`ControlMessage`]s.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ClientConfig {
    pub(crate) seed: u64,
    pub(crate) part: u16,
    pub(crate) client: u16,
    pub(crate) tasks: u16,
    pub(crate) nodes: Nodes,
    /// The start of the run on the boot clock, in nanoseconds.
    pub(crate) origin: u64,
    /// The bug to build into this client, if any.
    pub(crate) sabotage: Option<Sabotage>,
}

/// The nodes of a run and the settings of its clients.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Nodes {
    /// The URLs of the nodes.
    pub urls: Vec<String>,
    /// Other URLs of the same nodes, in the same order. Clients with odd numbers use them. If the
    /// list is empty, all clients use `urls`.
    pub other_urls: Vec<String>,
    /// The prefix of all keys.
    pub prefix: String,
    /// The node timeout of the clients.
    pub node_timeout: Duration,
    /// The connect timeout of the clients. `None` keeps the library's default.
    pub connect_timeout: Option<Duration>,
    /// How long an unused fencing counter lives. `None` keeps the library's default.
    pub token_ttl: Option<Duration>,
    /// Whether the clients trust that nodes keep their data in a restart
    /// (`Builder::trust_persistence`).
    pub is_trusting: bool,
}

/// A bug to build into a client, to test that the checks detect it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sabotage {
    /// Works without the lock after a refused acquire, with a guessed token.
    Lock,
    /// Writes with a higher token than the library returned.
    Token,
    /// Uses more permits of a semaphore than the other clients.
    Permits,
    /// Uses keys with another prefix.
    Prefix,
}

impl FromStr for Sabotage {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "lock" => Ok(Self::Lock),
            "token" => Ok(Self::Token),
            "permits" => Ok(Self::Permits),
            "prefix" => Ok(Self::Prefix),
            _ => Err("expected `lock`, `token`, `permits` or `prefix`"),
        }
    }
}

impl fmt::Display for Sabotage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lock => "lock",
            Self::Token => "token",
            Self::Permits => "permits",
            Self::Prefix => "prefix",
        })
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum ControlMessage {
    Reply {
        request_id: u64,
        /// The value that was read. For a write, 1 if the store accepted it and 0 if not.
        value: u64,
    },
    End,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Reads the resource's counter.
    Read { resource: u16 },
    Write {
        resource: u16,
        value: u64,
        /// The end of the lease's validity on the boot clock.
        until: u64,
    },
    /// Reads the highest token that the resource's fenced cell has accepted.
    Highest { resource: u16 },
    WriteFenced {
        resource: u16,
        /// The ID of the writer's hold.
        id: u64,
        token: u64,
        /// The end of the lease's validity on the boot clock, or 0 if the lease has expired.
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
/// so the records stay correct even if the client is killed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum ClientMessage {
    Begun {
        /// The ID of the hold, unique within this client.
        id: u64,
        resources: Vec<u16>,
        task: u16,
        /// The fencing token with which the holder writes, if any.
        token: Option<u64>,
        asked: u64,
        from: u64,
        /// The end of the validity when the hold began.
        until: u64,
        is_renewed: bool,
        /// Whether the holder is a reader.
        is_read: bool,
        /// The period in which the hold is the only run of a job, if any.
        period: Option<u64>,
    },
    /// The lease was extended.
    Extended {
        id: u64,
        /// The new end of the validity.
        until: u64,
    },
    /// The writer becomes a reader. The client sends this message before it calls `downgrade`.
    Downgraded { id: u64, at: u64 },
    /// The hold has ended. The client sends this message before it calls `release`, because another
    /// client can hold the lock before `release` returns.
    Ended { id: u64, until: u64, end: End },
    /// The library reported the loss of a lease.
    LossReported {
        /// The end of the validity.
        until: u64,
        /// The time of the report.
        at: u64,
    },
    /// A call has returned or was dropped.
    Called(Call),
    StoreRequest {
        /// The controller repeats this ID in the reply.
        request_id: u64,
        request: Request,
    },
    /// The store refused a counter write, because the lease had expired before the write arrived.
    TooLate,
    /// The keys of a lease disappeared from the nodes before the validity ended.
    LostEarly(EarlyLoss),
    /// Every node has replied to this client.
    Ready,
    /// An unexpected error, as text.
    Error(String),
    /// The library's client has been closed, and the process ends.
    Finished {
        /// The number of tasks that are still alive in the runtime.
        tasks: u64,
        /// The number of releases that were still pending.
        undelivered: u64,
    },
}

/// A report that the keys of a valid lease are lost.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct EarlyLoss {
    /// The library's result, as text.
    pub(crate) report: String,
    /// The remaining validity at the time of the report, in nanoseconds.
    pub(crate) early: u64,
    /// The time of the report, in nanoseconds since the start of the run.
    pub(crate) at: u64,
}

/// Writes a client's messages, and assigns the IDs of its holds.
#[derive(Debug, Default)]
pub(crate) struct MessageWriter {
    ids: AtomicU64,
}

impl MessageWriter {
    pub(crate) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Writes a message to standard output. When this function returns, the message is in the pipe,
    /// so the controller receives it even if this process is killed.
    #[expect(clippy::unused_self, reason = "only holders of a writer may write")]
    pub(crate) fn send(&self, message: &ClientMessage) {
        let mut text = serde_json::to_vec(message).expect("plain data");
        text.push(b'\n');
        // The pipe accepts a message of this size as a whole. Errors are ignored, because a process
        // without a controller ends soon.
        let _ = std::io::stdout().lock().write_all(&text);
    }
}
