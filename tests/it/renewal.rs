//! Leases that are extended in the background, and leases that are lost.

use crate::{SOON, builder, current_thread, eventually, granted_by_all, ms, through};
use kit::{Cluster, Server};
use quorlock::{ExtendError, Lease, Loss, NodeState, Redlock};
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

fn client(cluster: &Cluster, ttl: u64) -> Redlock {
    builder(cluster).node_timeout(ms(200)).ttl(ms(ttl)).build().expect("good settings")
}

async fn kept_up(redlock: &Redlock) -> Lease {
    redlock.acquire("r").wait(SOON).auto_extend(Duration::from_mins(1)).await.expect("free")
}

async fn lost(lease: &Lease) -> Loss {
    timeout(SOON, lease.lost()).await.expect("the loss is told")
}

#[tokio::test]
async fn an_auto_extended_lease_outlives_its_ttl_and_stops_with_its_release() {
    let cluster = Cluster::start(5);
    let redlock = client(&cluster, 3_000);
    let lease = kept_up(&redlock).await;
    let value = lease.value().to_owned();
    let begun = Instant::now();
    while begun.elapsed() < ms(7_000) {
        assert!(lease.is_valid(), "lost after {:?}: {:?}", begun.elapsed(), lease.loss());
        sleep(ms(20)).await;
    }
    assert!(cluster.iter().all(|node| node.get("r").as_deref() == Some(value.as_bytes())));
    lease.release().await.expect("nodes are up");
    eventually("no key is left", || cluster.is_empty()).await;
    sleep(ms(1_200)).await;
    assert!(cluster.is_empty(), "and none comes back");
}

#[tokio::test]
async fn a_dropped_lease_is_not_renewed() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster, 600);
    drop(kept_up(&redlock).await);
    eventually("no key is left", || cluster.is_empty()).await;
    cluster.iter().for_each(Server::reset_stats);
    sleep(ms(700)).await;
    for node in &cluster {
        assert_eq!(node.calls("evalsha"), 0, "nothing more is sent");
    }
}

#[tokio::test]
async fn a_lease_is_not_held_beyond_its_limit() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster, 3_000);
    let begun = Instant::now();
    let lease = redlock.acquire("r").auto_extend(ms(5_000)).await.expect("a free lock");
    assert_eq!(lost(&lease).await, Loss::MaxHold);
    assert!(begun.elapsed() >= ms(4_000), "it was extended: {:?}", begun.elapsed());
    assert!(!lease.is_valid() && lease.loss() == Some(Loss::MaxHold));
    eventually("its keys expire", || cluster.is_empty()).await;
}

