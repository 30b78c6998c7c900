//! Waiting for a lock that is held: in order, woken by what happens, and always by a timer.

use crate::{SOON, all_up, builder, client, eventually, granted_by_all, ms, through};
use futures::FutureExt;
use kit::{Cluster, Direction, Proxy, Server};
use quorlock::{AcquireError, Redlock, RetryPolicy};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

/// A client that does not try again by itself within any test: only what happens can wake it.
fn patient(cluster: &Cluster) -> Redlock {
    let never = RetryPolicy::fixed(Duration::from_mins(10));
    builder(cluster).retry(never).wait(SOON).build().expect("good settings")
}

#[tokio::test]
async fn waiters_of_one_process_are_served_in_order() {
    let cluster = Cluster::start(5);
    let redlock = patient(&cluster);
    let first = redlock.try_acquire("r").await.expect("a free lock");
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut waiting = Vec::new();
    for number in 0..40 {
        let mut acquire = redlock.acquire("r");
        // Polled once, it stands in line.
        assert!((&mut acquire).now_or_never().is_none(), "it is held");
        let served = served.clone();
        waiting.push(tokio::spawn(async move {
            let lease = acquire.await.expect("its turn comes");
            served.lock().unwrap().push(number);
            lease.release().await.expect("nodes are up");
        }));
    }
    first.release().await.expect("nodes are up");
    for waiter in waiting {
        waiter.await.expect("no panic");
    }
    assert_eq!(*served.lock().unwrap(), (0..40).collect::<Vec<_>>());
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn a_release_by_another_client_wakes_a_waiter() {
    let cluster = Cluster::start(5);
    let (ours, theirs) = (patient(&cluster), client(&cluster));
    for _ in 0..20 {
        let held = theirs.acquire("r").wait(SOON).await.expect("free in time");
        let waiting = tokio::spawn(ours.acquire("r"));
        sleep(ms(20)).await;
        held.release().await.expect("nodes are up");
        let lease = timeout(SOON, waiting).await.expect("woken").expect("no panic");
        lease.expect("free").release().await.expect("nodes are up");
    }
}

#[tokio::test]
async fn who_waits_asks_seldom_where_the_nodes_tell_and_owes_no_release() {
    let cluster = Cluster::start(3);
    let (ours, theirs) = (client(&cluster), client(&cluster));
    let held = theirs.try_acquire("r").await.expect("a free lock");
    let waiting = tokio::spawn(ours.acquire("r").wait(SOON).into_future());
    // With each attempt, and where only one node is asked, too.
    let asked = |node: &Server| node.calls("pttl");
    eventually("it was refused twice", || cluster.iter().all(|node| asked(node) == 2)).await;
    let begun = Instant::now();
    sleep(ms(4_000)).await;
    let seconds = begun.elapsed().as_secs() + 1;
    let times: Vec<_> = cluster.iter().map(asked).collect();
    assert!(times.iter().all(|times| *times <= 2 + seconds), "{times:?} times in {seconds} s");
    // The third node may answer after the attempt is refused.
    let releases: u64 = cluster.iter().map(|node| node.calls("evalsha")).sum();
    assert!(releases <= times[0].max(times[1]).max(times[2]), "{releases} after {times:?}");
    let attempts: Vec<_> = cluster.iter().map(|node| node.calls("set") - 1).collect();
    assert!(attempts.iter().zip(&times).all(|(set, asked)| set <= asked), "{attempts:?} {times:?}");
    held.release().await.expect("nodes are up");
    let lease = timeout(SOON, waiting).await.expect("woken").expect("no panic");
    lease.expect("free").release().await.expect("nodes are up");
}

#[tokio::test]
async fn an_expiry_ends_the_wait_also_where_nobody_tells() {
    // Without CLIENT TRACKING, a server does not push.
    let silent = Server::builder().arg("--rename-command").arg("CLIENT").arg("");
    for cluster in [Cluster::start(3), Cluster::start_with(3, &silent)] {
        let (ours, theirs) = (patient(&cluster), client(&cluster));
        let held = theirs.acquire("r").ttl(ms(1_500)).await.expect("a free lock");
        std::mem::forget(held); // As if its process had died.
        let begun = Instant::now();
        let lease = ours.acquire("r").await.expect("free when it has expired");
        assert!(begun.elapsed() < ms(10_000), "{:?}", begun.elapsed());
        lease.release().await.expect("nodes are up");
    }
}

#[tokio::test]
async fn a_waiter_whose_pushes_are_lost_still_gets_the_lock() {
    let cluster = Cluster::start(3);
    let proxies = cluster.proxies();
    let retry = RetryPolicy::fixed(ms(200));
    let ours = through(&proxies).retry(retry).build().expect("good settings");
    let held = client(&cluster).try_acquire("r").await.expect("a free lock");
    let waiting = tokio::spawn(ours.acquire("r").wait(SOON));
    sleep(ms(300)).await;
    // Broken connections are pushes that never come.
    for proxy in &proxies {
        proxy.refuse(true);
        proxy.reset();
    }
    held.release().await.expect("nodes are up");
    sleep(ms(100)).await;
    proxies.iter().for_each(Proxy::heal);
    let lease = timeout(SOON, waiting).await.expect("in time").expect("no panic");
    lease.expect("free").release().await.expect("nodes are up");
}

#[tokio::test]
async fn what_a_release_costs_does_not_grow_with_the_waiters() {
    let mut costs = Vec::new();
    for waiters in [4, 64] {
        let cluster = Cluster::start(3);
        let redlock = client(&cluster);
        let first = redlock.try_acquire("r").await.expect("a free lock");
        let waiting = (0..waiters).map(|_| {
            let acquire = redlock.acquire("r").wait(SOON);
            tokio::spawn(async move {
                let lease = acquire.await.expect("its turn comes");
                sleep(ms(2)).await;
                lease.release().await.expect("nodes are up");
            })
        });
        let waiting: Vec<_> = waiting.collect();
        first.release().await.expect("nodes are up");
        for waiter in waiting {
            waiter.await.expect("no panic");
        }
        let node = &cluster[0];
        costs.push((node.calls("set") + node.calls("evalsha")) / (waiters + 1));
    }
    assert!(costs[0] <= 8 && costs[1] <= 8, "commands per release and node: {costs:?}");
}

#[tokio::test]
async fn gives_up_early_and_after_its_attempts() {
    let cluster = Cluster::start(3);
    let (ours, theirs) = (client(&cluster), client(&cluster));
    let _held = theirs.try_acquire("r").await.expect("a free lock");
    let begun = Instant::now();
    let refused = ours.acquire("r").wait(SOON).give_up_early().await.expect_err("held for 30 s");
    assert!(matches!(refused, AcquireError::Contended { .. }), "{refused:?}");
    let refused = ours.acquire("r").wait(SOON).max_attempts(2).await.expect_err("it is held");
    assert!(matches!(refused, AcquireError::Contended { .. }), "{refused:?}");
    assert!(begun.elapsed() < ms(10_000), "neither waited to the end");
}

#[tokio::test]
async fn a_wait_that_ends_in_the_line_says_what_the_first_saw() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let _held = redlock.try_acquire("r").await.expect("a free lock");
    let first = tokio::spawn(redlock.acquire("r").wait(ms(1_500)));
    sleep(ms(100)).await;
    let second = redlock.acquire("r").wait(ms(500)).await.expect_err("it is held");
    let AcquireError::Contended { report, .. } = &second else { panic!("{second:?}") };
    assert_eq!(report.granted(), 0);
    assert!(first.await.expect("no panic").is_err());
}

