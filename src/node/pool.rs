//! The nodes' tasks, one set for each runtime that a client is used on.

use super::environment::Environment;
use super::links::Links;
use super::queued_command::QueuedCommand;
use super::runtime::{NoRuntime, lack};
use super::shared::NodeShared;
use super::task::NodeTask;
use crate::observe::Observers;
use crate::protocol::{NodeId, Quorum};
use crate::random::Random;
use crate::sync::lock;
use crate::time::Clock;
use std::future::poll_fn;
use std::pin::Pin;
use std::process;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// A node's mailbox on one runtime.
pub(crate) struct Node {
    shared: Arc<NodeShared>,
    mailbox: UnboundedSender<QueuedCommand>,
}

impl Node {
    fn start(shared: Arc<NodeShared>, links: Arc<Links>, runtime: &Handle) -> Self {
        let (mailbox, commands) = unbounded_channel();
        let task = NodeTask::new(shared.clone(), links, commands).run();
        runtime.spawn(shared.environment.task(task));
        Self { shared, mailbox }
    }

    /// Puts a command into the mailbox: never waits, never fails, from any thread. If the task is
    /// gone, a release is passed on and any other order's vote is Failed. A release that comes from
    /// elsewhere is offered to all tasks of the node: nobody knows whether this one is driven.
    fn send(&self, mut command: QueuedCommand, is_here: impl FnOnce() -> bool) {
        command.count_in(&self.shared.pending_releases);
        if command.can_be_released_by_others(self.shared.id) && !is_here() {
            self.shared.handover.leave(command);
        } else if let Err(refused) = self.mailbox.send(command) {
            self.shared.rescue(refused.0);
        }
    }
}

/// All nodes of a client, on one runtime.
pub(crate) struct Nodes {
    runtime: Handle,
    each: Box<[Node]>,
    links: Arc<Links>,
    environment: Environment,
    /// The process that they were made in.
    process: u32,
}

impl Nodes {
    /// Sends each node its order.
    pub(crate) fn send_each(&self, command: impl Fn(NodeId) -> QueuedCommand) {
        let mut is_here = None;
        for node in &self.each {
            node.send(command(node.shared.id), || *is_here.get_or_insert_with(|| self.are_here()));
        }
    }

    /// Sends one node its order.
    pub(crate) fn send(&self, node: NodeId, command: QueuedCommand) {
        self.each[node.index()].send(command, || self.are_here());
    }

    /// True if the caller is a task of their runtime, which is driven then.
    fn are_here(&self) -> bool {
        Handle::try_current().is_ok_and(|here| here.id() == self.runtime.id())
    }

