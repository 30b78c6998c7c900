//! The connections of one node.

use crate::coordinator::ConnectionId;
use crate::protocol::NodeId;
use crate::sync::{contain, lock};
use crate::transport::Stream;
use crate::wire::NodeFailure;
use futures::future::BoxFuture;
use redis::RedisConnectionInfo;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

pub(super) type Opening =
    BoxFuture<'static, Result<(Box<dyn Stream>, RedisConnectionInfo), NodeFailure>>;

pub(super) struct NodeIo {
    pub(super) node: NodeId,
    pub(super) waker: Mutex<Option<Waker>>,
    pub(super) connections: Mutex<Connections>,
    /// True if a stream takes no more bytes: it wakes the task once it does.
    pub(super) is_blocked: AtomicBool,
    /// True if the task could not take its turn, because another thread took one.
    pub(super) is_missed: AtomicBool,
}

#[derive(Default)]
pub(super) struct Connections {
    pub(super) opening: Vec<(ConnectionId, Opening)>,
    pub(super) open: Vec<(ConnectionId, Box<dyn Stream>)>,
    pub(super) buffer: Vec<u8>,
    /// True if callers have run since the last read.
    pub(super) has_gathered: bool,
    /// True if the last write was not possible.
    pub(super) is_blocked: bool,
}

impl NodeIo {
    pub(super) fn new(node: NodeId) -> Self {
        let (waker, connections) = (Mutex::default(), Mutex::default());
        let (is_blocked, is_missed) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { node, waker, connections, is_blocked, is_missed }
    }

    pub(super) fn node(&self) -> NodeId {
        self.node
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.is_blocked.load(Ordering::Acquire)
    }

    pub(super) fn register(&self, waker: &Waker) {
        let mut known = lock(&self.waker);
        if !known.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *known = Some(waker.clone());
        }
    }

    /// Wakes the task of the node.
    pub(super) fn wake(&self) {
        let waker = lock(&self.waker).clone();
        if let Some(waker) = waker {
            contain(|| waker.wake());
        }
    }
}
