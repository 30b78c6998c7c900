//! Tests of new deployments, and of restarted nodes that a client could mistake for a new deployment.
#![cfg(target_os = "linux")]

use crate::restarts::{advance_past_quarantine, past_quarantine};
use crate::{SOON, all_up, builder, builder_of, eventually, granted_by_all, is_up, ms, warm_up};
use kit::{Cluster, Direction, Proxy, Server};
use quorlock::{AcquireError, NodeFailure, NodeVote, Redlock, ReleaseOutcome, Report};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::sleep;

/// The time added to the connect timeout for a busy machine.
const GENEROUS: Duration = Duration::from_secs(5);

#[tokio::test]
async fn new_deployment_works_at_once_without_one_of_its_nodes() {
    let (alive, timeout) = (Server::is_running as fn(&Server) -> bool, ms(1_000));
    for (name, hurt) in [
        ("all nodes are up", None),
        ("one node is dead", Some(Server::kill as fn(&Server))),
        ("one node is stopped", Some(Server::stop as fn(&Server))),
    ] {
        for nodes in [3, 5] {
            let cluster = Cluster::start(nodes);
            if let Some(hurt) = hurt {
                hurt(&cluster[nodes - 1]);
            }
            assert!(cluster[..nodes - 1].iter().all(alive));
            let redlock =
                builder(&cluster).connect_timeout(timeout).build().expect("valid settings");
            let started = Instant::now();
            let lease = redlock.acquire("r").wait(SOON).await;
            let lease = lease.unwrap_or_else(|refused| panic!("{name}, {nodes}: {refused}"));
            let took = started.elapsed();
            assert!(took < timeout + GENEROUS, "{name}, {nodes}: {took:?}");
            assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released), "a quorum is up");
            drop(redlock.try_acquire("r").await.expect("a quorum is up"));
        }
    }
}

/// Returns servers that have addresses but are not running.
async fn stopped_servers(nodes: usize) -> Arc<Cluster> {
    let cluster = spawn_blocking(move || Cluster::start(nodes)).await.expect("servers start");
    cluster.iter().for_each(Server::kill);
    Arc::new(cluster)
}

fn start_apart(cluster: Arc<Cluster>, apart: Duration) -> JoinHandle<()> {
    spawn_blocking(move || {
        for (node, place) in cluster.iter().zip(0..) {
            if place > 0 {
                std::thread::sleep(apart);
            }
            node.restart();
        }
    })
}

/// Returns true if timeouts and stalled nodes are the only causes of failed votes. Nodes in `dead` may also fail for
/// other reasons, except a restart.
fn has_only_timeouts(report: &Report, dead: &[usize]) -> bool {
    report.nodes().iter().enumerate().all(|(node, entry)| match entry.vote() {
        NodeVote::Failed(NodeFailure::Timeout(_) | NodeFailure::Stalled(_)) => true,
        NodeVote::Failed(NodeFailure::Restarted { .. }) => false,
        NodeVote::Failed(_) => dead.contains(&node),
        _ => true,
    })
}

/// Acquires and releases the lock until `until`. Returns the number of acquires. A refusal is only accepted if its
/// causes are expired attempts, timeouts, or failures of `dead` nodes; otherwise, this function panics.
async fn acquire_and_release_until(redlock: &Redlock, dead: &[usize], until: Instant) -> usize {
    let mut acquired = 0;
    while Instant::now() < until {
        match redlock.try_acquire("r").await {
            Ok(lease) => {
                acquired += 1;
                // A release may time out on a busy machine.
                drop(lease.release().await);
            }
            Err(AcquireError::NoQuorum { report }) => {
                assert!(has_only_timeouts(&report, dead), "after {acquired} acquires: {report}");
            }
            Err(AcquireError::Expired { .. }) => {}
            Err(refused) => panic!("no other client exists, after {acquired} acquires: {refused}"),
        }
        sleep(ms(20)).await;
    }
    acquired
}

