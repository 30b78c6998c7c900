//! The connections of a client, and the bytes that were read from them.

use crate::coordinator::ConnectionId;
use crate::sync::ProcessBound;
use crate::transport::Stream;
use crate::wire::NodeFailure;
use redis::RedisConnectionInfo;
use std::io;
use std::ops::Range;
use tokio::task::AbortHandle;

/// Number of bytes after which the driver stops reading a connection to serve the others. The remaining bytes are read
/// when the task runs again.
pub(super) const MAX_READ: usize = 64 << 10;

/// Buffer capacity that is kept between turns, in bytes.
pub(super) const MAX_IDLE: usize = 8 << 10;

pub(super) type Opened = Result<(ProcessBound<Box<dyn Stream>>, RedisConnectionInfo), NodeFailure>;

/// A client's connections, and the input that has not been passed to the coordinator yet.
#[derive(Default)]
pub(super) struct Io {
    pub(super) opening: Vec<Opening>,
    pub(super) open: Vec<OpenConnection>,
    pub(super) opened: Vec<(ConnectionId, Result<RedisConnectionInfo, NodeFailure>)>,
    /// The bytes that were read from all connections. `parts` assigns ranges of these bytes to connections.
    pub(super) received: Vec<u8>,
    pub(super) parts: Vec<(ConnectionId, Range<usize>)>,
    pub(super) lost: Vec<(ConnectionId, io::Error)>,
}

/// A task that opens a connection. Dropping `Opening` aborts the task.
pub(super) struct Opening {
    pub(super) id: ConnectionId,
    pub(super) task: AbortHandle,
}

pub(super) struct OpenConnection {
    pub(super) id: ConnectionId,
    pub(super) stream: ProcessBound<Box<dyn Stream>>,
    pub(super) unsent: Vec<u8>,
    /// Whether the set-up has been written, which is much longer than most pipelines.
    pub(super) is_set_up: bool,
    pub(super) budget: usize,
    /// Whether the socket is read directly, without waiting until the runtime reports it as readable.
    pub(super) is_direct: bool,
    /// Whether the socket was read directly since the last turn of the task.
    was_direct: bool,
    pub(super) yields: u32,
}

impl OpenConnection {
    pub(super) fn new(id: ConnectionId, stream: ProcessBound<Box<dyn Stream>>) -> Self {
        Self {
            id,
            stream,
            unsent: Vec::new(),
            is_set_up: false,
            budget: MAX_READ,
            is_direct: false,
            was_direct: false,
            yields: 0,
        }
    }

    /// Prepares the connection for a turn of the task or of the timer thread. Only the task runs on the runtime with
    /// which the stream is registered.
    pub(super) fn begin_turn(&mut self, is_task: bool) {
        self.budget = MAX_READ;
        self.read_directly(false);
        if is_task && std::mem::take(&mut self.was_direct) {
            self.stream.restore_notifications();
        }
    }

    pub(super) fn read_directly(&mut self, is_direct: bool) {
        if self.is_direct != is_direct {
            self.is_direct = is_direct;
            self.was_direct |= is_direct;
            self.stream.read_directly(is_direct);
        }
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.task.abort();
    }
}