#[tokio::test]
async fn without_renewal_the_loss_is_told_when_the_validity_ends() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster, 600);
    let lease = redlock.try_acquire("r").await.expect("a free lock");
    let valid_until = lease.valid_until();
    assert_eq!(lost(&lease).await, Loss::Expired);
    assert!(Instant::now() + ms(50) >= valid_until, "not much earlier");
    assert!(!lease.is_valid());
    assert_eq!(lost(&lease).await, Loss::Expired, "and to whoever asks again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn when_all_nodes_hang_the_loss_is_told_before_the_validity_ends_also_on_a_blocked_runtime() {
    let cluster = Cluster::start(5);
    let redlock = client(&cluster, 2_000);
    let leases: Vec<Lease> = {
        let each = (0..20).map(|i| redlock.acquire(format!("r{i}")).auto_extend(SOON));
        futures::future::try_join_all(each).await.expect("free locks")
    };
    cluster.servers().iter().for_each(Server::stop);
    // Extensions already under way may still count: wait until none can.
    sleep(ms(300)).await;
    let blockers = (0..3).map(|_| tokio::spawn(async { std::thread::sleep(ms(12_000)) }));
    let blockers: Vec<_> = blockers.collect();
    let told = leases.into_iter().map(|lease| {
        tokio::spawn(async move {
            let valid_until = lease.valid_until();
            let why = lease.lost().await;
            (why, Instant::now(), valid_until)
        })
    });
    for told in told.collect::<Vec<_>>() {
        let (why, at, valid_until) = told.await.expect("no panic");
        assert_eq!(why, Loss::Expired);
        // By design 2 ms early; a busy machine gets more to run the task itself.
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
async fn a_stolen_lock_is_told_within_one_renewal_and_nothing_of_the_thiefs_is_touched() {
    let cluster = Cluster::start(5);
    let redlock = client(&cluster, 9_000);
    let lease = kept_up(&redlock).await;
    eventually("the key is everywhere", || cluster.all_have("r")).await;
    for node in &cluster.servers()[..3] {
        node.set("r", "the thief's");
    }
    assert_eq!(lost(&lease).await, Loss::TakenOver);
    assert!(!lease.is_valid());
    lease.release().await.expect("nodes are up");
    for node in &cluster.servers()[..3] {
        assert_eq!(node.get("r").as_deref(), Some(&b"the thief's"[..]));
        assert_eq!(node.pttl("r"), -1);
    }
}

#[tokio::test]
async fn a_node_that_lost_the_key_gets_it_back_with_the_next_renewal() {
    let cluster = Cluster::start(5);
    let redlock = client(&cluster, 3_000);
    let lease = kept_up(&redlock).await;
    let value = lease.value().as_bytes().to_owned();
    eventually("the key is everywhere", || cluster.all_have("r")).await;
    cluster[0].del("r");
    cluster[1].kill();
    cluster[1].restart();
    eventually("both have it again", || {
        cluster.iter().all(|node| node.get("r").as_deref() == Some(&value))
    })
    .await;
    assert!(lease.is_valid());
    assert!((1..=3_000).contains(&cluster[1].pttl("r")), "with a ttl");
}

#[tokio::test]
async fn with_the_majority_gone_the_key_is_never_set_again() {
    let cluster = Cluster::start(5);
    let redlock = client(&cluster, 9_000);
    let lease = kept_up(&redlock).await;
    eventually("the key is everywhere", || cluster.all_have("r")).await;
    cluster.servers()[..3].iter().for_each(|node| assert!(node.del("r")));
    assert_eq!(lost(&lease).await, Loss::QuorumLost);
    sleep(ms(300)).await;
    assert!(cluster.servers()[..3].iter().all(|node| node.get("r").is_none()));
}

#[tokio::test]
async fn renewal_survives_a_minority_that_hangs_and_comes_back() {
    let cluster = Cluster::start(5);
    let redlock = client(&cluster, 3_000);
    let lease = kept_up(&redlock).await;
    for round in 0..2 {
        let (one, other) = (&cluster[round], &cluster[round + 1]);
        one.stop();
        other.stop();
        sleep(ms(3_500)).await;
        assert!(lease.is_valid(), "{:?}", lease.loss());
        one.cont();
        other.cont();
        let value = lease.value().as_bytes();
        eventually("they have it again", || {
            cluster.iter().all(|node| node.get("r").as_deref() == Some(value))
        })
        .await;
    }
    lease.release().await.expect("nodes are up");
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn renewal_goes_on_outside_of_the_runtime_that_acquired_it() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster, 3_000);
    // This runtime's connections can renew what the other one's acquired.
    redlock.try_acquire("warm").await.expect("a free lock").release().await.expect("up");
    let elsewhere = redlock.clone();
    let acquire = move || current_thread().block_on(kept_up(&elsewhere));
    let lease = tokio::task::spawn_blocking(acquire).await.expect("no panic");
    sleep(ms(6_000)).await;
    assert!(lease.is_valid(), "{:?}", lease.loss());
    lease.release().await.expect("nodes are up");
}

#[tokio::test]
async fn where_nodes_push_a_stolen_lock_is_told_at_once() {
    let cluster = Cluster::start(5);
    let (redlock, hour) = (builder(&cluster).build().expect("good settings"), SOON * 180);
    for is_waiting in [true, false] {
        // It is not renewed within any test: only a push can tell.
        let acquire = if is_waiting { redlock.acquire("r") } else { redlock.try_acquire("r") };
        let lease = acquire.ttl(hour).auto_extend(hour).await.expect("a free lock");
        eventually("the key is everywhere", || cluster.all_have("r")).await;
        cluster[0].set("r", "the thief's");
        cluster[1].set("r", "the thief's");
        sleep(ms(100)).await;
        assert!(lease.is_valid(), "a minority is no loss");
        cluster[2].set("r", "the thief's");
        assert_eq!(lost(&lease).await, Loss::TakenOver);
        drop(lease);
        eventually("ours is gone", || cluster[4].get("r").is_none()).await;
        assert_eq!(cluster[2].get("r").as_deref(), Some(&b"the thief's"[..]), "theirs is not");
        cluster.iter().for_each(Server::flushall);
    }
}

#[tokio::test]
async fn one_node_more_is_a_loss_where_the_others_were_lost_before() {
    let cluster = Cluster::start(5);
    let (redlock, hour) = (builder(&cluster).build().expect("good settings"), SOON * 180);
    for is_asked in [true, false] {
        if !is_asked {
            cluster.servers()[..2].iter().for_each(|node| node.set("r", "the thief's"));
        }
        let lease = redlock.acquire("r").ttl(hour).auto_extend(hour).await.expect("three are free");
        let granted = if is_asked { 5 } else { 3 };
        eventually("all have answered", || lease.report().granted() == granted).await;
        if is_asked {
            cluster.servers()[..2].iter().for_each(|node| node.set("r", "the thief's"));
            // It is found to be held by three, and to be another's on two.
            lease.extend(hour).await.expect("a majority holds it");
        }
        cluster[2].set("r", "the thief's");
        assert_eq!(lost(&lease).await, Loss::TakenOver);
        drop(lease);
        eventually("ours is gone", || cluster[4].get("r").is_none()).await;
        cluster.iter().for_each(Server::flushall);
    }
}

#[tokio::test]
async fn who_waits_for_the_loss_of_a_lease_without_renewal_is_told_of_a_theft_too() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).build().expect("good settings");
    let lease = redlock.acquire("r").ttl(SOON * 180).await.expect("a free lock");
    eventually("the key is everywhere", || cluster.all_have("r")).await;
    let told = {
        let view = lease.view();
        tokio::spawn(async move { view.lost().await })
    };
    sleep(ms(50)).await;
    cluster.iter().for_each(Server::flushall);
    assert_eq!(timeout(SOON, told).await.expect("told").expect("no panic"), Loss::QuorumLost);
    assert!(!lease.is_valid());
    sleep(ms(100)).await;
    assert!(cluster.is_empty(), "what a majority lost is never set again");
}

