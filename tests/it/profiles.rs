//! Profiles: settings for different uses of one client.

use crate::{SOON, builder, client, eventually, ms};
use kit::Cluster;
use quorlock::{AcquireError, Loss, ReleaseOutcome, RetryPolicy};
use std::time::Instant;

fn connections(cluster: &Cluster) -> usize {
    cluster.iter().map(|node| node.clients().len()).sum()
}

#[tokio::test]
async fn profiles_share_connections() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    redlock.acquire("first").await.expect("free").release().await.expect("nodes are up");
    eventually("all nodes are connected", || connections(&cluster) == 3).await;
    for place in 0..200 {
        let profile = redlock.profile().ttl(ms(20_000 + place)).build().expect("valid settings");
        let lease = profile.acquire(format!("{place}")).await.expect("free");
        assert!(lease.validity() <= ms(20_000 + place));
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    }
    assert_eq!(connections(&cluster), 3);
}

#[tokio::test]
async fn profile_settings_do_not_affect_the_client() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let impatient = redlock.profile().ttl(ms(90_000)).wait(ms(150)).metadata("impatient");
    let impatient = impatient.retry(RetryPolicy::fixed(ms(10))).build().expect("valid settings");

    // The first acquire also waits for connections, which may take long on a busy machine.
    let lease = impatient.acquire("r").wait(SOON).fenced().await.expect("free");
    assert!(lease.validity() > ms(60_000), "{lease:?}");
    let status = redlock.status("r").await.expect("nodes are up");
    assert_eq!(status.holder().expect("held").metadata(), Some("impatient"));
    assert!(cluster.iter().filter(|node| node.pttl("r") > 60_000).count() >= 2);

    // The profile's wait applies, unless the acquire sets its own.
    let started = Instant::now();
    let refused = impatient.acquire("r").await.expect_err("held");
    assert!(matches!(refused, AcquireError::Contended { held_here: true, .. }), "{refused}");
    assert!(started.elapsed() < SOON / 2, "the profile's wait must apply, not the client's");
    let waiting = tokio::spawn(impatient.acquire("r").wait(SOON));
    tokio::time::sleep(ms(400)).await;
    assert!(!waiting.is_finished(), "the acquire's own wait applies");
    lease.release().await.expect("nodes are up");
    let second = waiting.await.expect("no panic").expect("the lock is released");
    assert!(second.token().is_none(), "only the first acquire was fenced");
    second.release().await.expect("nodes are up");

    let own = redlock.acquire("r").await.expect("free");
    assert!(own.validity() <= ms(30_000), "{own:?}");
    let status = redlock.status("r").await.expect("nodes are up");
    assert_eq!(status.holder().expect("held").metadata(), None);
}

#[tokio::test]
async fn profile_settings_apply_to_its_leases() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let leader = redlock.profile().ttl(ms(6_000)).fenced().auto_extend_forever().class("leader");
    let leader = leader.stop_before(ms(1_500)).build().expect("valid settings");
    let lease = leader.acquire("leader").await.expect("free");
    assert!(lease.token().is_some());
    tokio::time::sleep(ms(7_500)).await;
    assert!(lease.is_valid(), "{:?}", lease.loss());
    let classes: Vec<_> = redlock.leases().iter().map(quorlock::HeldLease::class).collect();
    assert_eq!(classes, [Some("leader")]);
    cluster.iter().for_each(kit::Server::stop);
    let left = tokio::time::timeout(SOON, lease.stopping()).await.expect("stopping() resolves");
    assert!(left <= ms(1_500), "{left:?}");
    cluster.iter().for_each(kit::Server::cont);
    drop(lease);

    let job = redlock.profile().at_least(ms(30_000)).give_up_early().max_attempts(2);
    let job = job.build().expect("valid settings");
    assert_eq!(
        job.acquire("job").await.expect("free").release().await,
        Ok(ReleaseOutcome::Released)
    );
    let started = Instant::now();
    let refused = job.acquire("job").await.expect_err("at_least has not passed");
    assert!(matches!(refused, AcquireError::Contended { .. }), "{refused}");
    assert!(started.elapsed() < ms(9_000), "the acquire must end early: {:?}", started.elapsed());
}

#[tokio::test]
async fn closing_the_client_closes_its_profiles() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).build().expect("valid settings");
    let profile = redlock.profile().wait(SOON).build().expect("valid settings");
    let held = profile.acquire("held").await.expect("free");
    let waiting = tokio::spawn(profile.acquire("held"));
    tokio::time::sleep(ms(100)).await;
    redlock.close().await.expect("nodes are up");
    assert_eq!(held.lost().await, Loss::Closed);
    let refused = waiting.await.expect("no panic").expect_err("closed");
    assert!(matches!(refused, AcquireError::Closed), "{refused}");
    assert!(matches!(profile.acquire("r").await, Err(AcquireError::Closed)));
    assert!(cluster.is_empty());
}

#[cfg(feature = "blocking")]
#[test]
fn blocking_client_has_profiles() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).build_blocking().expect("valid settings");
    let profile = redlock.profile().ttl(ms(90_000)).metadata("m").owner().metadata("mine");
    let profile = profile.fenced().build().expect("valid settings");
    let lease = profile.acquire("r").call().expect("free");
    assert!(lease.validity() > ms(60_000) && lease.token().is_some());
    let status = redlock.status("r").expect("nodes are up");
    assert_eq!(status.holder().expect("held").metadata(), Some("mine"));
    assert!(redlock.profile().ttl(crate::MAX_TTL * 2).build().is_err());
    lease.release().expect("nodes are up");
}
