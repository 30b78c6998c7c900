//! Five nodes, real or not: what is done to them, and how what came of it is told.

use crate::{SOON, eventually, ms, secs};
use kit::{Cluster, Direction, Proxy, Server};
use quorlock::{AcquireError, Builder, Lease, NodeFailure, NodeReport, NodeVote, Redlock};
use quorlock_test::{Nodes, Trouble};
use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;
use tokio::runtime;

const COUNT: usize = 5;

/// What somebody else sets.
const THEIRS: &str = "00000000000000000000000000000000:somebody else";

/// The nodes of one play.
pub(crate) enum Stage {
    /// Servers, each behind a proxy.
    Real(Cluster, Vec<Proxy>),
    Double(Nodes),
}

/// What is done to some nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    Hang,
    Resume,
    Kill,
    Restart,
    FillMemory,
    Follow,
    Delay(Duration),
    StepAhead(Duration),
}

/// Plays `scene` on real nodes and on those in the process, and compares what is told of it.
#[allow(clippy::needless_pass_by_value, reason = "a scene is written where it is played")]
pub(crate) fn same(scene: impl AsyncFn(&Stage) -> Vec<String>) {
    same_after(Cluster::start(COUNT), &scene);
}

/// The same, with real nodes whose clocks can be moved.
#[cfg(target_os = "linux")]
#[allow(clippy::needless_pass_by_value, reason = "a scene is written where it is played")]
pub(crate) fn same_with_clocks(scene: impl AsyncFn(&Stage) -> Vec<String>) {
    same_after(Cluster::start_with(COUNT, &Server::builder().clock()), &scene);
}

fn same_after(cluster: Cluster, scene: &impl AsyncFn(&Stage) -> Vec<String>) {
    let runtime = || {
        let mut builder = runtime::Builder::new_current_thread();
        builder.enable_all();
        builder
    };
    let proxies = cluster.iter().map(|server| Proxy::start(server.addr())).collect();
    let real = Stage::Real(cluster, proxies);
    let expected = runtime().build().expect("a runtime").block_on(scene(&real));
    drop(real);
    assert!(!expected.is_empty());
    let paused = runtime().start_paused(true).build().expect("a runtime");
    let told = paused.block_on(async { scene(&Stage::Double(Nodes::start(COUNT))).await });
    assert_eq!(told, expected, "on real nodes: right");
}

impl Stage {
    pub(crate) fn client(&self) -> Redlock {
        self.builder().build().expect("good settings")
    }

    pub(crate) fn builder(&self) -> Builder {
        let builder = match self {
            Self::Real(cluster, _) => Redlock::builder().nodes(cluster.urls()),
            Self::Double(nodes) => nodes.client(),
        };
        settings(builder)
    }

    /// By a way that can be made slow.
    pub(crate) fn slow_way(&self) -> Builder {
        match self {
            Self::Real(_, proxies) => {
                settings(Redlock::builder().nodes(proxies.iter().map(Proxy::url)))
            }
            Self::Double(_) => self.builder(),
        }
    }

    pub(crate) fn act(&self, which: Range<usize>, act: Act) {
        match self {
            Self::Real(cluster, proxies) => {
                for (server, proxy) in cluster[which.clone()].iter().zip(&proxies[which]) {
                    act.on_real(server, proxy);
                }
            }
            Self::Double(nodes) => act.on_double(&nodes.only(which)),
        }
    }

    /// Somebody else holds it.
    pub(crate) fn hold(&self, which: Range<usize>, key: &str) {
        match self {
            Self::Real(cluster, _) => {
                for server in &cluster[which] {
                    server.cmd(&["SET", key, THEIRS, "PX", "600000"]);
                }
            }
            Self::Double(nodes) => nodes.only(which).hold(key, secs(600)),
        }
    }

    pub(crate) fn remove(&self, which: Range<usize>, key: &str) {
        match self {
            Self::Real(cluster, _) => cluster[which].iter().for_each(|server| {
                server.del(key);
            }),
            Self::Double(nodes) => nodes.only(which).remove(key),
        }
    }

