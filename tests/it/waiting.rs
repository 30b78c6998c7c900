//! Tests of waiting for a held lock: queue order, notifications and timers.

use crate::{SOON, all_up, builder, client, eventually, granted_by_all, ms, through};
use futures::FutureExt;
use kit::{Cluster, Direction, Proxy, Server};
use quorlock::{AcquireError, Redlock, ReleaseOutcome, RetryPolicy};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

/// Creates a client whose retry delay exceeds every test, so only a notification can wake its waiters.
fn client_without_retries(cluster: &Cluster) -> Redlock {
    let never = RetryPolicy::fixed(Duration::from_mins(10));
    builder(cluster).retry(never).wait(SOON).build().expect("valid settings")
}

#[tokio::test]
async fn waiters_of_one_process_are_served_in_order() {
    let cluster = Cluster::start(5);
    let redlock = client_without_retries(&cluster);
    let first = redlock.try_acquire("r").await.expect("the lock is free");
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut waiting = Vec::new();
    for number in 0..40 {
        let mut acquire = redlock.acquire("r");
        // The first poll queues the acquire.
        assert!((&mut acquire).now_or_never().is_none(), "it is held");
        let served = served.clone();
        waiting.push(tokio::spawn(async move {
            let lease = acquire.await.expect("the lock becomes free");
            served.lock().unwrap().push(number);
            assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
        }));
    }
    assert_eq!(first.release().await, Ok(ReleaseOutcome::Released));
    for waiter in waiting {
        waiter.await.expect("no panic");
    }
    assert_eq!(*served.lock().unwrap(), (0..40).collect::<Vec<_>>());
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn release_by_another_client_wakes_a_waiter() {
    let cluster = Cluster::start(5);
    let (redlock, other_client) = (client_without_retries(&cluster), client(&cluster));
    for _ in 0..20 {
        let held = other_client.acquire("r").wait(SOON).await.expect("the lock is free");
        let waiting = tokio::spawn(redlock.acquire("r"));
        sleep(ms(20)).await;
        assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
        let lease = timeout(SOON, waiting).await.expect("the waiter is woken").expect("no panic");
        assert_eq!(lease.expect("free").release().await, Ok(ReleaseOutcome::Released));
    }
}

#[tokio::test]
async fn waiter_with_pushes_sends_few_commands() {
    let cluster = Cluster::start(3);
    let (redlock, other_client) = (client(&cluster), client(&cluster));
    let held = other_client.try_acquire("r").await.expect("the lock is free");
    let waiting = tokio::spawn(redlock.acquire("r").wait(SOON).into_future());
    // Every attempt sends `PTTL`, even an attempt that contacts only one node.
    let asked = |node: &Server| node.calls("pttl");
    eventually("the acquire is refused twice", || cluster.iter().all(|node| asked(node) == 2))
        .await;
    let started = Instant::now();
    sleep(ms(4_000)).await;
    let seconds = started.elapsed().as_secs() + 1;
    let times: Vec<_> = cluster.iter().map(asked).collect();
    assert!(times.iter().all(|times| *times <= 2 + seconds), "{times:?} times in {seconds} s");
    // The third node may reply after the attempt was refused.
    let releases: u64 = cluster.iter().map(|node| node.calls("evalsha")).sum();
    assert!(releases <= times[0].max(times[1]).max(times[2]), "{releases} after {times:?}");
    let attempts: Vec<_> = cluster.iter().map(|node| node.calls("set") - 1).collect();
    assert!(attempts.iter().zip(&times).all(|(set, asked)| set <= asked), "{attempts:?} {times:?}");
    assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
    let lease = timeout(SOON, waiting).await.expect("the waiter is woken").expect("no panic");
    assert_eq!(lease.expect("free").release().await, Ok(ReleaseOutcome::Released));
}

#[tokio::test]
async fn expiry_ends_the_wait_without_pushes() {
    // Without `CLIENT TRACKING`, a server does not push.
    let silent = Server::builder().arg("--rename-command").arg("CLIENT").arg("");
    for cluster in [Cluster::start(3), Cluster::start_with(3, &silent)] {
        let (redlock, other_client) = (client_without_retries(&cluster), client(&cluster));
        let held = other_client.acquire("r").ttl(ms(1_500)).await.expect("the lock is free");
        std::mem::forget(held); // Simulates a crashed process.
        let started = Instant::now();
        let lease = redlock.acquire("r").await.expect("the lock expires");
        assert!(started.elapsed() < ms(10_000), "{:?}", started.elapsed());
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    }
}

#[tokio::test]
async fn waiter_with_lost_pushes_acquires_the_lock() {
    let cluster = Cluster::start(3);
    let proxies = cluster.proxies();
    let retry = RetryPolicy::fixed(ms(200));
    let redlock = through(&proxies).retry(retry).build().expect("valid settings");
    let held = client(&cluster).try_acquire("r").await.expect("the lock is free");
    let waiting = tokio::spawn(redlock.acquire("r").wait(SOON));
    sleep(ms(300)).await;
    // Broken connections lose their pushes.
    for proxy in &proxies {
        proxy.refuse(true);
        proxy.reset();
    }
    assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
    sleep(ms(100)).await;
    proxies.iter().for_each(Proxy::heal);
    let lease =
        timeout(SOON, waiting).await.expect("the waiter acquires the lock").expect("no panic");
    assert_eq!(lease.expect("free").release().await, Ok(ReleaseOutcome::Released));
}

#[tokio::test]
async fn cost_of_a_release_does_not_grow_with_waiters() {
    let mut costs = Vec::new();
    for waiters in [4, 64] {
        let cluster = Cluster::start(3);
        let redlock = client(&cluster);
        let first = redlock.try_acquire("r").await.expect("the lock is free");
        let waiting = (0..waiters).map(|_| {
            let acquire = redlock.acquire("r").wait(SOON);
            tokio::spawn(async move {
                let lease = acquire.await.expect("the lock becomes free");
                sleep(ms(2)).await;
                assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
            })
        });
        let waiting: Vec<_> = waiting.collect();
        assert_eq!(first.release().await, Ok(ReleaseOutcome::Released));
        for waiter in waiting {
            waiter.await.expect("no panic");
        }
        let node = &cluster[0];
        costs.push((node.calls("set") + node.calls("evalsha")) / (waiters + 1));
    }
    assert!(costs[0] <= 8 && costs[1] <= 8, "commands per release and node: {costs:?}");
}

#[tokio::test]
async fn give_up_early_and_max_attempts_end_the_wait() {
    let cluster = Cluster::start(3);
    let (redlock, other_client) = (client(&cluster), client(&cluster));
    let _held = other_client.try_acquire("r").await.expect("the lock is free");
    let started = Instant::now();
    let refused = redlock.acquire("r").wait(SOON).give_up_early().await.expect_err("held for 30 s");
    assert!(matches!(refused, AcquireError::Contended { .. }), "{refused:?}");
    let refused = redlock.acquire("r").wait(SOON).max_attempts(2).await.expect_err("it is held");
    assert!(matches!(refused, AcquireError::Contended { .. }), "{refused:?}");
    assert!(started.elapsed() < ms(10_000), "an acquire used its whole wait");
}

#[tokio::test]
async fn queued_acquire_reports_the_votes_of_the_head() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let _held = redlock.try_acquire("r").await.expect("the lock is free");
    let first = tokio::spawn(redlock.acquire("r").wait(ms(1_500)));
    sleep(ms(100)).await;
    let second = redlock.acquire("r").wait(ms(500)).await.expect_err("it is held");
    let AcquireError::Contended { report, .. } = &second else { panic!("{second:?}") };
    assert_eq!(report.granted(), 0);
    assert!(first.await.expect("no panic").is_err());
}

