//! What the torturer tells a client process, and what that tells back: JSON, one line each.

use crate::record::{Call, End};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::Write;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The first line that a client reads. All others are of [`Told`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Orders {
    /// Of all choices.
    pub(crate) seed: u64,
    /// Which part of the run this is.
    pub(crate) part: u16,
    /// The number of this client.
    pub(crate) client: u16,
    /// How many tasks it runs.
    pub(crate) tasks: u16,
    /// How many resources there are.
    pub(crate) resources: u16,
    /// The nodes, and how they are spoken to.
    pub(crate) nodes: Nodes,
    /// When the run began, on the boot clock.
    pub(crate) origin: u64,
    /// What is wrong with this client on purpose.
    pub(crate) sabotage: Option<Sabotage>,
}

/// The nodes of a run, and what its clients have to be told of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Nodes {
    /// Their URLs.
    pub urls: Vec<String>,
    /// The URLs, in the same order, that every second client uses; empty if there are no others.
    pub other_urls: Vec<String>,
    /// What the names of all keys begin with.
    pub prefix: String,
    /// How long a client waits for the answer of a node.
    pub node_timeout: Duration,
    /// How long it waits for a connection.
    pub connect_timeout: Option<Duration>,
    /// How long fencing counters stand after they were last used.
    pub token_ttl: Option<Duration>,
    /// Whether durable nodes are trusted to keep their data.
    pub is_trusting: bool,
}

/// How a client can be made to do wrong, to see that it is caught.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sabotage {
    /// It works without the lock where it is refused, and guesses a token.
    Lock,
    /// It writes with higher tokens than it was given.
    Token,
}

impl FromStr for Sabotage {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "lock" => Ok(Self::Lock),
            "token" => Ok(Self::Token),
            _ => Err("lock or token"),
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

/// What a client is told.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Told {
    /// What it asked for.
    Answer {
        /// The number of its question.
        ask: u64,
        /// What was read, or 1 for a write that took place.
        answer: u64,
    },
    /// To come to an end.
    End,
}

/// What a client asks of the counters and cells.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// The counter.
    Read {
        /// Whose it is.
        resource: u16,
    },
    /// To set the counter.
    Write {
        /// Whose it is.
        resource: u16,
        /// To what.
        value: u64,
        /// The end of the validity, on the boot clock.
        until: u64,
    },
    /// The highest token that was taken.
    Highest {
        /// Of which resource.
        resource: u16,
    },
    /// To write with a token.
    WriteFenced {
        /// Where.
        resource: u16,
        /// The number of the tenure in its client.
        id: u64,
        /// The token.
        token: u64,
        /// The end of the validity, on the boot clock; 0 if it has ended.
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

/// What a client tells. Each line is written before what comes after it is done, so that nothing is
/// wrong in the books when the client is killed in between.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Line {
    /// A tenure has begun.
    Begun {
        /// Its number in this client.
        id: u64,
        /// What is held.
        resources: Vec<u16>,
        /// By which task.
        task: u16,
        /// The fencing token that the holder writes with.
        token: Option<u64>,
        /// When the acquire began.
        asked: u64,
        /// When the acquire returned.
        from: u64,
        /// The end of its validity, as it stands now.
        until: u64,
        /// Whether it is extended in the background.
        is_renewed: bool,
    },
    /// Its validity was extended.
    Moved {
        /// Its number.
        id: u64,
        /// The end of its validity.
        until: u64,
    },
    /// It is about to be released, or has ended.
    Ended {
        /// Its number.
        id: u64,
        /// When.
        until: u64,
        /// How.
        end: End,
    },
    /// The loss of a lease was told.
    Told {
        /// The end of its validity.
        until: u64,
        /// When it was told.
        at: u64,
    },
    /// A call has returned.
    Called(Call),
    /// It asks something of the counters and cells.
    Asks {
        /// The number of the question.
        ask: u64,
        /// What.
        request: Request,
    },
    /// A write to a counter was refused: it landed after the lease's validity.
    TooLate,
    /// A lease was gone from the nodes before its validity ended.
    Robbed(Robbery),
    /// This client has heard of all nodes.
    Ready,
    /// Something that must not be.
    Wrong(String),
    /// The client has closed, and ends.
    Finished {
        /// Tasks that are left in its runtime.
        tasks: u64,
        /// Releases that could not be delivered before it closed.
        undelivered: u64,
    },
}

/// That nodes say of a lease that it is gone, while it is valid.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Robbery {
    /// What was said.
    pub(crate) said: String,
    /// How much too early.
    pub(crate) early: u64,
    /// When.
    pub(crate) at: u64,
}

/// Where a client tells its lines to.
#[derive(Debug, Default)]
pub(crate) struct Teller {
    ids: AtomicU64,
}

impl Teller {
    /// A number for a new tenure.
    pub(crate) fn number(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Writes `line`, and returns when it is in the pipe: it outlives this process.
    #[expect(clippy::unused_self, reason = "who has a teller may tell")]
    pub(crate) fn tell(&self, line: &Line) {
        let mut text = serde_json::to_vec(line).expect("plain data");
        text.push(b'\n');
        // Shorter than the pipe takes as a whole. Without a reader this process ends soon.
        let _ = std::io::stdout().lock().write_all(&text);
    }
}
