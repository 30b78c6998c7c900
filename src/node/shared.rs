//! What all tasks of one node have in common, over all runtimes.

use super::clocks::Clocks;
use super::environment::Environment;
use super::guard::Guard;
use super::handover::Handover;
use super::login::Login;
use super::push::PushSink;
use super::queued_command::QueuedCommand;
use super::timer_clock::{Moment, TimerClock};
use crate::observe::NodeState;
use crate::protocol::{NodeId, Time};
use crate::sync::{contain, lock};
use crate::transport::{Address, Stream};
use crate::wire::{Invalidations, Missing, NodeFailure, Omissions, ServerInfo};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long a node may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timings {
    /// To answer a command.
    pub(crate) answer: Duration,
    /// To be connected to, set-up included.
    pub(crate) connect: Duration,
}

/// Where a node is, and what leads there.
pub(crate) struct Endpoint {
    /// The address, to be shown.
    pub(crate) name: Arc<str>,
    pub(crate) address: Address,
    pub(crate) login: Login,
    pub(crate) environment: Environment,
}

/// One node of one client.
pub(crate) struct NodeShared {
    pub(crate) id: NodeId,
    pub(crate) name: Arc<str>,
    pub(super) timings: Timings,
    pub(super) timer: TimerClock,
    pub(super) omissions: Mutex<Omissions>,
    pub(super) siblings: Arc<Siblings>,
    pub(super) pushes: Arc<dyn PushSink>,
    /// What nodes may have forgotten.
    pub(super) guard: Arc<Guard>,
    pub(super) clocks: Arc<Clocks>,
    address: Address,
    pub(crate) login: Login,
    pub(super) environment: Environment,
    pub(super) status: Mutex<(NodeState, ServerInfo)>,
    pub(super) handover: Handover,
    /// Releases that were asked for and not yet delivered, over all runtimes.
    pub(super) pending_releases: Arc<AtomicUsize>,
    /// Those of them that have to be written again.
    pub(super) owed_releases: AtomicUsize,
    /// How many connections there are, over all runtimes.
    pub(super) connections: AtomicUsize,
}

impl NodeShared {
    pub(crate) fn new(
        id: NodeId,
        endpoint: Endpoint,
        timings: Timings,
        siblings: Arc<Siblings>,
        pushes: Arc<dyn PushSink>,
        guard: Arc<Guard>,
        clocks: Arc<Clocks>,
    ) -> Self {
        let Endpoint { name, address, login, environment } = endpoint;
        Self {
            id,
            name,
            timings,
            timer: environment.timer_clock(),
            omissions: Mutex::default(),
            siblings,
            pushes,
            guard,
            clocks,
            address,
            login,
            environment,
            status: Mutex::new((NodeState::Connecting, ServerInfo::default())),
            handover: Handover::default(),
            pending_releases: Arc::default(),
            owed_releases: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
        }
    }

    #[cfg(quorlock_coordinator)]
    pub(crate) fn hints(&self) -> (&'static str, &'static str) {
        (self.address.hint_if_closed(), self.address.hint_if_silent())
    }

    /// A new stream to the node.
    pub(crate) async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        self.environment.transport.connect(&self.address).await
    }

    /// Reason of a failed connection that the server closed before its first reply.
    pub(super) fn closed_without_reply(&self) -> String {
        format!("closed by the server without a reply to HELLO 3{}", self.address.hint_if_closed())
    }

    /// The failure of a connection that was not set up within the connect timeout.
    pub(super) fn connect_timeout(&self, missing: Missing) -> NodeFailure {
        let hint = match missing {
            Missing::Unknown => self.address.hint_if_silent().to_owned(),
            Missing::Rest => ": no reply to a command".to_owned(),
            Missing::Of(optional) => format!(": no reply to {optional}"),
        };
        NodeFailure::Unreachable(format!("timeout while connecting{hint}").into())
    }

    /// What time it is by the client's clock.
    pub(super) fn now(&self) -> Time {
        self.environment.clock.now()
    }

    /// What time it is, by both clocks that matter to a connection.
    pub(super) fn moment(&self) -> Moment {
        Moment { ours: self.now(), timer: self.timer.now() }
    }

    /// Any number, for jitter.
    pub(super) fn random(&self) -> u64 {
        self.environment.random.number()
    }

    /// How many releases this node is still owed.
    pub(crate) fn pending_releases(&self) -> usize {
        self.pending_releases.load(Ordering::Acquire)
    }

    pub(crate) fn status(&self) -> (NodeState, ServerInfo) {
        lock(&self.status).clone()
    }

    pub(super) fn set_state(&self, state: NodeState) {
        lock(&self.status).0 = state;
    }

    pub(super) fn set_info(&self, info: ServerInfo) {
        lock(&self.status).1 = info;
    }

    /// Tells who waits that keys have changed.
    pub(super) fn pass_on(&self, pushed: Invalidations) {
        if pushed.flushed {
            self.guard.handle_flush(self.id, self.now());
        }
        if pushed.flushed || pushed.overflowed {
            self.tell(None);
        }
        for key in pushed.keys {
            self.tell(Some(&key));
        }
    }

    /// Tells who waits that something happened to `key`, or to any. A waker of theirs that panics
    /// takes nothing else with it.
    pub(super) fn tell(&self, key: Option<&[u8]>) {
        contain(|| self.pushes.handle_push(self.id, key));
    }

    /// Takes a command whose task is gone. A release goes to whichever task of another runtime can
    /// write it first, or waits for one; so does an extension, if there is a task. Anything else has
    /// failed: a repair, too, as the lease's release could be faster by another connection.
    pub(super) fn rescue(&self, mut command: QueuedCommand) {
        if command.is_void(self.id, self.now()) {
            return command.answer_void(self.id);
        }
        if command.was_written() {
            // It may have run: what it finds when it is repeated says nothing.
            self.fail(&mut command, NodeFailure::ShutDown);
        }
        if command.is_release() || (command.is_extension() && self.handover.is_served()) {
            self.handover.leave(command);
        } else {
            self.fail(&mut command, NodeFailure::ShutDown);
        }
    }
}

/// The servers behind the nodes of one client, by run id: two nodes must not be one server.
pub(crate) struct Siblings {
    names: Vec<Arc<str>>,
    run_ids: Mutex<Vec<Option<Arc<str>>>>,
}

impl Siblings {
    pub(crate) fn new(names: Vec<Arc<str>>) -> Self {
        let run_ids = Mutex::new(vec![None; names.len()]);
        Self { names, run_ids }
    }

    /// Enters `node` as the server `run_id`, unless another node is that server.
    pub(super) fn enter(&self, node: NodeId, run_id: &Arc<str>) -> Result<(), NodeFailure> {
        let mut run_ids = lock(&self.run_ids);
        let other = run_ids.iter().position(|known| known.as_ref() == Some(run_id));
        match other {
            Some(other) if other != node.index() => {
                // Its address does not lead to where it led before. That server is free for the
                // other node: the two may have swapped their addresses.
                run_ids[node.index()] = None;
                Err(NodeFailure::SameServer(self.names[other].clone()))
            }
            _ => {
                run_ids[node.index()] = Some(run_id.clone());
                Ok(())
            }
        }
    }
}
