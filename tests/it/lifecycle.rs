//! Tests of the life cycle of a lease: acquire, hold, extend, release and drop.

use crate::{SOON, builder, client, eventually, ms};
use kit::{Cluster, Server};
use quorlock::{
    AcquireError, ConfigError, ExtendError, Loss, NodeState, ReleaseOutcome, RetryPolicy,
};
use std::time::Instant;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquire_sets_value_and_ttl_and_release_deletes_the_key() {
    let cluster = Cluster::start(5);
    let redlock = builder(&cluster).key_prefix("lock:").build().expect("valid settings");
    let lease = redlock.acquire("orders/42").ttl(ms(20_000)).await.expect("the lock is free");
    assert_eq!(lease.resource(), b"orders/42");
    assert_eq!(lease.value().len(), 32);
    eventually("the key is on all five nodes", || {
        cluster.servers().iter().all(|server| {
            server.get("lock:orders/42").as_deref() == Some(lease.value().as_bytes())
                && (1..=20_000).contains(&server.pttl("lock:orders/42"))
        })
    })
    .await;
    assert!(lease.is_valid());
    assert!(lease.validity() <= ms(20_000 - 202), "the ttl minus 1 % and 2 ms");
    assert!(lease.valid_until() > Instant::now());
    eventually("late grants are in the report", || lease.report().granted() == 5).await;
    assert_eq!(lease.report().needed(), 3);

    assert_eq!(lease.release().await.expect("nodes are up"), ReleaseOutcome::Released);
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn held_lock_is_refused_with_votes_until_its_release() {
    let cluster = Cluster::start(3);
    let (redlock, other_client) = (client(&cluster), client(&cluster));
    let lease = redlock.try_acquire("r").await.expect("the lock is free");
    let refused = other_client.try_acquire("r").await.expect_err("it is held");
    let AcquireError::Contended { report, .. } = &refused else { panic!("{refused:?}") };
    assert_eq!((report.granted(), report.needed()), (0, 2));
    assert!(
        refused.to_string().starts_with("held by another client: 0/3 granted (need 2): 127.0.0.1:")
    );
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    let lease = other_client.try_acquire("r").await.expect("the lock is released");
    drop(lease);
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn acquire_after_a_wait_has_full_validity() {
    let cluster = Cluster::start(3);
    let redlock =
        builder(&cluster).retry(RetryPolicy::fixed(ms(20))).build().expect("valid settings");
    let lease = redlock.try_acquire("r").await.expect("the lock is free");
    let waiting = tokio::spawn(redlock.acquire("r").wait(SOON).ttl(ms(30_000)));
    tokio::time::sleep(ms(300)).await;
    assert!(!waiting.is_finished(), "it is held");
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    let lease = waiting.await.expect("no panic").expect("the lock is released");
    // T1 is after the release, so less than 1 s of the ttl has passed, even on a busy machine.
    assert!(lease.validity() > ms(28_000), "{:?}", lease.validity());
}

#[tokio::test]
async fn wait_ends_with_contention() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let _lease = redlock.try_acquire("r").await.expect("the lock is free");
    let started = Instant::now();
    let refused = redlock.acquire("r").wait(ms(400)).await.expect_err("it is held");
    assert!(matches!(refused, AcquireError::Contended { .. }), "{refused:?}");
    assert!(started.elapsed() >= ms(50), "the acquire ended before its wait");
    let unwaited = redlock.acquire("r").wait(ms(0)).await.expect_err("the wait is zero");
    let is_expected =
        matches!(unwaited, AcquireError::Timeout { .. } | AcquireError::Contended { .. });
    assert!(is_expected, "{unwaited:?}");
}

#[tokio::test]
async fn extension_lengthens_and_never_shortens() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let lease = redlock.acquire("r").ttl(ms(20_000)).await.expect("the lock is free");
    lease.extend(ms(60_000)).await.expect("the lease is held");
    assert!(lease.validity() > ms(50_000));
    eventually("all nodes have the longer expiry", || {
        cluster.iter().all(|node| node.pttl("r") > 50_000)
    })
    .await;
    lease.extend(ms(5_000)).await.expect("the lease is held");
    assert!(lease.validity() > ms(40_000), "an extension never shortens");
    assert!(cluster.iter().all(|node| node.pttl("r") > 40_000));
    let refused = lease.extend(ms(0)).await.expect_err("no ttl");
    assert_eq!(refused, ExtendError::Invalid(ConfigError::BadTtl { setting: "ttl", ttl: ms(0) }));
    assert!(lease.is_valid());
}