#[tokio::test]
async fn a_thousand_leases_are_kept_up_by_one_client() {
    let cluster = Cluster::start(5);
    let redlock = builder(&cluster).ttl(ms(3_000)).build().expect("good settings");
    let acquire = |i| redlock.acquire(format!("r{i}")).wait(SOON).auto_extend(SOON * 3);
    let leases = futures::future::try_join_all((0..1_000).map(acquire)).await.expect("free locks");
    sleep(ms(6_000)).await;
    let lost = leases.iter().filter_map(|lease| lease.loss()).collect::<Vec<_>>();
    assert!(lost.is_empty(), "{} were lost: {:?}", lost.len(), lost[0]);
    assert!(cluster.iter().all(|node| node.keys().len() == 1_000), "every node has them all");
    drop(leases);
    eventually("no key is left", || cluster.is_empty()).await;
}

/// It waits for its connection while the lock is lost on all others.
#[tokio::test]
async fn what_a_node_was_not_sent_yet_is_not_set_there_once_the_lock_is_lost() {
    let cluster = Cluster::start(3);
    let proxies = cluster.proxies();
    let builder = through(&proxies).node_timeout(ms(5_000)).connect_timeout(ms(20_000));
    let redlock = builder.build().expect("good settings");
    let _first = granted_by_all(&redlock, "first").await;
    // So long a connection has to last before commands wait for the next one.
    tokio::time::sleep(ms(1_500)).await;
    proxies[2].hold_connects(true);
    proxies[2].reset();
    let is_awaited = || *redlock.nodes()[2].state() == NodeState::Connecting;
    eventually("its connection is made anew", is_awaited).await;
    let lease = redlock.acquire("r").await.expect("two nodes are well");
    cluster.servers()[..2].iter().for_each(|node| drop(node.cmd(&["DEL", "r"])));
    let refused = lease.extend(ms(30_000)).await.expect_err("it is gone from a majority");
    assert!(matches!(refused, ExtendError::Lost { reason: Loss::QuorumLost, .. }), "{refused:?}");
    proxies[2].heal();
    let _other = granted_by_all(&redlock, "other").await;
    assert_eq!(cluster[2].get("r"), None, "it was set after the loss was told");
    drop(lease);
}

/// One node has the key, one has not, and one is away: the lease may be lost, or not.
#[tokio::test]
async fn a_key_is_not_put_back_where_no_majority_is_known_to_have_it() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster, 30_000);
    let lease = granted_by_all(&redlock, "r").await;
    cluster[1].cmd(&["DEL", "r"]);
    cluster[2].kill();
    for _ in 0..5 {
        let refused = lease.extend(ms(30_000)).await.expect_err("one node of three has it");
        assert!(matches!(refused, ExtendError::NoQuorum { .. }), "{refused:?}");
        sleep(ms(20)).await;
        assert_eq!(cluster[1].get("r"), None);
    }
}
