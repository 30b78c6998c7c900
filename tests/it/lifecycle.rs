//! Acquire, hold, extend, release, drop.

use crate::{SOON, builder, client, eventually, ms};
use kit::{Cluster, Server};
use quorlock::{
    AcquireError, ConfigError, ExtendError, Loss, NodeState, ReleaseOutcome, RetryPolicy,
};
use std::time::Instant;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_on_every_node_with_its_value_and_ttl_and_is_gone_after_release() {
    let cluster = Cluster::start(5);
    let redlock = builder(&cluster).key_prefix("lock:").build().expect("good settings");
    let lease = redlock.acquire("orders/42").ttl(ms(20_000)).await.expect("a free lock");
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
    assert!(lease.validity() <= ms(20_000 - 202), "ttl less 1 % and 2 ms");
    assert!(lease.valid_until() > Instant::now());
    eventually("late grants are in the report", || lease.report().granted() == 5).await;
    assert_eq!(lease.report().needed(), 3);

    assert_eq!(lease.release().await.expect("nodes are up"), ReleaseOutcome::Released);
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn a_held_lock_is_refused_with_the_votes_and_free_again_after_release() {
    let cluster = Cluster::start(3);
    let (ours, theirs) = (client(&cluster), client(&cluster));
    let lease = ours.try_acquire("r").await.expect("a free lock");
    let refused = theirs.try_acquire("r").await.expect_err("it is held");
    let AcquireError::Contended { report, .. } = &refused else { panic!("{refused:?}") };
    assert_eq!((report.granted(), report.needed()), (0, 2));
    assert!(
        refused.to_string().starts_with("held by another client: 0/3 granted (need 2): 127.0.0.1:")
    );
    lease.release().await.expect("nodes are up");
    let lease = theirs.try_acquire("r").await.expect("free again");
    drop(lease);
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn acquire_waits_for_a_holder_and_has_its_full_validity_then() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).retry(RetryPolicy::fixed(ms(20))).build().expect("good");
    let lease = redlock.try_acquire("r").await.expect("a free lock");
    let waiting = tokio::spawn(redlock.acquire("r").wait(SOON).ttl(ms(30_000)));
    tokio::time::sleep(ms(300)).await;
    assert!(!waiting.is_finished(), "it is held");
    lease.release().await.expect("nodes are up");
    let lease = waiting.await.expect("no panic").expect("free after the release");
    // Its T1 lies after the release: less than a second of the ttl is used up, on any machine.
    assert!(lease.validity() > ms(28_000), "{:?}", lease.validity());
}

#[tokio::test]
async fn a_wait_ends_with_what_was_seen() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let _lease = redlock.try_acquire("r").await.expect("a free lock");
    let begun = Instant::now();
    let refused = redlock.acquire("r").wait(ms(400)).await.expect_err("it is held");
    assert!(matches!(refused, AcquireError::Contended { .. }), "{refused:?}");
    assert!(begun.elapsed() >= ms(50), "it tried again");
    let hasty = redlock.acquire("r").wait(ms(0)).await.expect_err("no time at all");
    let kinds = matches!(hasty, AcquireError::Timeout { .. } | AcquireError::Contended { .. });
    assert!(kinds, "{hasty:?}");
}

#[tokio::test]
async fn an_extension_lengthens_and_never_shortens() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let lease = redlock.acquire("r").ttl(ms(20_000)).await.expect("a free lock");
    lease.extend(ms(60_000)).await.expect("still held");
    assert!(lease.validity() > ms(50_000));
    eventually("all nodes know", || cluster.iter().all(|node| node.pttl("r") > 50_000)).await;
    lease.extend(ms(5_000)).await.expect("still held");
    assert!(lease.validity() > ms(40_000), "never shorter");
    assert!(cluster.iter().all(|node| node.pttl("r") > 40_000));
    let refused = lease.extend(ms(0)).await.expect_err("no ttl");
    assert_eq!(refused, ExtendError::Invalid(ConfigError::BadTtl { setting: "ttl", ttl: ms(0) }));
    assert!(lease.is_valid());
}

