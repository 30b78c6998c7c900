//! The five nodes of a scenario, real or in-process. Contains actions on the nodes, and observations as text.

use crate::{SOON, eventually, ms, secs};
use kit::{Cluster, Direction, Proxy, Server};
use quorlock::{AcquireError, Builder, Lease, NodeFailure, NodeReport, NodeVote, Redlock};
use quorlock_test::{Nodes, Trouble};
use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;
use tokio::runtime;

const COUNT: usize = 5;

const OTHER_VALUE: &str = "00000000000000000000000000000000:somebody else";

pub(crate) enum Fixture {
    /// Real servers, each behind a proxy that can delay requests.
    Real(Cluster, Vec<Proxy>),
    Double(Nodes),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    Hang,
    Resume,
    Kill,
    Restart,
    FillMemory,
    MakeReplica,
    Delay(Duration),
    StepAhead(Duration),
}

/// Runs `scenario` on real nodes and on in-process nodes. Asserts that both runs return the same observations.
#[allow(clippy::needless_pass_by_value, reason = "callers pass a closure")]
pub(crate) fn assert_same_observations(scenario: impl AsyncFn(&Fixture) -> Vec<String>) {
    assert_same_observations_on(Cluster::start(COUNT), &scenario);
}

/// Like [`assert_same_observations`], but the real nodes have clocks that the test can step.
#[cfg(target_os = "linux")]
#[allow(clippy::needless_pass_by_value, reason = "callers pass a closure")]
pub(crate) fn assert_same_observations_with_clocks(
    scenario: impl AsyncFn(&Fixture) -> Vec<String>,
) {
    assert_same_observations_on(Cluster::start_with(COUNT, &Server::builder().clock()), &scenario);
}

fn assert_same_observations_on(cluster: Cluster, scenario: &impl AsyncFn(&Fixture) -> Vec<String>) {
    let runtime = || {
        let mut builder = runtime::Builder::new_current_thread();
        builder.enable_all();
        builder
    };
    let proxies = cluster.iter().map(|server| Proxy::start(server.addr())).collect();
    let real = Fixture::Real(cluster, proxies);
    let expected = runtime().build().expect("a runtime").block_on(scenario(&real));
    drop(real);
    assert!(!expected.is_empty());
    let paused = runtime().start_paused(true).build().expect("a runtime");
    let observed = paused.block_on(async { scenario(&Fixture::Double(Nodes::start(COUNT))).await });
    assert_eq!(observed, expected, "left: in-process nodes; right: real nodes");
}

impl Fixture {
    pub(crate) fn client(&self) -> Redlock {
        self.builder().build().expect("valid settings")
    }

    pub(crate) fn builder(&self) -> Builder {
        let builder = match self {
            Self::Real(cluster, _) => Redlock::builder().nodes(cluster.urls()),
            Self::Double(nodes) => nodes.client(),
        };
        settings(builder)
    }

    /// Returns a builder for a client whose requests [`Action::Delay`] can delay. Real nodes are reached through their
    /// proxies.
    pub(crate) fn delayable_builder(&self) -> Builder {
        match self {
            Self::Real(_, proxies) => {
                settings(Redlock::builder().nodes(proxies.iter().map(Proxy::url)))
            }
            Self::Double(_) => self.builder(),
        }
    }

    pub(crate) fn apply(&self, which: Range<usize>, action: Action) {
        match self {
            Self::Real(cluster, proxies) => {
                for (server, proxy) in cluster[which.clone()].iter().zip(&proxies[which]) {
                    action.on_real(server, proxy);
                }
            }
            Self::Double(nodes) => action.on_double(&nodes.only(which)),
        }
    }

    pub(crate) fn hold(&self, which: Range<usize>, key: &str) {
        match self {
            Self::Real(cluster, _) => {
                for server in &cluster[which] {
                    server.cmd(&["SET", key, OTHER_VALUE, "PX", "600000"]);
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

    /// Returns the number of nodes that hold the key. Real nodes that are stopped or killed are not counted.
    pub(crate) fn count(&self, key: &str) -> usize {
        match self {
            Self::Real(cluster, _) => {
                let running = cluster.iter().filter(|it| it.is_running() && !it.is_stopped());
                running.filter(|server| server.get(key).is_some()).count()
            }
            Self::Double(nodes) => nodes.count(key),
        }
    }

    pub(crate) async fn wait_until_gone(&self, key: &str) {
        eventually("no node holds the key", || self.count(key) == 0).await;
    }

    pub(crate) async fn pass(&self, time: Duration) {
        match self {
            Self::Real(..) => tokio::time::sleep(time).await,
            Self::Double(nodes) => nodes.advance(time),
        }
    }

    pub(crate) async fn lease(&self, redlock: &Redlock, resource: &str) -> Lease {
        let lease = redlock.acquire(resource).wait(SOON).await.expect("the lock is free");
        wait_for_votes(&lease).await;
        lease
    }
}

fn settings(builder: Builder) -> Builder {
    builder.node_timeout(ms(2_000)).ttl(secs(30)).max_ttl(secs(3_600))
}

impl Action {
    fn on_real(self, server: &Server, proxy: &Proxy) {
        match self {
            Self::Hang => server.stop(),
            Self::Resume => server.cont(),
            Self::Kill => server.kill(),
            Self::Restart => server.restart(),
            Self::FillMemory => drop(server.cmd(&["CONFIG", "SET", "maxmemory", "1"])),
            Self::MakeReplica => drop(server.cmd(&["REPLICAOF", "127.0.0.1", "1"])),
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
            Self::MakeReplica => nodes.refuse(Trouble::ReadOnly),
            Self::Delay(by) => nodes.delay(by),
            Self::StepAhead(by) => nodes.step_ahead(by),
        }
    }
}

pub(crate) async fn wait_for_votes(lease: &Lease) {
    let is_pending = |node: &NodeReport| *node.vote() == NodeVote::Pending;
    eventually("all nodes have voted", || !lease.report().nodes().iter().any(is_pending)).await;
}

pub(crate) fn votes(lease: &Lease) -> String {
    lease.report().nodes().iter().map(vote).collect::<Vec<_>>().join(", ")
}

/// Describes a refusal: its kind, and the set of votes against the attempt. Pending votes are omitted, because they
/// depend on timing.
pub(crate) fn refusal(refused: &AcquireError) -> String {
    let kind = format!("{refused:?}");
    let kind = kind.split([' ', '(']).next().unwrap_or_default();
    let nodes = refused.report().expect("the nodes were asked").nodes();
    let opposing =
        nodes.iter().filter(|node| !matches!(node.vote(), NodeVote::Pending | NodeVote::Granted));
    let opposing: BTreeSet<_> = opposing.map(vote).collect();
    let (is_contended, is_unavailable) = (refused.is_contended(), refused.is_unavailable());
    format!("{kind} {is_contended} {is_unavailable} {opposing:?}")
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
