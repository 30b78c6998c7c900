//! Tests of leases that are renewed in the background, and of leases that are lost.

use crate::{SOON, builder, current_thread, eventually, granted_by_all, ms, through};
use kit::{Cluster, Server};
use quorlock::{ExtendError, Lease, Loss, NodeState, Redlock, ReleaseOutcome};
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

fn client(cluster: &Cluster, ttl: u64) -> Redlock {
    builder(cluster).node_timeout(ms(200)).ttl(ms(ttl)).build().expect("valid settings")
}

async fn renewed(redlock: &Redlock) -> Lease {
    redlock.acquire("r").wait(SOON).auto_extend(Duration::from_mins(1)).await.expect("free")
}

async fn lost(lease: &Lease) -> Loss {
    timeout(SOON, lease.lost()).await.expect("the loss is reported")
}

#[tokio::test]
async fn lease_is_renewed_beyond_its_ttl_until_release() {
    let cluster = Cluster::start(5);
    let redlock = client(&cluster, 3_000);
    let lease = renewed(&redlock).await;
    let value = lease.value().to_owned();
    let started = Instant::now();
    while started.elapsed() < ms(7_000) {
        assert!(lease.is_valid(), "lost after {:?}: {:?}", started.elapsed(), lease.loss());
        sleep(ms(20)).await;
    }
    assert!(cluster.iter().all(|node| node.get("r").as_deref() == Some(value.as_bytes())));
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    eventually("no key is left", || cluster.is_empty()).await;
    sleep(ms(1_200)).await;
    assert!(cluster.is_empty(), "no late renewal restores a key");
}

#[tokio::test]
async fn dropped_lease_is_not_renewed() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster, 600);
    drop(renewed(&redlock).await);
    eventually("no key is left", || cluster.is_empty()).await;
    cluster.iter().for_each(Server::reset_stats);
    sleep(ms(700)).await;
    for node in &cluster {
        assert_eq!(node.calls("evalsha"), 0, "no renewal is sent");
    }
}

#[tokio::test]
async fn lease_ends_at_its_limit() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster, 3_000);
    let started = Instant::now();
    let lease = redlock.acquire("r").auto_extend(ms(5_000)).await.expect("the lock is free");
    assert_eq!(lost(&lease).await, Loss::MaxHold);
    assert!(started.elapsed() >= ms(4_000), "the lease was not renewed: {:?}", started.elapsed());
    assert!(!lease.is_valid() && lease.loss() == Some(Loss::MaxHold));
    eventually("the keys expire", || cluster.is_empty()).await;
}

#[tokio::test]
async fn loss_is_reported_when_the_validity_ends() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster, 600);
    let lease = redlock.try_acquire("r").await.expect("the lock is free");
    let valid_until = lease.valid_until();
    assert_eq!(lost(&lease).await, Loss::Expired);
    assert!(Instant::now() + ms(50) >= valid_until, "the loss is reported too early");
    assert!(!lease.is_valid());
    assert_eq!(lost(&lease).await, Loss::Expired, "later calls report the loss");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn loss_is_reported_in_time_on_a_blocked_runtime() {
    let cluster = Cluster::start(5);
    let redlock = client(&cluster, 2_000);
    let leases: Vec<Lease> = {
        let each = (0..20).map(|i| redlock.acquire(format!("r{i}")).auto_extend(SOON));
        futures::future::try_join_all(each).await.expect("the locks are free")
    };
    cluster.servers().iter().for_each(Server::stop);
    // An extension that was already sent may still count until the end of this pause.
    sleep(ms(300)).await;
    let blockers = (0..3).map(|_| tokio::spawn(async { std::thread::sleep(ms(12_000)) }));
    let blockers: Vec<_> = blockers.collect();
    let losses = leases.into_iter().map(|lease| {
        tokio::spawn(async move {
            let valid_until = lease.valid_until();
            let why = lease.lost().await;
            (why, Instant::now(), valid_until)
        })
    });
    for loss in losses.collect::<Vec<_>>() {
        let (why, at, valid_until) = loss.await.expect("no panic");
        assert_eq!(why, Loss::Expired);
        // The library reports the loss 2 ms early, but a busy machine may delay the task.
        assert!(
            at < valid_until + ms(5_000),
            "{:?} late",
            at.saturating_duration_since(valid_until)
        );
    }
    cluster.servers().iter().for_each(Server::cont);
    for blocker in blockers {
        blocker.await.expect("no panic");
    }
}

