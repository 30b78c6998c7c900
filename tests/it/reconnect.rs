//! Tests with connections that are closed while they are idle, under load, all at once, or in the middle of a reply.

use crate::late_packets::deliver_all;
use crate::quorum::Holds;
use crate::{SOON, builder, client, eventually, is_up, ms, through};
use kit::{Cluster, Direction, Proxy, Server};
use quorlock::{
    AcquireError, NodeFailure, NodeState, NodeVote, Redlock, ReleaseError, ReleaseOutcome,
    RetryPolicy,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Returns the IDs of the server's TCP connections. The test kit's own connection is not among them, because it uses a
/// Unix socket.
fn connections(server: &Server) -> BTreeSet<String> {
    let clients = server.clients().into_iter();
    clients.filter_map(|client| client.split(' ').next().map(str::to_owned)).collect()
}

fn close_connections(server: &Server) {
    server.cmd(&["CLIENT", "KILL", "TYPE", "normal"]);
}

/// Acquires and releases locks until all nodes have granted the same lease.
async fn lock_on_all(redlock: &Redlock, cluster: &Cluster) {
    let started = Instant::now();
    loop {
        let lease = redlock.acquire("all").wait(SOON).await.expect("the lock is free");
        let is_pending = || {
            let report = lease.report();
            report.nodes().iter().any(|node| *node.vote() == NodeVote::Pending)
        };
        eventually("all nodes have voted", || !is_pending()).await;
        let granted = lease.report().granted();
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released), "a quorum is up");
        if granted == cluster.len() {
            break;
        }
        assert!(started.elapsed() < SOON, "only {granted} nodes have granted");
        tokio::time::sleep(ms(5)).await;
    }
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn idle_connections_closed_by_servers_are_replaced() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    lock_on_all(&redlock, &cluster).await;
    for _ in 0..2 {
        // The client replaces a short-lived connection only after a pause.
        tokio::time::sleep(ms(1_100)).await;
        let before: Vec<_> = cluster.iter().map(connections).collect();
        cluster.iter().for_each(close_connections);
        eventually("each node has a new connection", || {
            cluster.iter().zip(&before).all(|(node, before)| {
                let now = connections(node);
                now.len() == 1 && now.is_disjoint(before)
            })
        })
        .await;
        let lease = redlock.try_acquire("r").await.expect("all nodes are connected");
        eventually("all nodes have granted", || lease.report().granted() == 3).await;
        assert_eq!(lease.release().await.expect("nodes are up"), ReleaseOutcome::Released);
    }
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn lease_survives_its_connections() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let lease = redlock.try_acquire("r").await.expect("the lock is free");
    eventually("all nodes have granted", || lease.report().granted() == 3).await;
    cluster.iter().for_each(close_connections);
    let extended = async || lease.extend(ms(90_000)).await.is_ok();
    let started = Instant::now();
    while !extended().await {
        assert!(lease.is_valid() && started.elapsed() < SOON, "{:?}", lease.loss());
        tokio::time::sleep(ms(5)).await;
    }
    eventually("all nodes have the longer expiry", || {
        cluster.iter().all(|node| node.pttl("r") > 60_000)
    })
    .await;
    cluster.iter().for_each(close_connections);
    drop(lease);
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn server_idle_timeout_does_not_disturb_acquires() {
    let cluster = Cluster::start_with(3, &Server::builder().arg("--timeout").arg("1"));
    let redlock = client(&cluster);
    lock_on_all(&redlock, &cluster).await;
    let before: Vec<_> = cluster.iter().map(connections).collect();
    for _ in 0..3 {
        tokio::time::sleep(ms(1_300)).await;
        let lease = redlock.acquire("r").wait(SOON).await.expect("the lock is free");
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released), "a quorum is up");
    }
    for (node, before) in cluster.iter().zip(&before) {
        eventually("the server has closed idle connections", || {
            connections(node).is_disjoint(before)
        })
        .await;
    }
    lock_on_all(&redlock, &cluster).await;
}

#[tokio::test]
async fn restarted_durable_server_counts_again() {
    // The servers are durable, because a restarted node without persistence is excluded for the quarantine period.
    let cluster = Cluster::start_with(3, &Server::builder().durable());
    let settings = builder(&cluster).trust_persistence(true);
    let redlock = settings.build().expect("valid settings");
    lock_on_all(&redlock, &cluster).await;
    for node in &cluster {
        node.restart();
        let lease = redlock.acquire("r").wait(SOON).await.expect("two nodes are up");
        assert_eq!(lease.release().await.expect("a quorum is up"), ReleaseOutcome::Released);
        lock_on_all(&redlock, &cluster).await;
    }
    cluster.iter().for_each(Server::kill);
    let refused = redlock.try_acquire("r").await.expect_err("no node is up");
    assert!(matches!(refused, AcquireError::NoQuorum { .. }), "{refused}");
    cluster.iter().for_each(Server::restart);
    lock_on_all(&redlock, &cluster).await;
}