#[tokio::test]
async fn queued_acquire_reports_an_outage() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    cluster.servers().iter().for_each(Server::kill);
    let first = tokio::spawn(redlock.acquire("r").wait(ms(1_500)));
    sleep(ms(100)).await;
    let second = redlock.acquire("r").wait(ms(700)).await.expect_err("no node replies");
    assert!(matches!(second, AcquireError::NoQuorum { .. }), "{second:?}");
    let first = first.await.expect("no panic").expect_err("no node replies");
    assert!(matches!(first, AcquireError::NoQuorum { .. }), "{first:?}");
}

#[tokio::test]
async fn split_votes_of_even_numbers_of_nodes_settle() {
    for nodes in [2, 4] {
        let cluster = Cluster::start(nodes);
        let tasks = (0..4).map(|_| {
            // Each task has its own client, so all tasks compete on the nodes.
            let redlock = client(&cluster);
            tokio::spawn(async move {
                for _ in 0..10 {
                    let lease =
                        redlock.acquire("r").wait(SOON).await.expect("the lock becomes free");
                    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            timeout(SOON * 3, task).await.expect("every task is served").expect("no panic");
        }
        eventually("no key is left", || cluster.is_empty()).await;
    }
}

#[tokio::test]
async fn retry_policy_determines_the_attempts() {
    // Without pushes and without a ttl on the key, only the retry policy wakes the acquire.
    let silent = Server::builder().arg("--rename-command").arg("CLIENT").arg("");
    let cluster = Cluster::start_with(3, &silent);
    cluster.iter().for_each(|node| node.set("r", "no expiry"));
    let redlock = client(&cluster);
    // A node that is not connected when an attempt ends receives no command of that attempt.
    drop(redlock.try_acquire("other").await.expect("the lock is free"));
    eventually("all nodes are up", || all_up(&redlock)).await;
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
        // Some votes of the last round may still be outstanding.
        let made = |node: &Server| node.calls("set") == attempts;
        eventually(&format!("{attempts} attempts: {shown}"), || cluster.iter().all(made)).await;
    }
}

#[tokio::test]
async fn waiter_with_suppressed_pushes_acquires_by_timer() {
    let cluster = Cluster::start(3);
    let proxies = cluster.proxies();
    for proxy in &proxies {
        proxy.discard_pushes(true);
    }
    let redlock =
        |retry| through(&proxies).retry(retry).wait(SOON).build().expect("valid settings");
    let other_client = client(&cluster);

    // After a release, the timer of the retry policy wakes the waiter. The test repeats this, because a node that
    // receives a command at the time of the release pushes no deletion.
    for _ in 0..3 {
        let held = other_client.acquire("r").wait(SOON).await.expect("the lock is free");
        let waiting = tokio::spawn(redlock(RetryPolicy::fixed(ms(200))).acquire("r"));
        sleep(ms(300)).await;
        assert!(!waiting.is_finished(), "it is held");
        assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
        let lease =
            timeout(SOON, waiting).await.expect("the waiter acquires the lock").expect("no panic");
        assert_eq!(lease.expect("free").release().await, Ok(ReleaseOutcome::Released));
    }
    eventually("pushes of each node are lost", || proxies.iter().all(|p| p.discarded_pushes() > 0))
        .await;

    // After an expiry, whose push may be late or missing, the timer for the holder's ttl wakes the waiter.
    let held = other_client.acquire("r").ttl(ms(1_500)).wait(SOON).await.expect("the lock is free");
    std::mem::forget(held); // Simulates a crashed process.
    let waiting = redlock(RetryPolicy::fixed(Duration::from_mins(10))).acquire("r");
    let lease = timeout(SOON, waiting)
        .await
        .expect("the waiter acquires the lock")
        .expect("the lock expires");
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    eventually("no key is left", || cluster.is_empty()).await;
}

/// Checks that a release that was repeated after a NOSCRIPT error notifies the next waiter. The nodes execute the
/// repeated release after the command of the waiting acquire, and do not notify a connection of its own changes.
#[tokio::test]
async fn repeated_release_notifies_the_next_waiter() {
    let cluster = Cluster::start(3);
    let redlock = client_without_retries(&cluster);
    let lease = granted_by_all(&redlock, "r").await;
    let waiting = tokio::spawn(redlock.acquire("r").into_future());
    let is_refused = || cluster.iter().all(|node| node.calls("pttl") > 1);
    eventually("the acquire is refused", is_refused).await;
    cluster.iter().for_each(|node| drop(node.cmd(&["SCRIPT", "FLUSH"])));
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    drop(waiting.await.expect("no panic").expect("the waiter is notified"));
}

/// Checks that a grant that arrives after the attempt was refused notifies the waiter. With two nodes, one refusal
/// decides the attempt, but the other node's later grant can still complete a quorum.
#[tokio::test]
async fn late_grant_notifies_the_waiter() {
    let cluster = Cluster::start(2);
    let proxy = Proxy::start(cluster[1].addr());
    let never = RetryPolicy::fixed(Duration::from_mins(10));
    let redlock = Redlock::builder().nodes([cluster[0].url(), proxy.url()]).ttl(ms(60_000));
    let redlock =
        redlock.node_timeout(SOON).retry(never).wait(SOON).build().expect("valid settings");
    assert_eq!(
        redlock.acquire("other").await.expect("the lock is free").release().await,
        Ok(ReleaseOutcome::Released)
    );
    let held = client(&cluster).acquire("r").ttl(ms(60_000)).await.expect("the lock is free");

    proxy.hold(Direction::Requests);
    let asked = cluster[0].calls("pttl");
    let waiting = tokio::spawn(redlock.acquire("r").into_future());
    eventually("the acquire is refused", || cluster[0].calls("pttl") > asked).await;
    assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
    // The node that refused the acquire pushes the deletion immediately.
    sleep(ms(200)).await;
    proxy.heal();
    let lease = waiting.await.expect("no panic").expect("the waiter is notified");
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
}
