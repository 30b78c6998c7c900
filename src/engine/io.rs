//! The connections of one node.

use crate::coordinator::ConnectionId;
use crate::protocol::NodeId;
use crate::sync::{contain, lock};
use crate::transport::Stream;
use crate::wire::NodeFailure;
use futures::future::BoxFuture;
use redis::RedisConnectionInfo;
use std::io;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

pub(super) type Opening =
    BoxFuture<'static, Result<(Box<dyn Stream>, RedisConnectionInfo), NodeFailure>>;

pub(super) struct NodeIo {
    pub(super) node: NodeId,
    pub(super) waker: Mutex<Option<Waker>>,
    /// True if the task was woken and has not run since.
    is_woken: AtomicBool,
    pub(super) connections: Mutex<Connections>,
    /// True if a stream takes no more bytes: it wakes the task once it does.
    pub(super) is_blocked: AtomicBool,
    /// True if a turn was not possible because another thread took one, which then wakes the task.
    pub(super) was_busy: AtomicBool,
}

#[derive(Default)]
pub(super) struct Connections {
    pub(super) opening: Vec<(ConnectionId, Opening)>,
    pub(super) open: Vec<OpenConnection>,
    /// Connections that were opened, and ones that failed.
    pub(super) opened: Vec<(ConnectionId, Result<RedisConnectionInfo, NodeFailure>)>,
    /// Bytes that were read, with the connection of each part.
    pub(super) received: Vec<u8>,
    pub(super) parts: Vec<(ConnectionId, Range<usize>)>,
    pub(super) lost: Vec<(ConnectionId, io::Error)>,
    /// True if callers have run since the last read.
    pub(super) has_gathered: bool,
}

pub(super) struct OpenConnection {
    pub(super) id: ConnectionId,
    pub(super) stream: Box<dyn Stream>,
    /// Bytes to write.
    pub(super) unsent: Vec<u8>,
}

impl NodeIo {
    pub(super) fn new(node: NodeId) -> Self {
        Self {
            node,
            waker: Mutex::default(),
            is_woken: AtomicBool::new(false),
            connections: Mutex::default(),
            is_blocked: AtomicBool::new(false),
            was_busy: AtomicBool::new(false),
        }
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.is_blocked.load(Ordering::Acquire)
    }

    /// The task runs, and is woken by `waker` from now on.
    pub(super) fn register(&self, waker: &Waker) {
        let mut known = lock(&self.waker);
        if !known.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *known = Some(waker.clone());
        }
        drop(known);
        self.is_woken.store(false, Ordering::SeqCst);
    }

    /// True if the task was woken and has not run since.
    pub(super) fn is_woken(&self) -> bool {
        self.is_woken.load(Ordering::SeqCst)
    }

    /// Wakes the task of the node.
    pub(super) fn wake(&self) {
        if self.is_woken.swap(true, Ordering::SeqCst) {
            return;
        }
        let waker = lock(&self.waker).clone();
        if let Some(waker) = waker {
            contain(|| waker.wake());
        }
    }
}
