//! Profiles: one client, with settings for each kind of use.

use crate::{SOON, builder, client, eventually, ms};
use kit::Cluster;
use quorlock::{AcquireError, Loss, ReleaseOutcome, RetryPolicy};
use std::time::Instant;

fn connections(cluster: &Cluster) -> usize {
    cluster.iter().map(|node| node.clients().len()).sum()
}

#[tokio::test]
async fn profiles_share_the_connections() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    redlock.acquire("first").await.expect("free").release().await.expect("they answer");
    eventually("all are connected", || connections(&cluster) == 3).await;
    for place in 0..200 {
        let profile = redlock.profile().ttl(ms(20_000 + place)).build().expect("good settings");
        let lease = profile.acquire(format!("{place}")).await.expect("free");
        assert!(lease.validity() <= ms(20_000 + place));
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    }
    assert_eq!(connections(&cluster), 3);
}

#[tokio::test]
async fn each_use_has_its_settings_and_the_client_keeps_its_own() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let hasty = redlock.profile().ttl(ms(90_000)).wait(ms(150)).metadata("hasty");
    let hasty = hasty.retry(RetryPolicy::fixed(ms(10))).build().expect("good settings");

    // The first one waits for the connections as well, which has no bound on a busy machine.
    let lease = hasty.acquire("r").wait(SOON).fenced().await.expect("free");
    assert!(lease.validity() > ms(60_000), "{lease:?}");
    let status = redlock.status("r").await.expect("they answer");
    assert_eq!(status.holder().expect("held").metadata(), Some("hasty"));
    assert!(cluster.iter().filter(|node| node.pttl("r") > 60_000).count() >= 2);

    // It waits for so long, and an acquire that is told otherwise does not.
    let begun = Instant::now();
    let refused = hasty.acquire("r").await.expect_err("held");
    assert!(matches!(refused, AcquireError::Contended { held_here: true, .. }), "{refused}");
    assert!(begun.elapsed() < SOON / 2, "the wait of the client is not its own");
    let waiting = tokio::spawn(hasty.acquire("r").wait(SOON));
    tokio::time::sleep(ms(400)).await;
    assert!(!waiting.is_finished(), "it was told to wait for longer");
    lease.release().await.expect("they answer");
    let second = waiting.await.expect("no panic").expect("it is free");
    assert!(second.token().is_none(), "only the first was told to be fenced");
    second.release().await.expect("they answer");

    let own = redlock.acquire("r").await.expect("free");
    assert!(own.validity() <= ms(30_000), "{own:?}");
    let status = redlock.status("r").await.expect("they answer");
    assert_eq!(status.holder().expect("held").metadata(), None);
}

#[tokio::test]
async fn leases_of_a_profile_are_kept_up_and_told_to_stop_as_it_says() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let leader = redlock.profile().ttl(ms(6_000)).fenced().auto_extend_forever().class("leader");
    let leader = leader.stop_before(ms(1_500)).build().expect("good settings");
    let lease = leader.acquire("leader").await.expect("free");
    assert!(lease.token().is_some());
    tokio::time::sleep(ms(7_500)).await;
    assert!(lease.is_valid(), "{:?}", lease.loss());
    let classes: Vec<_> = redlock.leases().iter().map(quorlock::HeldLease::class).collect();
    assert_eq!(classes, [Some("leader")]);
    cluster.iter().for_each(kit::Server::stop);
    let left = tokio::time::timeout(SOON, lease.stopping()).await.expect("it is told in time");
    assert!(left <= ms(1_500), "{left:?}");
    cluster.iter().for_each(kit::Server::cont);
    drop(lease);

    let job = redlock.profile().at_least(ms(30_000)).give_up_early().max_attempts(2);
    let job = job.build().expect("good settings");
    assert_eq!(
        job.acquire("job").await.expect("free").release().await,
        Ok(ReleaseOutcome::Released)
    );
    let begun = Instant::now();
    let refused = job.acquire("job").await.expect_err("it cools down");
    assert!(matches!(refused, AcquireError::Contended { .. }), "{refused}");
    assert!(begun.elapsed() < ms(9_000), "it gave up early: {:?}", begun.elapsed());
}

#[tokio::test]
async fn closing_one_closes_all() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).build().expect("good settings");
    let profile = redlock.profile().wait(SOON).build().expect("good settings");
    let held = profile.acquire("held").await.expect("free");
    let waiting = tokio::spawn(profile.acquire("held"));
    tokio::time::sleep(ms(100)).await;
    redlock.close().await.expect("they answer");
    assert_eq!(held.lost().await, Loss::Closed);
    let refused = waiting.await.expect("no panic").expect_err("closed");
    assert!(matches!(refused, AcquireError::Closed), "{refused}");
    assert!(matches!(profile.acquire("r").await, Err(AcquireError::Closed)));
    assert!(cluster.is_empty());
}

#[cfg(feature = "blocking")]
#[test]
fn a_blocking_client_has_profiles_as_well() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).build_blocking().expect("good settings");
    let profile = redlock.profile().ttl(ms(90_000)).metadata("m").owner().metadata("mine");
    let profile = profile.fenced().build().expect("good settings");
    let lease = profile.acquire("r").call().expect("free");
    assert!(lease.validity() > ms(60_000) && lease.token().is_some());
    let status = redlock.status("r").expect("they answer");
    assert_eq!(status.holder().expect("held").metadata(), Some("mine"));
    assert!(redlock.profile().ttl(crate::MAX_TTL * 2).build().is_err());
    lease.release().expect("they answer");
}
