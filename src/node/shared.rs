//! What all tasks of one node have in common, over all runtimes.

use super::DOUBT;
use super::connection::ServerInfo;
use super::failure::NodeFailure;
use super::order::Order;
use super::push::PushSink;
use super::quarantine::Quarantine;
use super::suspects::Suspects;
use crate::protocol::NodeId;
use redis::io::tcp::TcpSettings;
use redis::{ConnectionInfo, ProtocolVersion};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedSender, WeakUnboundedSender};

/// The most releases kept for a node while no task of it runs (I12); beyond, the oldest is dropped,
/// and its key lives for its ttl.
const MOST_LEFT: usize = 1 << 16;

/// How long a node may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timings {
    /// To answer a command.
    pub(crate) answer: Duration,
    /// To be connected to, set-up included.
    pub(crate) connect: Duration,
}

/// Where a node is.
#[derive(Clone)]
pub(crate) struct Endpoint {
    /// The address, without user and password.
    pub(crate) name: Arc<str>,
    pub(crate) info: ConnectionInfo,
}

/// How a client stands with one of its nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeState {
    /// Not connected yet: nothing has been asked of it, or the first connection is being made.
    Connecting,
    /// Connected, and answering.
    Up,
    /// Connected, but it has left a command without an answer for longer than the node timeout. It
    /// is not asked to grant anything until it answers.
    Stalled,
    /// Not connected, for this reason. Connecting is tried again and again in the background.
    Down(NodeFailure),
}

/// One node of one client.
pub(crate) struct NodeShared {
    pub(crate) id: NodeId,
    pub(crate) name: Arc<str>,
    pub(super) timings: Timings,
    /// Learnt from a refused `HELLO`.
    pub(super) speaks_resp2: AtomicBool,
    pub(super) siblings: Arc<Siblings>,
    pub(super) pushes: Arc<dyn PushSink>,
    /// What it may have forgotten.
    pub(super) quarantine: Quarantine,
    pub(super) suspects: Arc<Suspects>,
    info: ConnectionInfo,
    status: Mutex<(NodeState, ServerInfo)>,
    estate: Mutex<Estate>,
    /// True if the estate has broken connections: looked at before each write.
    has_broken: AtomicBool,
    /// Releases that were asked for and not yet delivered, over all runtimes.
    pub(super) debts: Arc<AtomicUsize>,
}

/// What the tasks of shut-down runtimes left behind, and who may take it on.
#[derive(Default)]
struct Estate {
    releases: VecDeque<Order>,
    broken: Vec<Broken>,
    tasks: Vec<WeakUnboundedSender<Order>>,
}

/// A connection that broke with commands unanswered: they may still run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Broken {
    pub(super) run_id: Option<Arc<str>>,
    pub(super) client_id: Option<i64>,
}

impl NodeShared {
    pub(crate) fn new(
        id: NodeId,
        endpoint: Endpoint,
        timings: Timings,
        siblings: Arc<Siblings>,
        pushes: Arc<dyn PushSink>,
        quarantine: Quarantine,
        suspects: Arc<Suspects>,
    ) -> Self {
        Self {
            id,
            name: endpoint.name,
            timings,
            speaks_resp2: AtomicBool::new(false),
            siblings,
            pushes,
            quarantine,
            suspects,
            info: endpoint.info,
            status: Mutex::new((NodeState::Connecting, ServerInfo::default())),
            estate: Mutex::default(),
            has_broken: AtomicBool::new(false),
            debts: Arc::default(),
        }
    }

    /// Where and how to make a new connection that speaks `protocol`.
    pub(super) fn info(&self, protocol: ProtocolVersion) -> ConnectionInfo {
        let redis = self.info.redis_settings().clone().set_protocol(protocol);
        let redis = redis.set_lib_name(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        let tcp = with_our_timings(self.info.tcp_settings().clone());
        self.info.clone().set_redis_settings(redis).set_tcp_settings(tcp)
    }

    /// How many releases this node is still owed.
    pub(crate) fn debts(&self) -> usize {
        self.debts.load(Ordering::Acquire)
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

    /// Enters a task that can deliver what others leave behind; gives it what has been left.
    pub(super) fn enter(&self, mailbox: &UnboundedSender<Order>) {
        let mut estate = lock(&self.estate);
        estate.tasks.retain(|task| task.upgrade().is_some_and(|task| !task.is_closed()));
        estate.tasks.push(mailbox.downgrade());
        for order in std::mem::take(&mut estate.releases) {
            // The task has just been made, so its mailbox is open.
            let _ = mailbox.send(order);
        }
    }

    /// Takes an order whose task is gone. A release goes to another runtime's task, or waits for
    /// the next one; anything else has failed.
    pub(super) fn rescue(&self, mut order: Order) {
        order.fail(NodeFailure::ShutDown);
        if !order.is_release() {
            return;
        }
        let mut estate = lock(&self.estate);
        for task in estate.tasks.iter().filter_map(WeakUnboundedSender::upgrade) {
            match task.send(order) {
                Ok(()) => return,
                Err(refused) => order = refused.0,
            }
        }
        estate.releases.push_back(order);
        if estate.releases.len() > MOST_LEFT {
            estate.releases.pop_front();
        }
    }

    pub(super) fn note_broken(&self, broken: Broken) {
        lock(&self.estate).broken.push(broken);
        self.has_broken.store(true, Ordering::Release);
    }

    /// True if there are broken connections that nobody has seen to.
    pub(super) fn has_broken(&self) -> bool {
        self.has_broken.load(Ordering::Acquire)
    }

    /// The connections that broke and may still deliver something.
    pub(super) fn broken(&self) -> Vec<Broken> {
        lock(&self.estate).broken.clone()
    }

    pub(super) fn forget_broken(&self, seen_to: &[Broken]) {
        let mut estate = lock(&self.estate);
        estate.broken.retain(|broken| !seen_to.contains(broken));
        self.has_broken.store(!estate.broken.is_empty(), Ordering::Release);
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

/// Our defaults for what the owner of the client left open.
fn with_our_timings(tcp: TcpSettings) -> TcpSettings {
    let tcp = tcp.set_nodelay(true);
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let tcp = if tcp.user_timeout().is_none() { tcp.set_user_timeout(DOUBT) } else { tcp };
    tcp
}

/// No code panics while it holds one of these locks; if it did, what they guard would still be
/// whole.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
