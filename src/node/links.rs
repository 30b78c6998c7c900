//! How far the connections of one runtime are: what a new client waits for, and what a node that
//! has not answered can be said to have done.

use super::guard::Guard;
use crate::protocol::{NodeId, Quorum};
use crate::time::Clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use tokio::sync::Notify;

/// Where one connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It is being made, for the first time or anew.
    Connecting,
    Up,
    /// It is up, but a command has been left without an answer for longer than the node timeout.
    Stalled,
    /// It could not be made, and is tried again and again.
    Down,
}

/// The connections of one runtime to all nodes, by bit.
pub(crate) struct Links {
    quorum: Quorum,
    up: AtomicU32,
    /// Nodes that owe an answer for longer than the node timeout, or whose connection was given up for
    /// that.
    silent: AtomicU32,
    /// Nodes that a connection was made to, or failed to be made to, since this runtime began.
    tried: AtomicU32,
    /// Which nodes may have forgotten something.
    guard: Arc<Guard>,
    clock: Clock,
    /// True once a quorum has been up, or every node has been tried, and it is known whom to count: it
    /// stays true.
    is_warm: AtomicBool,
    changed: Notify,
}

impl Links {
    pub(super) fn new(quorum: Quorum, guard: Arc<Guard>, clock: Clock) -> Self {
        Self {
            quorum,
            guard,
            clock,
            up: AtomicU32::new(0),
            silent: AtomicU32::new(0),
            tried: AtomicU32::new(0),
            is_warm: AtomicBool::new(false),
            changed: Notify::new(),
        }
    }

    /// The connection to `node` is in `phase` now.
    pub(super) fn note(&self, node: NodeId, phase: Phase) {
        let is_up = matches!(phase, Phase::Up | Phase::Stalled);
        set(&self.up, node, is_up);
        if phase != Phase::Connecting {
            self.tried.fetch_or(node.bit(), Ordering::AcqRel);
        }
        self.changed.notify_waiters();
    }

    /// True while a quorum of the nodes is connected.
    pub(crate) fn has_quorum(&self) -> bool {
        let up = self.up.load(Ordering::Acquire).count_ones() as usize;
        self.quorum.reached(up)
    }

    /// True once an attempt is worth while: a quorum has been connected, or it is known of each node
    /// that it cannot be connected to; and it is clear which of them count.
    pub(crate) fn is_warm(&self) -> bool {
        if self.is_warm.load(Ordering::Acquire) {
            return true;
        }
        let tried = self.tried.load(Ordering::Acquire).count_ones() as usize;
        let is_warm = (tried == self.quorum.nodes() || self.has_quorum())
            && self.guard.is_settled(self.clock.now());
        self.is_warm.fetch_or(is_warm, Ordering::AcqRel);
        is_warm
    }

    /// True if `node` is connected.
    pub(crate) fn is_up(&self, node: NodeId) -> bool {
        self.up.load(Ordering::Acquire) & node.bit() != 0
    }

    /// Whether `node` owes an answer for longer than the node timeout.
    pub(super) fn note_silence(&self, node: NodeId, is_silent: bool) {
        set(&self.silent, node, is_silent);
    }

    /// True if `node` was seen to leave a command without an answer: all that it has answered has
    /// been read.
    pub(crate) fn is_silent(&self, node: NodeId) -> bool {
        self.silent.load(Ordering::Acquire) & node.bit() != 0
    }

    /// True if a quorum is silent.
    pub(super) fn is_quorum_silent(&self) -> bool {
        let silent = self.silent.load(Ordering::Acquire).count_ones() as usize;
        self.quorum.reached(silent)
    }

    /// Lets everybody who waits have a look.
    pub(super) fn wake(&self) {
        self.changed.notify_waiters();
    }

    /// Resolves when `condition` holds.
    ///
    /// # Cancel safety
    /// The future can be dropped and made anew at any time.
    pub(crate) async fn wait_for(&self, condition: impl Fn(&Self) -> bool) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if condition(self) {
                return;
            }
            changed.await;
        }
    }
}

fn set(word: &AtomicU32, node: NodeId, on: bool) {
    if on {
        word.fetch_or(node.bit(), Ordering::AcqRel);
    } else {
        word.fetch_and(!node.bit(), Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::RestartGuard;
    use std::time::Duration;

    #[test]
    fn it_is_warm_when_a_quorum_is_up_or_every_node_was_tried() {
        let node = NodeId::new;
        let guard = || {
            let second = Duration::from_secs(1);
            Arc::new(Guard::new(Quorum::majority(3), RestartGuard::Off, second))
        };
        let links = Links::new(Quorum::majority(3), guard(), Clock::default());
        links.note(node(0), Phase::Up);
        links.note(node(1), Phase::Connecting);
        assert!(!links.is_warm() && !links.has_quorum());
        links.note(node(1), Phase::Stalled);
        assert!(links.is_warm() && links.has_quorum());
        links.note_silence(node(1), true);
        assert!(links.is_up(node(1)) && links.is_silent(node(1)) && !links.is_silent(node(0)));
        assert!(!links.is_quorum_silent());
        links.note_silence(node(2), true);
        assert!(links.is_quorum_silent());
        links.note(node(1), Phase::Connecting);
        assert!(links.is_warm() && !links.has_quorum(), "it stays warm");

        let dead = Links::new(Quorum::majority(3), guard(), Clock::default());
        for index in 0..3 {
            assert!(!dead.is_warm());
            dead.note(node(index), Phase::Down);
        }
        assert!(dead.is_warm() && !dead.has_quorum(), "waiting does not help");
    }
}