#[tokio::test]
async fn taken_over_lock_is_reported_and_left_unchanged() {
    let cluster = Cluster::start(5);
    let redlock = client(&cluster, 9_000);
    let lease = renewed(&redlock).await;
    eventually("all nodes have the key", || cluster.all_have("r")).await;
    for node in &cluster.servers()[..3] {
        node.set("r", "other");
    }
    assert_eq!(lost(&lease).await, Loss::TakenOver);
    assert!(!lease.is_valid());
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::TakenOver));
    for node in &cluster.servers()[..3] {
        assert_eq!(node.get("r").as_deref(), Some(&b"other"[..]));
        assert_eq!(node.pttl("r"), -1);
    }
}

#[tokio::test]
async fn renewal_restores_a_lost_key() {
    let cluster = Cluster::start(5);
    let redlock = client(&cluster, 3_000);
    let lease = renewed(&redlock).await;
    let value = lease.value().as_bytes().to_owned();
    eventually("all nodes have the key", || cluster.all_have("r")).await;
    cluster[0].del("r");
    cluster[1].kill();
    cluster[1].restart();
    eventually("the key is restored on both nodes", || {
        cluster.iter().all(|node| node.get("r").as_deref() == Some(&value))
    })
    .await;
    assert!(lease.is_valid());
    assert!((1..=3_000).contains(&cluster[1].pttl("r")), "the restored key has a ttl");
}

#[tokio::test]
async fn key_lost_by_a_majority_is_never_restored() {
    let cluster = Cluster::start(5);
    let redlock = client(&cluster, 9_000);
    let lease = renewed(&redlock).await;
    eventually("all nodes have the key", || cluster.all_have("r")).await;
    cluster.servers()[..3].iter().for_each(|node| assert!(node.del("r")));
    assert_eq!(lost(&lease).await, Loss::QuorumLost);
    sleep(ms(300)).await;
    assert!(cluster.servers()[..3].iter().all(|node| node.get("r").is_none()));
}

#[tokio::test]
async fn renewal_survives_a_stopped_minority() {
    let cluster = Cluster::start(5);
    let redlock = client(&cluster, 3_000);
    let lease = renewed(&redlock).await;
    for round in 0..2 {
        let (one, other) = (&cluster[round], &cluster[round + 1]);
        one.stop();
        other.stop();
        sleep(ms(3_500)).await;
        assert!(lease.is_valid(), "{:?}", lease.loss());
        one.cont();
        other.cont();
        let value = lease.value().as_bytes();
        eventually("all nodes have the key", || {
            cluster.iter().all(|node| node.get("r").as_deref() == Some(value))
        })
        .await;
    }
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn renewal_continues_on_another_runtime() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster, 3_000);
    // The connections of this runtime can renew a lease that was acquired on another runtime.
    assert_eq!(
        redlock.try_acquire("warm").await.expect("the lock is free").release().await,
        Ok(ReleaseOutcome::Released)
    );
    let elsewhere = redlock.clone();
    let acquire = move || current_thread().block_on(renewed(&elsewhere));
    let lease = tokio::task::spawn_blocking(acquire).await.expect("no panic");
    sleep(ms(6_000)).await;
    assert!(lease.is_valid(), "{:?}", lease.loss());
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
}

#[tokio::test]
async fn push_reports_a_taken_over_lock_at_once() {
    let cluster = Cluster::start(5);
    let (redlock, hour) = (builder(&cluster).build().expect("valid settings"), SOON * 180);
    for is_waiting in [true, false] {
        // The lease is not renewed during the test, so only a push can report the loss.
        let acquire = if is_waiting { redlock.acquire("r") } else { redlock.try_acquire("r") };
        let lease = acquire.ttl(hour).auto_extend(hour).await.expect("the lock is free");
        eventually("all nodes have the key", || cluster.all_have("r")).await;
        cluster[0].set("r", "other");
        cluster[1].set("r", "other");
        sleep(ms(100)).await;
        assert!(lease.is_valid(), "the lease survives the loss of a minority");
        cluster[2].set("r", "other");
        assert_eq!(lost(&lease).await, Loss::TakenOver);
        drop(lease);
        eventually("the lease's keys are deleted", || cluster[4].get("r").is_none()).await;
        assert_eq!(
            cluster[2].get("r").as_deref(),
            Some(&b"other"[..]),
            "the other client's key is unchanged"
        );
        cluster.iter().for_each(Server::flushall);
    }
}