#[tokio::test]
async fn an_outage_is_not_contention_for_those_in_the_line_either() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    cluster.servers().iter().for_each(Server::kill);
    let first = tokio::spawn(redlock.acquire("r").wait(ms(1_500)));
    sleep(ms(100)).await;
    let second = redlock.acquire("r").wait(ms(700)).await.expect_err("nobody answers");
    assert!(matches!(second, AcquireError::NoQuorum { .. }), "{second:?}");
    let first = first.await.expect("no panic").expect_err("nobody answers");
    assert!(matches!(first, AcquireError::NoQuorum { .. }), "{first:?}");
}

#[tokio::test]
async fn ties_of_even_numbers_of_nodes_settle() {
    for nodes in [2, 4] {
        let cluster = Cluster::start(nodes);
        let tasks = (0..4).map(|_| {
            // Each is a client of its own, so all of them compete on the nodes.
            let redlock = client(&cluster);
            tokio::spawn(async move {
                for _ in 0..10 {
                    let lease = redlock.acquire("r").wait(SOON).await.expect("its turn comes");
                    lease.release().await.expect("nodes are up");
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            timeout(SOON * 3, task).await.expect("no tie for ever").expect("no panic");
        }
        eventually("no key is left", || cluster.is_empty()).await;
    }
}

#[tokio::test]
async fn attempts_come_when_the_policy_says_and_end_with_it() {
    // No pushes, and no ttl to wait for: only the policy wakes.
    let silent = Server::builder().arg("--rename-command").arg("CLIENT").arg("");
    let cluster = Cluster::start_with(3, &silent);
    cluster.iter().for_each(|node| node.set("r", "held for ever"));
    let redlock = client(&cluster);
    // A node that is not connected when an attempt is decided is not asked any more.
    drop(redlock.try_acquire("other").await.expect("a free lock"));
    eventually("all are connected", || all_up(&redlock)).await;
    let policies = [
        (RetryPolicy::none(), 1),
        (RetryPolicy::fixed(ms(20)).limit(3), 4),
        (RetryPolicy::linear(ms(5), ms(20)).limit(4), 5),
        (RetryPolicy::exponential(ms(5), ms(20)).limit(2), 3),
        (RetryPolicy::jittered(ms(5)..ms(20)).limit(1), 2),
        (RetryPolicy::custom(|| [ms(5), ms(10)].into_iter()), 3),
    ];
    for (policy, attempts) in policies {
        cluster.iter().for_each(Server::reset_stats);
        let shown = format!("{policy:?}");
        let refused = redlock.acquire("r").wait(SOON).retry(policy).await.expect_err("held");
        assert!(matches!(refused, AcquireError::Contended { .. }), "{shown}: {refused}");
        // The last votes of the last round may still be under way.
        let made = |node: &Server| node.calls("set") == attempts;
        eventually(&format!("{attempts} attempts: {shown}"), || cluster.iter().all(made)).await;
    }
}

#[tokio::test]
async fn a_waiter_whose_pushes_are_swallowed_gets_the_lock_by_a_timer() {
    let cluster = Cluster::start(3);
    let proxies = cluster.proxies();
    for proxy in &proxies {
        proxy.discard_pushes(true);
    }
    let ours = |retry| through(&proxies).retry(retry).wait(SOON).build().expect("good settings");
    let theirs = client(&cluster);

    // After a release, by that of the retry policy. More than once: a node that was asked at the
    // very time of the release has nothing to push.
    for _ in 0..3 {
        let held = theirs.acquire("r").wait(SOON).await.expect("free in time");
        let waiting = tokio::spawn(ours(RetryPolicy::fixed(ms(200))).acquire("r"));
        sleep(ms(300)).await;
        assert!(!waiting.is_finished(), "it is held");
        held.release().await.expect("nodes are up");
        let lease = timeout(SOON, waiting).await.expect("in time").expect("no panic");
        lease.expect("free").release().await.expect("nodes are up");
    }
    eventually("pushes of each node are lost", || proxies.iter().all(|p| p.discarded_pushes() > 0))
        .await;

    // After an expiry, of which a node may tell late or never, by that of the holder's ttl.
    let held = theirs.acquire("r").ttl(ms(1_500)).wait(SOON).await.expect("free in time");
    std::mem::forget(held); // As if its process had died.
    let waiting = ours(RetryPolicy::fixed(Duration::from_mins(10))).acquire("r");
    let lease = timeout(SOON, waiting).await.expect("in time").expect("free when it has expired");
    lease.release().await.expect("nodes are up");
    eventually("no key is left", || cluster.is_empty()).await;
}

/// A release that a node did not know how to run comes behind what the next one asks at once, and nodes push nothing
/// of what is done over the same connection.
#[tokio::test]
async fn the_next_is_told_of_a_release_that_had_to_be_sent_again() {
    let cluster = Cluster::start(3);
    let redlock = patient(&cluster);
    let lease = granted_by_all(&redlock, "r").await;
    let waiting = tokio::spawn(redlock.acquire("r").into_future());
    let waits = || cluster.iter().all(|node| node.calls("pttl") > 1);
    eventually("it has asked", waits).await;
    cluster.iter().for_each(|node| drop(node.cmd(&["SCRIPT", "FLUSH"])));
    lease.release().await.expect("nodes are up");
    drop(waiting.await.expect("no panic").expect("it is told that the lock is free"));
}

/// With two nodes, one refusal decides. What the other one says is heard later, and may be what was missing.
#[tokio::test]
async fn who_waits_is_told_of_a_node_that_grants_after_the_attempt_was_refused() {
    let cluster = Cluster::start(2);
    let proxy = Proxy::start(cluster[1].addr());
    let never = RetryPolicy::fixed(Duration::from_mins(10));
    let ours = Redlock::builder().nodes([cluster[0].url(), proxy.url()]).ttl(ms(60_000));
    let ours = ours.node_timeout(SOON).retry(never).wait(SOON).build().expect("good settings");
    ours.acquire("other").await.expect("a free lock").release().await.expect("nodes are up");
    let held = client(&cluster).acquire("r").ttl(ms(60_000)).await.expect("a free lock");

    proxy.hold(Direction::Requests);
    let asked = cluster[0].calls("pttl");
    let waiting = tokio::spawn(ours.acquire("r").into_future());
    eventually("it was refused", || cluster[0].calls("pttl") > asked).await;
    held.release().await.expect("nodes are up");
    // The node that refused tells at once that the lock is gone.
    sleep(ms(200)).await;
    proxy.heal();
    let lease = waiting.await.expect("no panic").expect("it is told that both are free");
    lease.release().await.expect("nodes are up");
}
