//! The nodes' tasks, one set for each runtime that a client is used on.

use super::actor::Actor;
use super::order::Order;
use super::shared::{NodeShared, lock};
use crate::protocol::NodeId;
use std::sync::{Arc, Mutex};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// There is no tokio runtime to run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRuntime;

/// A node's mailbox on one runtime.
pub(crate) struct Node {
    shared: Arc<NodeShared>,
    mailbox: UnboundedSender<Order>,
}

impl Node {
    fn start(shared: Arc<NodeShared>, runtime: &Handle) -> Self {
        let (mailbox, orders) = unbounded_channel();
        shared.enter(&mailbox);
        runtime.spawn(Actor::new(shared.clone(), orders).run());
        Self { shared, mailbox }
    }

    /// Puts an order into the mailbox: never waits, never fails, from any thread. If the task is
    /// gone, a release is passed on and any other order's vote is Failed.
    fn send(&self, mut order: Order) {
        order.count_in(&self.shared.debts);
        if let Err(refused) = self.mailbox.send(order) {
            self.shared.rescue(refused.0);
        }
    }
}

/// All nodes of a client, on one runtime.
pub(crate) struct Nodes {
    runtime: Handle,
    nodes: Box<[Node]>,
}

impl Nodes {
    /// Sends each node its order.
    pub(crate) fn send_each(&self, order: impl Fn(NodeId) -> Order) {
        for node in &self.nodes {
            node.send(order(node.shared.id));
        }
    }

    /// Sends one node its order.
    pub(crate) fn send(&self, node: NodeId, order: Order) {
        self.nodes[node.index()].send(order);
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.nodes.iter().map(|node| &node.shared.name)
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// False once the runtime was shut down.
    pub(crate) fn is_open(&self) -> bool {
        self.nodes.iter().all(|node| !node.mailbox.is_closed())
    }
}

/// The sets of tasks of one client. Each runtime gets its own, started when it is first used there:
/// tasks of another runtime could be shut down, or not be polled, at any time.
pub(crate) struct Pool {
    shared: Box<[Arc<NodeShared>]>,
    pinned: Option<Handle>,
    live: Mutex<Vec<Arc<Nodes>>>,
}

impl Pool {
    /// The pool of these nodes; all on `pinned`, if it is given.
    pub(crate) fn new(shared: Box<[Arc<NodeShared>]>, pinned: Option<Handle>) -> Self {
        Self { shared, pinned, live: Mutex::default() }
    }

    pub(crate) fn shared(&self) -> &[Arc<NodeShared>] {
        &self.shared
    }

    /// The current runtime, or the pinned one.
    pub(crate) fn runtime(&self) -> Result<Handle, NoRuntime> {
        match &self.pinned {
            Some(pinned) => Ok(pinned.clone()),
            None => Handle::try_current().map_err(|_| NoRuntime),
        }
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
        let nodes = self.shared.iter().map(|shared| Node::start(shared.clone(), &runtime));
        let nodes = Arc::new(Nodes { nodes: nodes.collect(), runtime });
        live.push(nodes.clone());
        Ok(nodes)
    }

    /// `nodes` while their runtime lives, else those of the current one, or of any that lives.
    pub(crate) fn open(&self, nodes: &Arc<Nodes>) -> Arc<Nodes> {
        if nodes.is_open() {
            return nodes.clone();
        }
        self.here().unwrap_or_else(|NoRuntime| {
            let live = lock(&self.live);
            live.iter().find(|nodes| nodes.is_open()).unwrap_or(nodes).clone()
        })
    }
}