#[tokio::test]
async fn loss_of_one_more_node_ends_the_lease() {
    let cluster = Cluster::start(5);
    let (redlock, hour) = (builder(&cluster).build().expect("valid settings"), SOON * 180);
    for is_asked in [true, false] {
        if !is_asked {
            cluster.servers()[..2].iter().for_each(|node| node.set("r", "other"));
        }
        let lease =
            redlock.acquire("r").ttl(hour).auto_extend(hour).await.expect("three nodes grant");
        let granted = if is_asked { 5 } else { 3 };
        eventually("all nodes have voted", || lease.report().granted() == granted).await;
        if is_asked {
            cluster.servers()[..2].iter().for_each(|node| node.set("r", "other"));
            // The extension finds the key on three nodes and another value on two.
            lease.extend(hour).await.expect("a majority holds the key");
        }
        cluster[2].set("r", "other");
        assert_eq!(lost(&lease).await, Loss::TakenOver);
        drop(lease);
        eventually("the lease's keys are deleted", || cluster[4].get("r").is_none()).await;
        cluster.iter().for_each(Server::flushall);
    }
}

#[tokio::test]
async fn push_reports_loss_of_a_lease_without_renewal() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).build().expect("valid settings");
    let lease = redlock.acquire("r").ttl(SOON * 180).await.expect("the lock is free");
    eventually("all nodes have the key", || cluster.all_have("r")).await;
    let loss = {
        let view = lease.view();
        tokio::spawn(async move { view.lost().await })
    };
    sleep(ms(50)).await;
    cluster.iter().for_each(Server::flushall);
    assert_eq!(
        timeout(SOON, loss).await.expect("the loss is reported").expect("no panic"),
        Loss::QuorumLost
    );
    assert!(!lease.is_valid());
    sleep(ms(100)).await;
    assert!(cluster.is_empty(), "a key lost by a majority is never restored");
}

#[tokio::test]
async fn one_client_renews_a_thousand_leases() {
    let cluster = Cluster::start(5);
    let redlock = builder(&cluster).ttl(ms(6_000)).build().expect("valid settings");
    let acquire = |i| redlock.acquire(format!("r{i}")).wait(SOON).auto_extend(SOON * 3);
    let leases =
        futures::future::try_join_all((0..1_000).map(acquire)).await.expect("the locks are free");
    sleep(ms(9_000)).await;
    let lost = leases.iter().filter_map(|lease| lease.loss()).collect::<Vec<_>>();
    assert!(lost.is_empty(), "{} were lost: {:?}", lost.len(), lost[0]);
    assert!(cluster.iter().all(|node| node.keys().len() == 1_000), "all nodes have all keys");
    drop(leases);
    eventually("no key is left", || cluster.is_empty()).await;
}

/// Checks that an acquire's command is no longer sent to a node after the lease is lost. The client is still connecting
/// to the third node when the other nodes lose the lock.
#[tokio::test]
async fn unsent_acquire_is_not_written_after_the_loss() {
    let cluster = Cluster::start(3);
    let proxies = cluster.proxies();
    let builder = through(&proxies).node_timeout(ms(5_000)).connect_timeout(ms(20_000));
    let redlock = builder.build().expect("valid settings");
    let _first = granted_by_all(&redlock, "first").await;
    // Commands wait for the next connection only if the previous one lasted this long.
    tokio::time::sleep(ms(1_500)).await;
    proxies[2].hold_connects(true);
    proxies[2].reset();
    let is_connecting = || *redlock.nodes()[2].state() == NodeState::Connecting;
    eventually("the node is connecting", is_connecting).await;
    let lease = redlock.acquire("r").await.expect("two nodes are up");
    cluster.servers()[..2].iter().for_each(|node| drop(node.cmd(&["DEL", "r"])));
    let refused = lease.extend(ms(30_000)).await.expect_err("a majority has lost the key");
    assert!(matches!(refused, ExtendError::Lost { reason: Loss::QuorumLost, .. }), "{refused:?}");
    proxies[2].heal();
    let _other = granted_by_all(&redlock, "other").await;
    assert_eq!(cluster[2].get("r"), None, "the key was set after the loss");
    drop(lease);
}

/// Checks that the client does not restore a key while it cannot know whether the lease is lost. One node has the key,
/// one has lost it, and one is down.
#[tokio::test]
async fn key_is_not_restored_without_a_known_majority() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster, 30_000);
    let lease = granted_by_all(&redlock, "r").await;
    cluster[1].cmd(&["DEL", "r"]);
    cluster[2].kill();
    for _ in 0..5 {
        let refused = lease.extend(ms(30_000)).await.expect_err("one of three nodes has the key");
        assert!(matches!(refused, ExtendError::NoQuorum { .. }), "{refused:?}");
        sleep(ms(20)).await;
        assert_eq!(cluster[1].get("r"), None);
    }
}