    /// On how many of all nodes the key stands; of real ones, those that are well.
    pub(crate) fn count(&self, key: &str) -> usize {
        match self {
            Self::Real(cluster, _) => {
                let well = cluster.iter().filter(|it| it.is_running() && !it.is_stopped());
                well.filter(|server| server.get(key).is_some()).count()
            }
            Self::Double(nodes) => nodes.count(key),
        }
    }

    pub(crate) async fn gone(&self, key: &str) {
        eventually("the key is gone everywhere", || self.count(key) == 0).await;
    }

    /// Time passes.
    pub(crate) async fn pass(&self, time: Duration) {
        match self {
            Self::Real(..) => tokio::time::sleep(time).await,
            Self::Double(nodes) => nodes.advance(time),
        }
    }

    /// A lease, when all nodes have told how they vote.
    pub(crate) async fn lease(&self, redlock: &Redlock, resource: &str) -> Lease {
        let lease = redlock.acquire(resource).wait(SOON).await.expect("a free lock");
        all_told(&lease).await;
        lease
    }
}

fn settings(builder: Builder) -> Builder {
    builder.node_timeout(ms(1_000)).ttl(secs(30)).max_ttl(secs(3_600))
}

impl Act {
    fn on_real(self, server: &Server, proxy: &Proxy) {
        match self {
            Self::Hang => server.stop(),
            Self::Resume => server.cont(),
            Self::Kill => server.kill(),
            Self::Restart => server.restart(),
            Self::FillMemory => drop(server.cmd(&["CONFIG", "SET", "maxmemory", "1"])),
            Self::Follow => drop(server.cmd(&["REPLICAOF", "127.0.0.1", "1"])),
            Self::Delay(by) => proxy.delay(Direction::Requests, by),
            Self::StepAhead(by) => server.clock().jump(by),
        }
    }

    fn on_double(self, nodes: &Nodes) {
        match self {
            Self::Hang => nodes.hang(),
            Self::Resume => nodes.resume(),
            Self::Kill => nodes.kill(),
            Self::Restart => nodes.restart(),
            Self::FillMemory => nodes.refuse(Trouble::OutOfMemory),
            Self::Follow => nodes.refuse(Trouble::ReadOnly),
            Self::Delay(by) => nodes.delay(by),
            Self::StepAhead(by) => nodes.step_ahead(by),
        }
    }
}

/// Waits until all nodes have told how they vote.
pub(crate) async fn all_told(lease: &Lease) {
    let is_pending = |node: &NodeReport| *node.vote() == NodeVote::Pending;
    eventually("all have voted", || !lease.report().nodes().iter().any(is_pending)).await;
}

/// How each node voted.
pub(crate) fn votes(lease: &Lease) -> String {
    lease.report().nodes().iter().map(vote).collect::<Vec<_>>().join(", ")
}

/// How it was refused, and what speaks against it. Who had not voted by then does not count.
pub(crate) fn refusal(refused: &AcquireError) -> String {
    let kind = format!("{refused:?}");
    let kind = kind.split([' ', '(']).next().unwrap_or_default();
    let nodes = refused.report().expect("the nodes were asked").nodes();
    let against =
        nodes.iter().filter(|node| !matches!(node.vote(), NodeVote::Pending | NodeVote::Granted));
    let against: BTreeSet<_> = against.map(vote).collect();
    let (is_contended, is_unavailable) = (refused.is_contended(), refused.is_unavailable());
    format!("{kind} {is_contended} {is_unavailable} {against:?}")
}

fn vote(node: &NodeReport) -> String {
    let NodeVote::Failed(failure) = node.vote() else {
        let holder = node.holder().and_then(|holder| holder.metadata());
        return format!("{:?} {}", node.vote(), holder.unwrap_or_default());
    };
    match failure {
        NodeFailure::Timeout(_) => "timeout".to_owned(),
        NodeFailure::Stalled(_) => "stalled".to_owned(),
        NodeFailure::Restarted { .. } => "restarted".to_owned(),
        NodeFailure::Suspect { .. } => "suspect".to_owned(),
        other => other.to_string(),
    }
}
