//! Tests with nodes that crash, stay down, or restart with or without data, and with connections that break during a
//! command.

use crate::{MAX_TTL, SOON, builder, client, eventually, is_down, is_up, ms, through};
use futures::future::try_join_all;
use kit::{Cluster, Direction, Proxy, Server};
use quorlock::{
    AcquireError, NodeFailure, NodeVote, Redlock, ReleaseOutcome, Report, RestartGuard, RetryPolicy,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A TTL longer than any wait in these tests, so that no key expires.
const LONG: Duration = Duration::from_mins(2);

async fn held_everywhere(cluster: &Cluster) -> (Redlock, quorlock::Lease) {
    let redlock = builder(cluster).ttl(LONG).build().expect("valid settings");
    let lease = redlock.acquire("r").wait(SOON).await.expect("the lock is free");
    let is_there = |server: &Server| server.get("r").as_deref() == Some(lease.value().as_bytes());
    eventually("the key is on all nodes", || cluster.iter().all(is_there)).await;
    (redlock, lease)
}

fn nodes_refusing_connections(report: &Report) -> Vec<usize> {
    let is_refusing = |vote: &NodeVote| match vote {
        NodeVote::Failed(failure @ NodeFailure::Unreachable(_)) => {
            failure.to_string() == "connection refused"
        }
        _ => false,
    };
    let nodes = report.nodes().iter().enumerate();
    nodes.filter(|(_, node)| is_refusing(node.vote())).map(|(number, _)| number).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operations_succeed_with_a_node_down_from_the_start() {
    let cluster = Cluster::start(5);
    cluster[1].kill();
    let redlock = client(&cluster);
    for n in 0..50 {
        let lease = redlock.try_acquire(format!("r{n}")).await.expect("four nodes are up");
        lease.extend(LONG).await.expect("four nodes are up");
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    }
    redlock
        .close()
        .await
        .expect("no release is pending, because the dead node received no command");
    assert!(cluster.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_node_is_reported_and_operations_succeed() {
    let cluster = Cluster::start(5);
    let (redlock, lease) = held_everywhere(&cluster).await;
    cluster[4].kill();
    lease.extend(2 * LONG).await.expect("four nodes are up");
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    let lease = redlock.try_acquire("r").await.expect("four nodes are up");
    drop(lease);
    eventually("no key is left", || cluster.is_empty()).await;
    // The first reports may name the broken connection instead of the refused one.
    let is_named = || async {
        let lease = redlock.try_acquire("named").await.expect("four nodes are up");
        nodes_refusing_connections(&lease.report()) == [4]
    };
    let started = Instant::now();
    while !is_named().await {
        assert!(started.elapsed() < SOON, "the report never named the refused connection");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operations_succeed_under_load_while_nodes_restart_empty() {
    const TASKS: usize = 64;
    let cluster = Arc::new(Cluster::start(5));
    // With a restart guard, the grants of a quorum of nodes would soon not count.
    let redlock = builder(&cluster).ttl(LONG).restart_guard(RestartGuard::Off);
    let redlock = redlock.build().expect("valid settings");
    let (is_over, cycles) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let unknowns = Arc::new(AtomicUsize::new(0));
    let tasks = (0..TASKS).map(|task| {
        let (redlock, is_over, cycles) = (redlock.clone(), is_over.clone(), cycles.clone());
        let unknowns = unknowns.clone();
        tokio::spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                let lease = redlock.try_acquire(format!("task/{task}")).await.expect("free");
                lease.extend(LONG).await.expect("four nodes hold the key");
                match lease.release().await {
                    Ok(outcome) => assert_eq!(outcome, ReleaseOutcome::Released),
                    // The lock was won on three nodes and one of them has crashed, so the outcome is unknown. This
                    // happens at most once per task and crash.
                    Err(unknown) => {
                        assert!(unknown.to_string().contains("connect"), "{unknown}");
                        unknowns.fetch_add(1, Ordering::Relaxed);
                    }
                }
                cycles.fetch_add(1, Ordering::Relaxed);
            }
        })
    });
    let tasks: Vec<_> = tasks.collect();
    let mut seen = 0;
    for killed in [0, 3, 4] {
        let goes_on = |seen: usize| {
            let cycles = cycles.clone();
            move || cycles.load(Ordering::Relaxed) > seen + 2 * TASKS
        };
        eventually("all tasks make progress", goes_on(seen)).await;
        cluster[killed].kill();
        seen = cycles.load(Ordering::Relaxed);
        eventually("four nodes serve", goes_on(seen)).await;
        let back = cluster.clone();
        tokio::task::spawn_blocking(move || back[killed].restart())
            .await
            .expect("the server starts");
        eventually("the node is up", || is_up(&redlock, killed)).await;
        // Leases acquired without this node must end before the next crash.
        seen = cycles.load(Ordering::Relaxed);
        eventually("five nodes serve", goes_on(seen)).await;
    }
    is_over.store(true, Ordering::Relaxed);
    try_join_all(tasks).await.expect("no operation fails");
    assert!(unknowns.load(Ordering::Relaxed) <= 3 * TASKS);
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reconnect_rate_is_limited_for_every_kind_of_failure() {
    const WATCH: Duration = Duration::from_secs(3);
    let cluster = Cluster::start(7);
    let proxies: Vec<_> = cluster[..3].iter().map(|node| Proxy::start(node.addr())).collect();
    let mut urls = cluster.urls();
    for (url, proxy) in urls.iter_mut().zip(&proxies) {
        *url = proxy.url();
    }
    let redlock = Redlock::builder().max_ttl(MAX_TTL).nodes(urls).node_timeout(ms(1_000)).ttl(LONG);
    let redlock = redlock.connect_timeout(ms(100)).restart_guard(RestartGuard::Off);
    let redlock = redlock.build().expect("valid settings");
    drop(redlock.acquire("r").wait(SOON).await.expect("the lock is free"));
    eventually("all nodes are up", || (0..7).all(|node| is_up(&redlock, node))).await;

    let dropping = &proxies[1];
    proxies[0].refuse(true);
    proxies[2].hold_connects(true);
    proxies.iter().for_each(Proxy::reset);
    cluster[3].kill();
    cluster[3].restart();
    let received = || {
        let stats = cluster[3].info("stats");
        stats["total_connections_received"].parse::<u64>().expect("a number")
    };
    let before: Vec<_> = proxies.iter().map(Proxy::accepted).collect();
    let started = Instant::now();
    while started.elapsed() < WATCH {
        // The client is in use while one node loses each new connection after a short time.
        let lease = redlock.acquire("r").wait(SOON).await.expect("four nodes are well");
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released), "four nodes are well");
        dropping.reset();
        tokio::time::sleep(ms(2)).await;
    }
    let watched = started.elapsed().as_secs() + 1;
    let attempts = proxies.iter().zip(before).map(|(proxy, before)| proxy.accepted() - before);
    let attempts: Vec<_> = attempts.collect();
    for (attempts, what) in attempts.iter().zip(["refusing", "dropping", "silent"]) {
        assert!(*attempts > 0, "{what}: no attempt to reconnect");
        assert!(*attempts < 12 * watched, "{what}: {attempts} attempts in {watched} s");
    }
    // The count includes the test kit's own connections.
    assert!(received() < 30, "{} connections to a restarted node", received());
    proxies.iter().for_each(Proxy::heal);
    eventually("all nodes are up", || (0..7).all(|node| is_up(&redlock, node))).await;
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusal_names_exactly_the_dead_nodes() {
    let cluster = Cluster::start(5);
    let warm = client(&cluster);
    drop(warm.acquire("r").wait(SOON).await.expect("the lock is free"));
    eventually("all nodes are up", || (0..5).all(|node| is_up(&warm, node))).await;
    for dead in [0, 2, 3] {
        cluster[dead].kill();
    }
    eventually("the three nodes are down", || [0, 2, 3].iter().all(|node| is_down(&warm, *node)))
        .await;
    for redlock in [client(&cluster), warm] {
        let started = Instant::now();
        let mut refused =
            redlock.acquire("r").wait(ms(700)).await.expect_err("only two nodes are up");
        assert!(started.elapsed() < SOON, "the wait is bounded");
        // The warm client's last attempt may have used a connection that broke.
        while let AcquireError::NoQuorum { report } = &refused
            && nodes_refusing_connections(report) != [0, 2, 3]
            && started.elapsed() < SOON
        {
            refused = redlock.try_acquire("r").await.expect_err("only two nodes are up");
        }
        let AcquireError::NoQuorum { report } = &refused else { panic!("{refused:?}") };
        assert_eq!(nodes_refusing_connections(report), [0, 2, 3], "{report}");
        for (number, node) in report.nodes().iter().enumerate() {
            assert_eq!(node.name(), cluster[number].addr().to_string());
        }
        assert!(refused.to_string().starts_with("no quorum of nodes available: "), "{refused}");
        assert_eq!(refused.to_string().matches(" connection refused").count(), 3, "{refused}");
    }
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_succeeds_after_dead_nodes_have_restarted() {
    let cluster = Cluster::start(5);
    cluster[0].kill();
    cluster[1].kill();
    let redlock = builder(&cluster).ttl(LONG).build().expect("valid settings");
    let lease = redlock.acquire("r").wait(SOON).await.expect("three nodes are up");
    cluster[0].restart();
    cluster[1].restart();
    eventually("both nodes are up", || is_up(&redlock, 0) && is_up(&redlock, 1)).await;
    lease.extend(2 * LONG).await.expect("three nodes still hold it");
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    redlock.close().await.expect("nodes are up");
    assert!(cluster.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lease_survives_a_node_that_restarts_empty() {
    let cluster = Cluster::start(5);
    for is_noticed in [false, true] {
        let (redlock, lease) = held_everywhere(&cluster).await;
        cluster[2].kill();
        if is_noticed {
            eventually("the node is down", || is_down(&redlock, 2)).await;
        }
        cluster[2].restart();
        lease.extend(2 * LONG).await.expect("four nodes hold the key");
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
        eventually("no key is left", || cluster.is_empty()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pending_release_is_delivered_after_durable_node_restarts() {
    let cluster = Cluster::start_with(5, &Server::builder().durable());
    let (redlock, lease) = held_everywhere(&cluster).await;
    cluster[2].kill();
    cluster[3].kill();
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    let dropped = redlock.try_acquire("s").await.expect("three nodes are up");
    drop(dropped);
    // Long enough for several failed connection attempts.
    tokio::time::sleep(ms(1_200)).await;
    cluster[2].restart();
    cluster[3].restart();
    eventually("no key is left", || cluster.is_empty()).await;
    assert!(cluster[2].info("persistence")["aof_enabled"] == "1", "the node is durable");
    redlock.close().await.expect("nodes are up");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_node_is_used_soon() {
    let cluster = Cluster::start(5);
    cluster[4].kill();
    let redlock = builder(&cluster).ttl(LONG).build().expect("valid settings");
    let first = redlock.acquire("first").wait(SOON).await.expect("four nodes are up");
    eventually("the node is down", || is_down(&redlock, 4)).await;
    // Long enough for the pause between connection attempts to reach its maximum.
    tokio::time::sleep(ms(2_500)).await;
    cluster[4].restart();
    let started = Instant::now();
    eventually("the node is up", || is_up(&redlock, 4)).await;
    assert!(started.elapsed() < ms(8_000), "up after {:?}", started.elapsed());
    let next = redlock.try_acquire("next").await.expect("nodes are up");
    eventually("the next lock's key is on the node", || cluster[4].get("next").is_some()).await;
    assert_eq!(first.release().await, Ok(ReleaseOutcome::Released));
    assert_eq!(next.release().await, Ok(ReleaseOutcome::Released));
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquire_with_all_nodes_dead_fails_without_busy_retries() {
    let cluster = Cluster::start(5);
    let proxies = cluster.proxies();
    cluster.servers().iter().for_each(Server::kill);
    let redlock = through(&proxies).node_timeout(ms(50)).ttl(LONG).build();
    let redlock = redlock.expect("valid settings");
    let eager = RetryPolicy::fixed(ms(0));
    let started = Instant::now();
    let second = tokio::spawn(async {
        tokio::time::sleep(ms(1_000)).await;
        Instant::now()
    });
    let waits = (0..8).map(|n| {
        let acquire = redlock.acquire(format!("r{n}")).wait(ms(1_000)).retry(eager.clone());
        tokio::spawn(acquire)
    });
    for wait in waits.collect::<Vec<_>>() {
        let refused = wait.await.expect("no panic").expect_err("no node is up");
        assert!(matches!(refused, AcquireError::NoQuorum { .. }), "{refused:?}");
    }
    let elapsed = started.elapsed();
    // A suspended machine also delays the second timer, so the test limits how late this code runs after that timer.
    let late = Instant::now().saturating_duration_since(second.await.expect("no panic"));
    assert!(elapsed >= ms(900) && late < ms(4_000), "{elapsed:?}");
    let seconds = elapsed.as_secs() + 1;
    for proxy in &proxies {
        let (attempts, bytes) = (proxy.accepted(), proxy.bytes(Direction::Requests));
        assert!((1..20 * seconds).contains(&attempts), "{attempts} attempts to connect");
        // The bytes sent before the reset contain at most the handshake, never a `SET`.
        assert!(bytes < 1_000 * attempts, "{bytes} bytes in {attempts} attempts");
    }
}