/// Checks that a client that exists from the start can always acquire the lock again after its first acquire. The nodes
/// are started at intervals of `apart`. The check includes the time in which only the first nodes have passed the
/// quarantine period, and the time after the `deaths` oldest nodes are killed.
async fn serve_from_the_start(nodes: usize, apart: Duration, deaths: usize) {
    const SHORT: Duration = Duration::from_secs(3);
    let term = SHORT.mul_f64(1.02) + ms(1_000);
    let cluster = stopped_servers(nodes).await;
    let last = apart * u32::try_from(nodes - 1).expect("few");
    assert!(last < term, "the deployment would not count as new");
    let settings = builder(&cluster).max_ttl(SHORT).ttl(SHORT);
    let redlock = settings.build().expect("valid settings");
    let started = Instant::now();
    let starting = start_apart(cluster.clone(), apart);
    drop(redlock.acquire("r").wait(SOON).await.expect("a quorum starts"));
    let not_yet: Vec<_> = (0..nodes).collect();
    let turns_old = |place: usize| started + apart * u32::try_from(place).expect("few") + term;
    // Nodes that have not started yet may refuse connections.
    let had = acquire_and_release_until(&redlock, &not_yet, started + last).await;
    starting.await.expect("all start");
    eventually("all nodes are up", || all_up(&redlock)).await;
    let had = had + acquire_and_release_until(&redlock, &[], turns_old(nodes - 3) + ms(200)).await;
    // Half of the remaining nodes have passed the quarantine period.
    let dead: Vec<_> = (0..deaths).collect();
    cluster[..deaths].iter().for_each(Server::kill);
    let still = acquire_and_release_until(&redlock, &dead, turns_old(nodes - 1) + ms(500)).await;
    assert!(had > 10 && still > 10, "{had}, {still}: too few acquires for a result");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_started_one_by_one_keep_serving_past_quarantine() {
    tokio::join!(
        serve_from_the_start(5, ms(900), 0),
        // All nodes start at least one second before the quarantine period of the first node ends. During this second,
        // the client must notice them.
        serve_from_the_start(5, ms(500), 2),
        serve_from_the_start(3, ms(1_000), 1),
    );
}

/// Tries to acquire the lock until all nodes in `up` are connected, and then five more times. Panics if an attempt
/// succeeds. `case` is part of the panic message.
async fn expect_refusals(case: &str, redlock: &Redlock, up: &[usize]) {
    let are_up = || up.iter().all(|node| is_up(redlock, *node));
    let (started, mut seen) = (Instant::now(), 0);
    while seen < 5 {
        assert!(started.elapsed() < SOON, "{case}: {:?}", redlock.nodes());
        if let Ok(lease) = redlock.try_acquire("r").await {
            panic!("{case}: two clients hold the lock: {}", lease.report());
        }
        seen += usize::from(are_up());
        sleep(ms(10)).await;
    }
}

/// Checks that B cannot acquire a lock that A holds, although a majority of the nodes looks like a new deployment:
///
/// 1. B connects to an old node while a majority is down.
/// 2. `hurt` stops or kills the old nodes.
/// 3. The majority restarts without data.
async fn restart_majority_after_old_node_failed(nodes: usize, hurt: fn(&Server), case: &str) {
    let cluster = past_quarantine(nodes).await;
    let [a, b, knew_all] = [(); 3].map(|()| {
        let builder = builder(&cluster).node_timeout(ms(300)).connect_timeout(ms(500));
        builder.build().expect("valid settings")
    });
    warm_up(&knew_all).await;
    let lease = granted_by_all(&a, "r").await;
    let majority = nodes / 2 + 1;
    cluster[..majority].iter().for_each(Server::kill);
    b.try_acquire("r").await.expect_err("a majority is down");
    eventually("B is connected to the old node", || is_up(&b, majority)).await;
    cluster[majority..].iter().for_each(hurt);
    cluster[..majority].iter().for_each(Server::restart);
    let up: Vec<_> = (0..majority).collect();
    expect_refusals(&format!("{case}, {nodes}, knows one node"), &b, &up).await;
    expect_refusals(&format!("{case}, {nodes}, knows all nodes"), &knew_all, &up).await;
    assert!(lease.is_valid(), "the lease ended early: repeat the test");
}

#[tokio::test]
async fn stopped_old_node_prevents_a_new_deployment() {
    for nodes in [3, 5] {
        restart_majority_after_old_node_failed(nodes, Server::stop, "stopped").await;
    }
}

#[tokio::test]
async fn killed_old_node_prevents_a_new_deployment() {
    for nodes in [3, 5] {
        restart_majority_after_old_node_failed(nodes, Server::kill, "killed").await;
    }
}

#[tokio::test]
async fn first_attempt_waits_for_a_slow_old_node() {
    let cluster = past_quarantine(3).await;
    let slow = Proxy::start(cluster[2].addr());
    let urls = [cluster[0].url(), cluster[1].url(), slow.url()];
    let client = || {
        let builder = builder_of(&urls).node_timeout(ms(2_000)).connect_timeout(SOON);
        builder.build().expect("valid settings")
    };
    let [a, b] = [client(), client()];
    let lease = granted_by_all(&a, "r").await;
    cluster[..2].iter().for_each(Server::restart);
    slow.delay(Direction::Replies, ms(300));
    expect_refusals("slow node", &b, &[0, 1, 2]).await;
    assert!(lease.is_valid(), "the lease ended early: repeat the test");
}

#[tokio::test]
async fn durable_old_node_prevents_a_new_deployment() {
    let young = Server::builder().clock();
    let mut cluster = Cluster::start_with(3, &young);
    cluster.servers_mut()[2] = Server::builder().durable().clock().start();
    advance_past_quarantine(&cluster).await;
    let [a, b] = [(); 2].map(|()| builder(&cluster).build().expect("valid settings"));
    let lease = granted_by_all(&a, "r").await;
    cluster[..2].iter().for_each(Server::restart);
    expect_refusals("durable", &b, &[0, 1, 2]).await;
    assert!(lease.is_valid(), "the lease ended early: repeat the test");
}