#[tokio::test]
async fn expired_lease_is_lost_without_io_and_release_reports_it() {
    let cluster = Cluster::start(3);
    let redlock =
        builder(&cluster).node_timeout(ms(100)).ttl(ms(200)).build().expect("valid settings");
    let lease = redlock.acquire("r").wait(SOON).await.expect("the lock is free");
    eventually("the keys expire", || cluster.is_empty()).await;
    assert!(!lease.is_valid());
    assert_eq!(lease.validity(), ms(0));
    assert_eq!(lease.loss(), Some(Loss::Expired));
    let lost = lease.extend(ms(10_000)).await.expect_err("the lease has expired");
    assert!(matches!(lost, ExtendError::Lost { reason: Loss::Expired, .. }), "{lost:?}");
    assert!(cluster.is_empty(), "the extension set no key");
    assert_eq!(lease.release().await.expect("nodes are up"), ReleaseOutcome::Expired);
}

#[tokio::test]
async fn taken_over_lease_does_not_touch_the_new_key() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let lease = redlock.try_acquire("r").await.expect("the lock is free");
    for node in &cluster {
        node.set("r", "other");
    }
    let lost = lease.extend(ms(30_000)).await.expect_err("taken over");
    assert!(matches!(lost, ExtendError::Lost { reason: Loss::TakenOver, .. }), "{lost:?}");
    assert!(!lease.is_valid(), "a lost lease stays lost");
    assert_eq!(lease.release().await.expect("nodes are up"), ReleaseOutcome::TakenOver);
    for node in &cluster {
        assert_eq!(node.get("r").as_deref(), Some(&b"other"[..]));
        assert_eq!(node.pttl("r"), -1, "the expiry is unchanged");
    }
}

#[tokio::test]
async fn key_lost_by_a_minority_is_restored_by_a_majority_not() {
    let cluster = Cluster::start(5);
    let redlock = client(&cluster);
    let lease = redlock.try_acquire("r").await.expect("the lock is free");
    let is_set = |node: &Server| node.get("r").as_deref() == Some(lease.value().as_bytes());
    eventually("the key is on all nodes", || cluster.iter().all(is_set)).await;
    cluster[0].del("r");
    cluster[1].del("r");
    lease.extend(ms(30_000)).await.expect("three of five nodes have the key");
    eventually("the key is restored on two nodes", || cluster.iter().all(is_set)).await;
    assert!((1..=30_000).contains(&cluster[0].pttl("r")), "the restored key has a ttl");
    cluster.servers()[..3].iter().for_each(|node| assert!(node.del("r")));
    let lost = lease.extend(ms(30_000)).await.expect_err("two of five nodes have the key");
    assert!(matches!(lost, ExtendError::Lost { reason: Loss::QuorumLost, .. }), "{lost:?}");
    assert!(!is_set(&cluster[0]) && !lease.is_valid());
}

#[tokio::test]
async fn lease_survives_script_flush() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let lease = redlock.try_acquire("r").await.expect("the lock is free");
    let flush = || cluster.iter().for_each(|node| drop(node.cmd(&["SCRIPT", "FLUSH"])));
    flush();
    lease.extend(ms(60_000)).await.expect("the lease is held");
    flush();
    assert_eq!(lease.release().await.expect("nodes are up"), ReleaseOutcome::Released);
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn close_delivers_releases_and_refuses_new_acquires() {
    let cluster = Cluster::start(5);
    let redlock = client(&cluster);
    for i in 0..100 {
        drop(redlock.try_acquire(format!("r{i}")).await.expect("the lock is free"));
    }
    redlock.close().await.expect("all nodes are up");
    assert!(cluster.is_empty(), "close delivers all releases");
    let closed = redlock.try_acquire("r").await.expect_err("closed");
    assert_eq!(closed, AcquireError::Closed);
    assert_eq!(redlock.clone().acquire("r").await.expect_err("closed"), AcquireError::Closed);
}

#[tokio::test]
async fn client_reports_state_and_version_of_nodes() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    assert!(redlock.nodes().iter().all(|node| *node.state() == NodeState::Connecting));
    let _lease = redlock.try_acquire("r").await.expect("the lock is free");
    eventually("all nodes are up", || {
        redlock
            .nodes()
            .iter()
            .all(|node| *node.state() == NodeState::Up && node.version().is_some())
    })
    .await;
}
