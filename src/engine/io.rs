//! The connections of one node.

use crate::coordinator::ConnectionId;
use crate::protocol::{NodeId, Time};
use crate::sync::{contain, lock};
use crate::transport::Stream;
use crate::wire::NodeFailure;
use futures::future::BoxFuture;
use redis::RedisConnectionInfo;
use std::io;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;

pub(super) type Opening =
    BoxFuture<'static, Result<(Box<dyn Stream>, RedisConnectionInfo), NodeFailure>>;

pub(super) struct NodeIo {
    pub(super) node: NodeId,
    pub(super) waker: Mutex<Option<Waker>>,
    /// When the task was woken, if it has not run since, in nanoseconds; 0 otherwise.
    woken_at: AtomicU64,
    /// Number of tasks of the node that have ended or were replaced, which identifies the current one. Changes with the
    /// mutex of the engine held.
    generation: AtomicU64,
    pub(super) connections: Mutex<Connections>,
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
    /// True if the last read left a part for the next turn.
    pub(super) is_flooded: bool,
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
            woken_at: AtomicU64::new(0),
            generation: AtomicU64::new(0),
            connections: Mutex::default(),
            was_busy: AtomicBool::new(false),
        }
    }

    /// The task of `generation` runs, and is woken by `waker` from now on. Returns false if it was replaced.
    pub(super) fn register(&self, generation: u64, waker: &Waker) -> bool {
        let mut known = lock(&self.waker);
        // A task that replaces this one registers its waker after this one.
        if !self.is_current(generation) {
            return false;
        }
        if !known.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *known = Some(waker.clone());
        }
        drop(known);
        self.woken_at.store(0, Ordering::SeqCst);
        true
    }

    /// True if the task was woken and has not run since.
    pub(super) fn is_woken(&self) -> bool {
        self.woken_at().is_some()
    }

    /// When the task was woken, if it has not run since.
    pub(super) fn woken_at(&self) -> Option<Time> {
        let woken_at = self.woken_at.load(Ordering::SeqCst);
        (woken_at > 0).then(|| Time::from_nanos(woken_at))
    }

    /// Wakes the task of the node.
    pub(super) fn wake(&self, now: Time) {
        let woken_at = now.as_nanos().max(1);
        let order = Ordering::SeqCst;
        if self.woken_at.compare_exchange(0, woken_at, order, order).is_err() {
            return;
        }
        let waker = lock(&self.waker).clone();
        if let Some(waker) = waker {
            contain(|| waker.wake());
        }
    }

    /// A task starts at `now`. Returns its generation.
    pub(super) fn handle_start(&self, now: Time) -> u64 {
        self.woken_at.store(now.as_nanos().max(1), Ordering::SeqCst);
        self.generation.load(Ordering::SeqCst)
    }

    /// The current task has ended or is replaced. Returns its waker: a task that was replaced ends when it runs.
    pub(super) fn handle_end(&self) -> Option<Waker> {
        self.generation.fetch_add(1, Ordering::SeqCst);
        lock(&self.waker).take()
    }

    /// True if the task of `generation` has not ended and was not replaced.
    pub(super) fn is_current(&self, generation: u64) -> bool {
        self.generation.load(Ordering::SeqCst) == generation
    }
}