    /// True if the caller was forked from the process that they are of, and has only copies of what was set by them.
    pub(crate) fn is_inherited(&self) -> bool {
        // Who is a task of theirs need not ask the operating system.
        !self.are_here() && self.process != process::id()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.each.iter().map(|node| &node.shared.name)
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// The client's clock.
    pub(crate) fn clock(&self) -> &Clock {
        &self.environment.clock
    }

    /// The client's source of randomness.
    pub(crate) fn random(&self) -> &Random {
        &self.environment.random
    }

    /// Who is told what happens.
    pub(crate) fn observers(&self) -> &Observers {
        &self.environment.observers
    }

    /// How far the connections are.
    pub(crate) fn links(&self) -> &Links {
        &self.links
    }

    /// Resolves when the runtime is shut down.
    pub(crate) async fn closed(&self) {
        let mut closed: Vec<_> =
            self.each.iter().map(|node| Box::pin(node.mailbox.closed())).collect();
        poll_fn(|cx| {
            let is_closed = closed.iter_mut().any(|one| Pin::new(one).poll(cx).is_ready());
            if is_closed { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// False once the runtime was shut down.
    pub(crate) fn is_open(&self) -> bool {
        self.each.iter().all(|node| !node.mailbox.is_closed())
    }
}

/// The sets of tasks of one client. Each runtime gets its own, started when it is first used there:
/// tasks of another runtime could be shut down, or not be polled, at any time.
pub(crate) struct Pool {
    shared: Arc<[Arc<NodeShared>]>,
    pinned: Option<Handle>,
    environment: Environment,
    live: Mutex<Vec<Arc<Nodes>>>,
}

impl Pool {
    /// The pool of these nodes; all on `pinned`, if it is given.
    pub(crate) fn new(
        shared: Box<[Arc<NodeShared>]>,
        pinned: Option<Handle>,
        environment: Environment,
    ) -> Self {
        Self { shared: shared.into(), pinned, environment, live: Mutex::default() }
    }

    pub(crate) fn environment(&self) -> &Environment {
        &self.environment
    }

    /// The client's clock.
    pub(crate) fn clock(&self) -> &Clock {
        &self.environment.clock
    }

    /// The client's source of randomness.
    pub(crate) fn random(&self) -> &Random {
        &self.environment.random
    }

    /// Who is told what happens.
    pub(crate) fn observers(&self) -> &Observers {
        &self.environment.observers
    }

    pub(crate) fn shared(&self) -> &[Arc<NodeShared>] {
        &self.shared
    }

    /// The nodes, for those who outlive the client. They keep no connection.
    pub(crate) fn all(&self) -> &Arc<[Arc<NodeShared>]> {
        &self.shared
    }

    /// True if only one runtime can serve the client.
    #[cfg(quorlock_coordinator)]
    pub(crate) fn is_pinned(&self) -> bool {
        self.pinned.is_some()
    }

    /// The current runtime, or the pinned one.
    pub(crate) fn runtime(&self) -> Result<Handle, NoRuntime> {
        let runtime = match &self.pinned {
            Some(pinned) => pinned.clone(),
            None => Handle::try_current().map_err(|_| NoRuntime::Absent)?,
        };
        // A world of a test's own has timers and sockets.
        let missing = if self.environment.is_world() { None } else { lack(&runtime) };
        missing.map_or(Ok(runtime), |missing| Err(NoRuntime::Lacks(missing)))
    }

    /// The nodes on the current runtime (or the pinned one); starts their tasks if need be.
    pub(crate) fn here(&self) -> Result<Arc<Nodes>, NoRuntime> {
        let runtime = self.runtime()?;
        let mut live = lock(&self.live);
        let known = live.iter().find(|nodes| nodes.runtime.id() == runtime.id());
        if let Some(nodes) = known.filter(|nodes| nodes.is_open()) {
            return Ok(nodes.clone());
        }
        live.retain(|nodes| nodes.is_open());
        let _entered = runtime.enter();
        let quorum = Quorum::majority(self.shared.len());
        let links =
            Arc::new(Links::new(quorum, self.shared[0].guard.clone(), self.clock().clone()));
        let start = |shared: &Arc<NodeShared>| Node::start(shared.clone(), links.clone(), &runtime);
        let each = self.shared.iter().map(start).collect();
        let environment = self.environment.clone();
        let process = process::id();
        let nodes = Arc::new(Nodes { runtime, each, links, environment, process });
        live.push(nodes.clone());
        Ok(nodes)
    }

    /// The client was closed: whoever waits for connections has a look.
    pub(crate) fn wake(&self) {
        lock(&self.live).iter().for_each(|nodes| nodes.links.wake());
    }

    /// The client was closed, and nothing is owed: its tasks end, and their connections.
    pub(crate) fn end(&self) {
        self.shared.iter().for_each(|node| node.handover.end());
    }

    /// `nodes` while their runtime lives, else those of the current one: after a fork as well. Outside of any runtime,
    /// `nodes` leave what they are sent to the tasks of other runtimes: nobody knows which are driven.
    pub(crate) fn open(&self, nodes: &Arc<Nodes>) -> Arc<Nodes> {
        if nodes.is_open() && !nodes.is_inherited() {
            return nodes.clone();
        }
        self.here().unwrap_or_else(|_| nodes.clone())
    }
}