fn proxied(cluster: &Cluster) -> (Vec<Proxy>, Redlock) {
    let proxies = cluster.proxies();
    let redlock = through(&proxies).node_timeout(ms(2_000)).ttl(ms(120_000)).build();
    (proxies, redlock.expect("valid settings"))
}

async fn use_locks(redlock: Redlock, task: usize, faulty: String, end: Instant) -> usize {
    let mut uses = 0;
    while Instant::now() < end {
        let lease = redlock.try_acquire(format!("{task}")).await;
        let lease = lease.unwrap_or_else(|error| panic!("{task}: {error}"));
        tokio::time::sleep(ms(uses as u64 % 3)).await;
        for node in lease.report().nodes() {
            let has_vote = !matches!(node.vote(), NodeVote::Failed(_));
            assert!(has_vote || node.name() == faulty, "{task}: {}", lease.report());
        }
        lease.extend(ms(110_000)).await.unwrap_or_else(|error| panic!("{task}: {error}"));
        let released = lease.release().await.unwrap_or_else(|error| panic!("{task}: {error}"));
        assert_eq!(released, ReleaseOutcome::Released);
        uses += 1;
    }
    uses
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_resets_of_one_node_only_cost_its_votes() {
    let cluster = Cluster::start(5);
    let (proxies, redlock) = proxied(&cluster);
    lock_on_all(&redlock, &cluster).await;
    let end = Instant::now() + ms(2_000);
    let faulty = || proxies[0].addr().to_string();
    let tasks = (0..64).map(|task| tokio::spawn(use_locks(redlock.clone(), task, faulty(), end)));
    let tasks: Vec<_> = tasks.collect();
    while Instant::now() < end {
        proxies[0].reset();
        tokio::time::sleep(ms(20)).await;
    }
    for task in tasks {
        assert!(task.await.expect("no failure") > 0, "each task has used locks");
    }
    deliver_all(&redlock).await;
    assert!(cluster.is_empty(), "{:?}", cluster.keys_per_node());
}

/// Acquires and releases one of four locks until `end`. Panics on any error that a connection reset cannot cause.
/// Returns the number of acquires.
async fn use_shared(redlock: Redlock, task: usize, holds: Arc<[Holds; 4]>, end: Instant) -> u64 {
    let mut uses = 0;
    while Instant::now() < end {
        match redlock.acquire(format!("{}", task % 4)).wait(ms(500)).await {
            Ok(lease) => {
                let since = Instant::now();
                tokio::time::sleep(ms(uses % 4)).await;
                assert!(lease.is_valid());
                holds[task % 4].record(since);
                uses += 1;
                match lease.release().await {
                    Ok(released) => assert_eq!(released, ReleaseOutcome::Released),
                    Err(error) => {
                        assert!(matches!(error, ReleaseError::NoQuorum { .. }), "{error}");
                    }
                }
            }
            Err(
                AcquireError::Contended { .. }
                | AcquireError::NoQuorum { .. }
                | AcquireError::Timeout { .. },
            ) => {}
            Err(error) => panic!("{error}"),
        }
    }
    uses
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resets_of_all_connections_under_load_keep_exclusion() {
    let cluster = Cluster::start(5);
    let (proxies, redlock) = proxied(&cluster);
    let other = through(&proxies).ttl(ms(120_000));
    let retry = RetryPolicy::jittered(ms(1)..ms(20));
    let other = other.retry(retry).node_timeout(ms(2_000)).build().expect("valid settings");
    lock_on_all(&redlock, &cluster).await;
    let holds = Arc::<[Holds; 4]>::default();
    let end = Instant::now() + ms(4_000);
    let tasks: Vec<_> = (0..32)
        .map(|task| {
            let redlock = if task < 16 { &redlock } else { &other };
            tokio::spawn(use_shared(redlock.clone(), task, holds.clone(), end))
        })
        .collect();
    for pause in [20, 20, 100, 1_200, 20, 300, 1_200].into_iter().cycle().map(ms) {
        if Instant::now() + pause > end {
            break;
        }
        tokio::time::sleep(pause).await;
        proxies.iter().for_each(Proxy::reset);
    }
    let mut uses = 0;
    for task in tasks {
        uses += task.await.expect("no failure");
    }
    deliver_all(&redlock).await;
    deliver_all(&other).await;
    assert!(cluster.is_empty(), "{:?}", cluster.keys_per_node());
    let held: usize = holds.iter().map(Holds::assert_disjoint).sum();
    println!("{held} uses between the resets");
    assert!(held as u64 == uses && held > 20, "{held} of {uses} uses");
}

/// Waits until the first node is up through a new connection. `before` is the number of earlier connections.
async fn is_reconnected(redlock: &Redlock, proxy: &Proxy, before: u64) {
    eventually("the proxy has accepted a new connection", || proxy.accepted() > before).await;
    eventually("the first node is up", || is_up(redlock, 0)).await;
}

#[tokio::test]
async fn truncated_reply_is_a_failed_vote_and_is_cleaned_up() {
    let cluster = Cluster::start(3);
    let (proxies, redlock) = proxied(&cluster);
    let proxy = &proxies[0];
    lock_on_all(&redlock, &cluster).await;
    for bytes in [0, 3] {
        let before = proxy.accepted();
        proxy.cut_next_reply(bytes);
        let lease = redlock.try_acquire("r").await.expect("two nodes grant");
        eventually("the vote has failed", || {
            let report = lease.report();
            let vote = report.nodes()[0].vote().clone();
            matches!(vote, NodeVote::Failed(NodeFailure::Disconnected(_)))
        })
        .await;
        assert_eq!(
            cluster[0].get("r").as_deref(),
            Some(lease.value().as_bytes()),
            "the command ran"
        );
        is_reconnected(&redlock, proxy, before).await;

        let before = proxy.accepted();
        proxy.cut_next_reply(bytes);
        lease.extend(ms(300_000)).await.expect("two nodes reply");
        is_reconnected(&redlock, proxy, before).await;
        eventually("all nodes have the longer expiry", || {
            cluster.iter().all(|node| node.pttl("r") > 200_000)
        })
        .await;

        let before = proxy.accepted();
        proxy.cut_next_reply(bytes);
        assert_eq!(lease.release().await.expect("two nodes reply"), ReleaseOutcome::Released);
        is_reconnected(&redlock, proxy, before).await;
        eventually("no key is left", || cluster.is_empty()).await;

        // This lease is dropped while one node's vote is unknown.
        let before = proxy.accepted();
        proxy.cut_next_reply(bytes);
        drop(redlock.try_acquire("r").await.expect("two nodes grant"));
        is_reconnected(&redlock, proxy, before).await;
        eventually("no key is left", || cluster.is_empty()).await;
    }
}

#[tokio::test]
async fn lost_extension_is_repeated_on_the_next_connection() {
    let cluster = Cluster::start(3);
    let (proxies, redlock) = proxied(&cluster);
    let lease = redlock.try_acquire("r").await.expect("the lock is free");
    eventually("all nodes have granted", || lease.report().granted() == 3).await;
    let before = proxies[0].bytes(Direction::Requests);
    proxies[0].black_hole(Direction::Requests);
    lease.extend(ms(300_000)).await.expect("two nodes reply");
    let is_lost = || proxies[0].bytes(Direction::Requests) > before;
    eventually("the extension is lost", is_lost).await;
    proxies[0].reset();
    proxies[0].heal();
    eventually("all nodes have the longer expiry", || {
        cluster.iter().all(|node| node.pttl("r") > 200_000)
    })
    .await;
    drop(lease);
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn refused_connections_fail_fast_and_limit_reconnects() {
    let cluster = Cluster::start(3);
    let (proxies, redlock) = proxied(&cluster);
    lock_on_all(&redlock, &cluster).await;
    for proxy in &proxies {
        proxy.refuse(true);
        proxy.reset();
    }
    let tried = || proxies.iter().map(Proxy::accepted).max().expect("three");
    let (started, before, attempts) = (Instant::now(), tried(), Arc::new(AtomicU64::new(0)));
    let is_down = |node: &quorlock::NodeInfo| matches!(node.state(), NodeState::Down(_));
    eventually("all nodes are down", || redlock.nodes().iter().all(is_down)).await;
    let tasks = (0..50).map(|task| {
        let (redlock, attempts) = (redlock.clone(), attempts.clone());
        tokio::spawn(async move {
            while started.elapsed() < ms(1_000) {
                let refused = redlock.try_acquire(format!("{task}")).await.expect_err("no node");
                assert!(matches!(refused, AcquireError::NoQuorum { .. }), "{refused}");
                attempts.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(ms(2)).await;
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("no failure");
    }
    let (tried, attempts) = (tried() - before, attempts.load(Ordering::Relaxed));
    let limit = 10 + started.elapsed().as_secs() * 2;
    assert!(tried <= limit, "{tried} connections to a node for {attempts} attempts");
    assert!(attempts >= 100, "{attempts} attempts in a second: each took too long");
    proxies.iter().for_each(Proxy::heal);
    let lease = redlock.acquire("r").wait(SOON).await.expect("the nodes accept connections");
    assert_eq!(lease.release().await.expect("a quorum is up"), ReleaseOutcome::Released);
    lock_on_all(&redlock, &cluster).await;
}
