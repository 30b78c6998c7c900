//! Nodes that die, stay dead, and come back, empty or not; connections that die under a command.

use crate::{MAX_TTL, SOON, builder, client, eventually, is_down, is_up, ms, through};
use futures::future::try_join_all;
use kit::{Cluster, Direction, Proxy, Server};
use quorlock::{
    AcquireError, NodeFailure, NodeVote, Redlock, ReleaseOutcome, Report, RestartGuard, RetryPolicy,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Longer than any wait of these tests, so that no key goes by expiring.
const LONG: Duration = Duration::from_mins(2);

/// A client that is connected to all nodes, and a lease whose key is on all of them.
async fn held_everywhere(cluster: &Cluster) -> (Redlock, quorlock::Lease) {
    let redlock = builder(cluster).ttl(LONG).build().expect("good settings");
    let lease = redlock.acquire("r").wait(SOON).await.expect("a free lock");
    let is_there = |server: &Server| server.get("r").as_deref() == Some(lease.value().as_bytes());
    eventually("the key is on all nodes", || cluster.iter().all(is_there)).await;
    (redlock, lease)
}

/// The nodes that refused the connection, by number.
fn refusing(report: &Report) -> Vec<usize> {
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
async fn a_node_that_is_dead_from_the_start_fails_nobody() {
    let cluster = Cluster::start(5);
    cluster[1].kill();
    let redlock = client(&cluster);
    for n in 0..50 {
        let lease = redlock.try_acquire(format!("r{n}")).await.expect("four nodes are well");
        lease.extend(LONG).await.expect("four nodes are well");
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    }
    redlock.close().await.expect("nothing is owed to a node that was never told anything");
    assert!(cluster.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_killed_under_a_warm_client_fails_nobody_and_is_named() {
    let cluster = Cluster::start(5);
    let (redlock, lease) = held_everywhere(&cluster).await;
    cluster[4].kill();
    lease.extend(2 * LONG).await.expect("four nodes are well");
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    let lease = redlock.try_acquire("r").await.expect("four nodes are well");
    drop(lease);
    eventually("no key is left", || cluster.is_empty()).await;
    // At first the report may say that the connection broke.
    let is_named = || async {
        let lease = redlock.try_acquire("named").await.expect("four nodes are well");
        refusing(&lease.report()) == [4]
    };
    let begun = Instant::now();
    while !is_named().await {
        assert!(begun.elapsed() < SOON, "it must be named as refusing connections");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_die_and_return_empty_one_by_one_under_load_fail_nobody() {
    const TASKS: usize = 64;
    let cluster = Arc::new(Cluster::start(5));
    // They count again at once, or a quorum would soon be away.
    let redlock = builder(&cluster).ttl(LONG).restart_guard(RestartGuard::Off);
    let redlock = redlock.build().expect("good settings");
    let (is_over, cycles) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let unknowns = Arc::new(AtomicUsize::new(0));
    let tasks = (0..TASKS).map(|task| {
        let (redlock, is_over, cycles) = (redlock.clone(), is_over.clone(), cycles.clone());
        let unknowns = unknowns.clone();
        tokio::spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                let lease = redlock.try_acquire(format!("task/{task}")).await.expect("free");
                lease.extend(LONG).await.expect("four nodes know it");
                match lease.release().await {
                    Ok(outcome) => assert_eq!(outcome, ReleaseOutcome::Released),
                    // It was won on the quickest three, one of which has just died: nobody can
                    // know any more. It happens once per task and death, at most.
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
        eventually("all is well", goes_on(seen)).await;
        cluster[killed].kill();
        seen = cycles.load(Ordering::Relaxed);
        eventually("four nodes serve", goes_on(seen)).await;
        let back = cluster.clone();
        tokio::task::spawn_blocking(move || back[killed].restart()).await.expect("it starts");
        eventually("it is up again", || is_up(&redlock, killed)).await;
        // What was acquired without it must be over before the next one dies.
        seen = cycles.load(Ordering::Relaxed);
        eventually("five nodes serve", goes_on(seen)).await;
    }
    is_over.store(true, Ordering::Relaxed);
    try_join_all(tasks).await.expect("no operation fails");
    assert!(unknowns.load(Ordering::Relaxed) <= 3 * TASKS);
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_to_reconnect_are_few_however_a_node_fails() {
    const WATCH: Duration = Duration::from_secs(3);
    let cluster = Cluster::start(7);
    let proxies: Vec<_> = cluster[..3].iter().map(|node| Proxy::start(node.addr())).collect();
    let mut urls = cluster.urls();
    for (url, proxy) in urls.iter_mut().zip(&proxies) {
        *url = proxy.url();
    }
    let redlock = Redlock::builder().max_ttl(MAX_TTL).nodes(urls).node_timeout(ms(1_000)).ttl(LONG);
    let redlock = redlock.connect_timeout(ms(100)).restart_guard(RestartGuard::Off);
    let redlock = redlock.build().expect("good settings");
    drop(redlock.acquire("r").wait(SOON).await.expect("a free lock"));
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
    let begun = Instant::now();
    while begun.elapsed() < WATCH {
        // Under use; and one of them loses each connection soon after it was made.
        let lease = redlock.acquire("r").wait(SOON).await.expect("four nodes are well");
        lease.release().await.expect("four nodes are well");
        dropping.reset();
        tokio::time::sleep(ms(2)).await;
    }
    let watched = begun.elapsed().as_secs() + 1;
    let attempts = proxies.iter().zip(before).map(|(proxy, before)| proxy.accepted() - before);
    let attempts: Vec<_> = attempts.collect();
    for (attempts, what) in attempts.iter().zip(["refusing", "dropping", "silent"]) {
        assert!(*attempts > 0, "{what}: it is tried again");
        assert!(*attempts < 12 * watched, "{what}: {attempts} attempts in {watched} s");
    }
    // Some of these are the kit's own.
    assert!(received() < 30, "{} connections to a node that came back", received());
    proxies.iter().for_each(Proxy::heal);
    eventually("all are up again", || (0..7).all(|node| is_up(&redlock, node))).await;
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_three_of_five_dead_a_refusal_names_exactly_those() {
    let cluster = Cluster::start(5);
    let warm = client(&cluster);
    drop(warm.acquire("r").wait(SOON).await.expect("a free lock"));
    eventually("all nodes are up", || (0..5).all(|node| is_up(&warm, node))).await;
    for dead in [0, 2, 3] {
        cluster[dead].kill();
    }
    eventually("they are found dead", || [0, 2, 3].iter().all(|node| is_down(&warm, *node))).await;
    for redlock in [client(&cluster), warm] {
        let begun = Instant::now();
        let mut refused = redlock.acquire("r").wait(ms(700)).await.expect_err("two nodes are left");
        assert!(begun.elapsed() < SOON, "the wait is bounded");
        // The last attempt of the warm client may have met a connection that broke.
        while let AcquireError::NoQuorum { report } = &refused
            && refusing(report) != [0, 2, 3]
            && begun.elapsed() < SOON
        {
            refused = redlock.try_acquire("r").await.expect_err("two nodes are left");
        }
        let AcquireError::NoQuorum { report } = &refused else { panic!("{refused:?}") };
        assert_eq!(refusing(report), [0, 2, 3], "{report}");
        for (number, node) in report.nodes().iter().enumerate() {
            assert_eq!(node.name(), cluster[number].addr().to_string());
        }
        assert!(refused.to_string().starts_with("no quorum of nodes available: "), "{refused}");
        assert_eq!(refused.to_string().matches(" connection refused").count(), 3, "{refused}");
    }
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_were_dead_at_acquire_and_are_back_at_release_do_not_matter() {
    let cluster = Cluster::start(5);
    cluster[0].kill();
    cluster[1].kill();
    let redlock = builder(&cluster).ttl(LONG).build().expect("good settings");
    let lease = redlock.acquire("r").wait(SOON).await.expect("three nodes are well");
    cluster[0].restart();
    cluster[1].restart();
    eventually("they are up", || is_up(&redlock, 0) && is_up(&redlock, 1)).await;
    lease.extend(2 * LONG).await.expect("three nodes still hold it");
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    redlock.close().await.expect("all nodes are well");
    assert!(cluster.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_whose_node_dies_and_returns_empty_is_held_to_the_end() {
    let cluster = Cluster::start(5);
    for is_seen in [false, true] {
        let (redlock, lease) = held_everywhere(&cluster).await;
        cluster[2].kill();
        if is_seen {
            eventually("it is found dead", || is_down(&redlock, 2)).await;
        }
        cluster[2].restart();
        lease.extend(2 * LONG).await.expect("four nodes hold it");
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
        eventually("no key is left", || cluster.is_empty()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_owed_to_a_durable_node_is_delivered_when_it_returns() {
    let cluster = Cluster::start_with(5, &Server::builder().durable());
    let (redlock, lease) = held_everywhere(&cluster).await;
    cluster[2].kill();
    cluster[3].kill();
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    let given_up = redlock.try_acquire("s").await.expect("three nodes are well");
    drop(given_up);
    // Long enough to fail a few times to connect.
    tokio::time::sleep(ms(1_200)).await;
    cluster[2].restart();
    cluster[3].restart();
    eventually("no key is left", || cluster.is_empty()).await;
    assert!(cluster[2].info("persistence")["aof_enabled"] == "1", "it had not forgotten the key");
    redlock.close().await.expect("all nodes are well");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_used_as_soon_as_it_is_up() {
    let cluster = Cluster::start(5);
    cluster[4].kill();
    let redlock = builder(&cluster).ttl(LONG).build().expect("good settings");
    let first = redlock.acquire("first").wait(SOON).await.expect("four nodes are well");
    eventually("it is found dead", || is_down(&redlock, 4)).await;
    // The pause between two tries has grown to its longest.
    tokio::time::sleep(ms(2_500)).await;
    cluster[4].restart();
    let begun = Instant::now();
    eventually("it is up", || is_up(&redlock, 4)).await;
    assert!(begun.elapsed() < ms(8_000), "found after {:?}", begun.elapsed());
    let next = redlock.try_acquire("next").await.expect("all nodes are well");
    eventually("the next lock is there", || cluster[4].get("next").is_some()).await;
    assert_eq!(first.release().await, Ok(ReleaseOutcome::Released));
    assert_eq!(next.release().await, Ok(ReleaseOutcome::Released));
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_all_nodes_dead_an_acquire_waits_idly_and_ends_as_an_outage() {
    let cluster = Cluster::start(5);
    let proxies = cluster.proxies();
    cluster.servers().iter().for_each(Server::kill);
    let redlock = through(&proxies).node_timeout(ms(50)).ttl(LONG).build();
    let redlock = redlock.expect("good settings");
    let eager = RetryPolicy::fixed(ms(0));
    let begun = Instant::now();
    let second = tokio::spawn(async {
        tokio::time::sleep(ms(1_000)).await;
        Instant::now()
    });
    let waits = (0..8).map(|n| {
        let acquire = redlock.acquire(format!("r{n}")).wait(ms(1_000)).retry(eager.clone());
        tokio::spawn(acquire)
    });
    for wait in waits.collect::<Vec<_>>() {
        let refused = wait.await.expect("no panic").expect_err("nobody is there");
        assert!(matches!(refused, AcquireError::NoQuorum { .. }), "{refused:?}");
    }
    let elapsed = begun.elapsed();
    // A machine that stands still holds up both.
    let late = Instant::now().saturating_duration_since(second.await.expect("no panic"));
    assert!(elapsed >= ms(900) && late < ms(4_000), "{elapsed:?}");
    let seconds = elapsed.as_secs() + 1;
    for proxy in &proxies {
        let (attempts, bytes) = (proxy.accepted(), proxy.bytes(Direction::Requests));
        assert!((1..20 * seconds).contains(&attempts), "{attempts} attempts to connect");
        // What is said before the reset: a greeting at most, never a SET.
        assert!(bytes < 1_000 * attempts, "{bytes} bytes in {attempts} attempts");
    }
}