#[tokio::test]
async fn an_expired_lease_says_so_without_asking_and_release_tells_it() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).node_timeout(ms(100)).ttl(ms(200)).build().expect("good");
    let lease = redlock.acquire("r").wait(SOON).await.expect("a free lock");
    eventually("its keys expire", || cluster.is_empty()).await;
    assert!(!lease.is_valid());
    assert_eq!(lease.validity(), ms(0));
    assert_eq!(lease.loss(), Some(Loss::Expired));
    let lost = lease.extend(ms(10_000)).await.expect_err("it has ended");
    assert!(matches!(lost, ExtendError::Lost { reason: Loss::Expired, .. }), "{lost:?}");
    assert!(cluster.is_empty(), "nothing was set anew");
    assert_eq!(lease.release().await.expect("nodes are up"), ReleaseOutcome::Expired);
}

#[tokio::test]
async fn a_lease_that_was_taken_over_touches_nothing_of_the_new_holders() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let lease = redlock.try_acquire("r").await.expect("a free lock");
    for node in &cluster {
        node.set("r", "somebody else's");
    }
    let lost = lease.extend(ms(30_000)).await.expect_err("taken over");
    assert!(matches!(lost, ExtendError::Lost { reason: Loss::TakenOver, .. }), "{lost:?}");
    assert!(!lease.is_valid(), "once lost, it stays lost");
    assert_eq!(lease.release().await.expect("nodes are up"), ReleaseOutcome::TakenOver);
    for node in &cluster {
        assert_eq!(node.get("r").as_deref(), Some(&b"somebody else's"[..]));
        assert_eq!(node.pttl("r"), -1, "not even its expiry");
    }
}

#[tokio::test]
async fn a_key_lost_by_a_minority_is_set_again_and_by_a_majority_never() {
    let cluster = Cluster::start(5);
    let redlock = client(&cluster);
    let lease = redlock.try_acquire("r").await.expect("a free lock");
    let is_set = |node: &Server| node.get("r").as_deref() == Some(lease.value().as_bytes());
    eventually("the key is on all nodes", || cluster.iter().all(is_set)).await;
    cluster[0].del("r");
    cluster[1].del("r");
    lease.extend(ms(30_000)).await.expect("three of five still hold it");
    eventually("two get it back", || cluster.iter().all(is_set)).await;
    assert!((1..=30_000).contains(&cluster[0].pttl("r")), "with a ttl");
    cluster.servers()[..3].iter().for_each(|node| assert!(node.del("r")));
    let lost = lease.extend(ms(30_000)).await.expect_err("two of five hold it");
    assert!(matches!(lost, ExtendError::Lost { reason: Loss::QuorumLost, .. }), "{lost:?}");
    assert!(!is_set(&cluster[0]) && !lease.is_valid());
}

#[tokio::test]
async fn a_script_flush_between_acquire_and_release_changes_nothing() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let lease = redlock.try_acquire("r").await.expect("a free lock");
    let flush = || cluster.iter().for_each(|node| drop(node.cmd(&["SCRIPT", "FLUSH"])));
    flush();
    lease.extend(ms(60_000)).await.expect("still held");
    flush();
    assert_eq!(lease.release().await.expect("nodes are up"), ReleaseOutcome::Released);
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn close_delivers_what_was_dropped_and_refuses_from_then_on() {
    let cluster = Cluster::start(5);
    let redlock = client(&cluster);
    for i in 0..100 {
        drop(redlock.try_acquire(format!("r{i}")).await.expect("a free lock"));
    }
    redlock.close().await.expect("all nodes are up");
    assert!(cluster.is_empty(), "when close returns, all is delivered");
    let closed = redlock.try_acquire("r").await.expect_err("closed");
    assert_eq!(closed, AcquireError::Closed);
    assert_eq!(redlock.clone().acquire("r").await.expect_err("closed"), AcquireError::Closed);
}

#[tokio::test]
async fn the_client_knows_its_nodes() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    assert!(redlock.nodes().iter().all(|node| *node.state() == NodeState::Connecting));
    let _lease = redlock.try_acquire("r").await.expect("a free lock");
    eventually("all nodes are up", || {
        redlock
            .nodes()
            .iter()
            .all(|node| *node.state() == NodeState::Up && node.version().is_some())
    })
    .await;
}
