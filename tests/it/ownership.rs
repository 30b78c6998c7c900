//! Tests of operations that concern the holder of a lock: metadata, status, adoption, forced release and re-entry.

use crate::{SOON, builder, client, eventually, ms};
use kit::{Cluster, Server};
use quorlock::{
    AcquireError, ClientError, LockState, Loss, NodeVote, ReenterError, ReleaseOutcome,
};
use std::time::Duration;
use tokio::time::timeout;

#[tokio::test]
async fn status_shows_the_holders_metadata() {
    let cluster = Cluster::start(5);
    let (redlock, other_client) = (client(&cluster), client(&cluster));
    let held =
        other_client.try_acquire("r").metadata("worker-7: größe").await.expect("the lock is free");
    let (digits, metadata) = held.value().split_once(':').expect("metadata follows a colon");
    assert_eq!((digits.len(), metadata), (32, "worker-7: größe"));
    eventually("all nodes have the key", || cluster.all_have("r")).await;
    let status = redlock.status("r").await.expect("the client is open");
    let holder = status.holder().expect("it is held");
    assert_eq!(holder.metadata(), Some("worker-7: größe"));
    assert!(holder.ttl().is_some_and(|ttl| ttl <= ms(30_000) && ttl > ms(5_000)), "{status}");
    assert!(status.is_held() && status.needed() == 3 && status.nodes().len() == 5);
    for node in status.nodes() {
        assert_eq!(node.holder().and_then(quorlock::Holder::metadata), Some("worker-7: größe"));
        assert!(node.latency().is_some());
    }
    let shown = format!("{status} {status:?} {held:?}");
    assert!(!shown.contains(digits), "no value is shown: {shown}");
    assert!(status.to_string().starts_with("held by worker-7: größe (need 3): 127.0.0.1:"));
    assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
}

#[tokio::test]
async fn owner_is_host_and_process() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).owner().build().expect("valid settings");
    let held = redlock.try_acquire("r").await.expect("the lock is free");
    let status = redlock.status("r").await.expect("the client is open");
    let holder = status.holder().expect("it is held");
    let owner = holder.metadata().expect("the owner is set").to_owned();
    assert!(owner.ends_with(&format!(":{}", std::process::id())) && owner.len() > 4, "{owner}");
    let own = redlock.try_acquire("other").metadata("mine").await.expect("the lock is free");
    assert!(own.value().ends_with(":mine"), "metadata of the acquire takes precedence");
    assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
    assert_eq!(own.release().await, Ok(ReleaseOutcome::Released));
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn status_reports_each_node_separately() {
    let cluster = Cluster::start(5);
    let redlock = builder(&cluster).node_timeout(ms(300)).build().expect("valid settings");
    assert_eq!(
        redlock.try_acquire("warm").await.expect("free").release().await,
        Ok(ReleaseOutcome::Released)
    );
    cluster[0].set("r", "other");
    cluster[1].set("r", "other");
    cluster[2].cmd(&["HSET", "r", "field", "1"]);
    cluster[4].stop();
    let status = redlock.status("r").await.expect("the client is open");
    assert!(!status.is_held(), "two of five nodes hold the key: {status}");
    let seen: Vec<_> = status.nodes().iter().map(quorlock::NodeStatus::state).collect();
    assert!(matches!(seen[0], LockState::Held(holder) if holder.ttl().is_none()), "{status}");
    assert!(matches!(seen[1], LockState::Held(holder) if holder.metadata().is_none()), "{status}");
    assert!(matches!(seen[2], LockState::Foreign { ttl: None }), "{status}");
    assert!(matches!(seen[3], LockState::Free), "{status}");
    assert!(matches!(seen[4], LockState::Failed(_)), "{status}");
    cluster[3].set("r", "other");
    let status = redlock.status("r").await.expect("the client is open");
    assert!(status.is_held(), "{status}");
    assert_eq!(status.holder().and_then(|holder| holder.ttl()), None, "the key has no expiry");
    cluster[4].cont();
}

#[tokio::test]
async fn adoption_ends_the_givers_lease() {
    let cluster = Cluster::start(5);
    let (donor, heir) = (client(&cluster), client(&cluster));
    // The lease is not renewed during the test, so only a push can report the loss.
    let hour = Duration::from_hours(1);
    let given = donor.acquire("r").ttl(hour).auto_extend(hour).await.expect("the lock is free");
    eventually("all nodes have the key", || cluster.all_have("r")).await;
    let adopted = heir.adopt("r", given.value()).ttl(ms(20_000)).metadata("receiver").await;
    let adopted = adopted.expect("the lock is held");
    assert!(adopted.is_valid() && adopted.validity() <= ms(20_000));
    assert_ne!(adopted.value(), given.value());
    let why = timeout(SOON, given.lost()).await.expect("the nodes push the change");
    assert_eq!(why, Loss::TakenOver);
    assert_eq!(given.release().await, Ok(ReleaseOutcome::TakenOver));
    assert!(adopted.is_valid());
    assert_eq!(
        adopted.release().await,
        Ok(ReleaseOutcome::Released),
        "the giver's release leaves the key"
    );
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn forced_release_of_a_short_value_reports_readable_errors() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    for value in ["", "s"] {
        cluster.iter().for_each(|node| node.set("r", value));
        let permit = |rights: &[&str]| {
            for node in &cluster {
                node.cmd(&[&["ACL", "SETUSER", "default"][..], rights].concat());
            }
        };
        permit(&["-@write", "-@scripting"]);
        let report = redlock.force_release("r").await.expect("the client is open").to_string();
        assert!(report.contains("has no permissions to run"), "{report}");
        permit(&["+@all"]);
    }
}

#[tokio::test]
async fn one_of_two_concurrent_adoptions_wins() {
    let cluster = Cluster::start(5);
    let (donor, one, two) = (client(&cluster), client(&cluster), client(&cluster));
    for round in 0..50 {
        let key = format!("r{round}");
        let given = donor.try_acquire(&key).await.expect("the lock is free");
        eventually("all nodes have the key", || cluster.all_have(&key)).await;
        let (first, second) =
            tokio::join!(one.adopt(&key, given.value()), two.adopt(&key, given.value()));
        let (won, lost) = match (first, second) {
            (Ok(won), Err(lost)) | (Err(lost), Ok(won)) => (won, lost),
            (first, second) => panic!("round {round}: {first:?}, {second:?}"),
        };
        assert!(matches!(lost, AcquireError::NotHeld { .. }), "{lost}");
        assert_eq!(given.release().await, Ok(ReleaseOutcome::TakenOver));
        assert_eq!(won.release().await, Ok(ReleaseOutcome::Released));
    }
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn adoption_of_a_missing_lock_is_refused() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let refused = redlock.adopt("r", "0123456789abcdef0123456789abcdef").await;
    let AcquireError::NotHeld { report } = refused.expect_err("the lock is free") else {
        panic!("another error");
    };
    let missing = report.nodes().iter().filter(|node| *node.vote() == NodeVote::Missing);
    assert!(missing.count() >= 2 && report.granted() == 0, "{report}");
    assert!(cluster.is_empty(), "the adoption set no key");
    let held = redlock.try_acquire("r").await.expect("the lock is free");
    let refused = redlock.adopt("r", "not the value").await.expect_err("the value differs");
    assert!(matches!(refused, AcquireError::NotHeld { .. }), "{refused}");
    assert_eq!(
        held.release().await,
        Ok(ReleaseOutcome::Released),
        "the refused adoption leaves the key"
    );
}

#[tokio::test]
async fn force_release_deletes_the_keys_and_the_holder_is_notified() {
    let cluster = Cluster::start(5);
    let (redlock, other_client) = (client(&cluster), client(&cluster));
    // The lease is not renewed during the test, so only a push can report the loss.
    let hour = Duration::from_hours(1);
    let held =
        other_client.acquire("r").ttl(hour).auto_extend(hour).await.expect("the lock is free");
    eventually("all nodes have the key", || cluster.all_have("r")).await;
    cluster[4].del("r");
    cluster[4].cmd(&["HSET", "r", "field", "1"]);
    let report = redlock.force_release("r").await.expect("the client is open");
    assert_eq!(report.granted(), 4, "{report}");
    assert_eq!(*report.nodes()[4].vote(), NodeVote::Held, "another type is not a lock: {report}");
    assert!(cluster.servers()[..4].iter().all(|node| node.get("r").is_none()));
    let why = timeout(SOON, held.lost()).await.expect("the nodes push the deletion");
    assert!(matches!(why, Loss::QuorumLost | Loss::TakenOver), "{why:?}");
    let report = redlock.force_release("r").await.expect("the client is open");
    assert_eq!(report.granted(), 0, "{report}");
    assert_eq!(*report.nodes()[0].vote(), NodeVote::Missing);
}

#[tokio::test]
async fn force_release_is_not_repeated_on_a_stopped_node() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).node_timeout(ms(200)).build().expect("valid settings");
    assert_eq!(
        redlock.try_acquire("warm").await.expect("free").release().await,
        Ok(ReleaseOutcome::Released)
    );
    for node in &cluster {
        node.set("r", "other");
    }
    cluster[0].stop();
    let report = redlock.force_release("r").await.expect("the client is open");
    assert_eq!(report.granted(), 2, "{report}");
    redlock.close().await.expect("no release is pending");
    cluster[0].cont();
    tokio::time::sleep(ms(300)).await;
    assert!(cluster[0].get("r").is_some(), "a forced release is not repeated");
}

#[tokio::test]
async fn last_guard_releases_the_lock() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let outer = redlock.try_acquire("r").await.expect("the lock is free");
    let inner = outer.reenter().expect("it is held");
    let innermost = inner.reenter().expect("it is held");
    assert_eq!((outer.guards(), innermost.value()), (3, outer.value()));
    assert_eq!(outer.release().await, Ok(ReleaseOutcome::StillHeld { guards: 2 }));
    drop(innermost);
    assert!(inner.is_valid() && inner.guards() == 1);
    assert!(redlock.try_acquire("r").await.is_err(), "two guards still hold the lock");
    let view = inner.view();
    assert_eq!(inner.release().await, Ok(ReleaseOutcome::Released));
    assert_eq!(view.reenter().expect_err("the lease is released"), ReenterError::Released);
    assert!(!view.is_valid() && view.loss().is_none());
    let refused = view.extend(ms(10_000)).await.expect_err("the lease is released");
    assert!(matches!(refused, quorlock::ExtendError::Released), "{refused}");
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn view_does_not_keep_the_lock() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let lease = redlock.try_acquire("r").await.expect("the lock is free");
    let view = lease.view();
    assert!(view.is_valid() && view.guards() == 1);
    drop(lease);
    assert!(!view.is_valid() && view.guards() == 0);
    eventually("no key is left", || cluster.is_empty()).await;
    assert_eq!(view.resource(), b"r");
}

#[tokio::test]
async fn lost_lease_cannot_be_reentered() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let lease = redlock.try_acquire("r").ttl(ms(1_100)).await.expect("the lock is free");
    timeout(SOON, lease.lost()).await.expect("the lease expires");
    let refused = lease.reenter().expect_err("the lease has expired");
    assert_eq!(refused, ReenterError::Lost { reason: Loss::Expired });
    assert_eq!(lease.guards(), 1, "the refused guard is not counted");
}

#[tokio::test]
async fn contention_with_an_own_lease_is_reported() {
    let cluster = Cluster::start(3);
    let (redlock, other_client) = (client(&cluster), client(&cluster));
    let lease = redlock.try_acquire("r").await.expect("the lock is free");
    let here = |error: AcquireError| match error {
        AcquireError::Contended { held_here, .. } => (held_here, error.to_string()),
        other => panic!("{other}"),
    };
    let (held_here, text) = here(redlock.try_acquire("r").await.expect_err("it is held"));
    assert!(held_here && text.starts_with("held by another lease of this client: "), "{text}");
    let (held_here, text) = here(other_client.try_acquire("r").await.expect_err("it is held"));
    assert!(!held_here && text.starts_with("held by another client: "), "{text}");
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    let others_lease = other_client.try_acquire("r").await.expect("the lock is free");
    let (held_here, _) = here(redlock.try_acquire("r").await.expect_err("it is held"));
    assert!(!held_here, "the client's lease was released");
    assert_eq!(others_lease.release().await, Ok(ReleaseOutcome::Released));
}

#[tokio::test]
async fn release_after_release_all_returns_already_released() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let one = redlock.acquire("one").auto_extend(SOON).await.expect("the lock is free");
    let two = redlock.acquire_all(["two", "three"]).await.expect("the locks are free");
    let mut released = redlock.release_all().await;
    released.sort_by(|a, b| a.0.cmp(&b.0));
    let expected = [b"one".to_vec(), b"three".to_vec()];
    assert_eq!(released, expected.map(|name| (name, Ok(ReleaseOutcome::Released))));
    assert!(!one.is_valid() && one.loss() == Some(Loss::Closed));
    assert_eq!(timeout(SOON, two.lost()).await.expect("the loss is reported"), Loss::Closed);
    eventually("no key is left", || cluster.is_empty()).await;
    assert_eq!(one.release().await, Ok(ReleaseOutcome::AlreadyReleased));
    drop(two);
    assert_eq!(redlock.release_all().await, []);
    let again = redlock.try_acquire("one").await.expect("the client stays open");
    assert!(again.is_valid());
}

#[tokio::test]
async fn dropped_expired_lease_does_not_affect_a_later_one() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let earlier = redlock.try_acquire("r").ttl(ms(1_500)).await.expect("the lock is free");
    assert_eq!(timeout(SOON, earlier.lost()).await, Ok(Loss::Expired));
    let later =
        redlock.acquire("r").wait(SOON).auto_extend(SOON).await.expect("the lock has expired");
    drop(earlier);
    redlock.close().await.expect("no release is pending");
    assert_eq!(later.loss(), Some(Loss::Closed), "the client still manages the later lease");
}

#[tokio::test]
async fn close_ends_leases_and_waiters() {
    let cluster = Cluster::start(3);
    // With this retry delay, the waiters make no further attempts during the test.
    let never = quorlock::RetryPolicy::fixed(SOON * 10);
    let redlock = builder(&cluster).retry(never).build().expect("valid settings");
    let lease = redlock.acquire("r").auto_extend(SOON).await.expect("the lock is free");
    let _others = client(&cluster).acquire("other").await.expect("the lock is free");
    let waiting: Vec<_> = (0..6)
        .map(|number| ["r", "other"][number % 2])
        .map(|resource| tokio::spawn(redlock.acquire(resource).wait(SOON * 2)))
        .collect();
    let loss = {
        let view = lease.view();
        tokio::spawn(async move { view.lost().await })
    };
    tokio::time::sleep(ms(50)).await;
    timeout(Duration::from_secs(10), redlock.close())
        .await
        .expect("close is bounded")
        .expect("no release is pending");
    let is_deleted = |node: &Server| node.get("r").is_none();
    assert!(cluster.iter().all(is_deleted), "close delivers all releases");
    assert_eq!(loss.await.expect("no panic"), Loss::Closed);
    for waiter in waiting {
        let refused = timeout(SOON / 2, waiter).await.expect("the waiter ends").expect("no panic");
        assert!(matches!(refused, Err(AcquireError::Closed)), "{refused:?}");
    }
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::AlreadyReleased));
    assert_eq!(redlock.status("r").await, Err(ClientError::Closed));
    assert_eq!(redlock.force_release("r").await, Err(ClientError::Closed));
}

#[tokio::test]
async fn cool_down_keeps_a_released_lock_unavailable() {
    let cluster = Cluster::start(3);
    let (redlock, other_client) = (client(&cluster), client(&cluster));
    let lease = redlock.try_acquire("r").await.expect("the lock is free");
    eventually("all nodes have the key", || cluster.all_have("r")).await;
    let value = lease.value().to_owned();
    let started = std::time::Instant::now();
    assert_eq!(lease.release_after(ms(1_500)).await, Ok(ReleaseOutcome::Released));
    for node in &cluster {
        let left = node.get("r").expect("the cool-down key exists");
        assert_ne!(left, value.as_bytes(), "the cool-down key has no owner");
        assert!((1..=1_500).contains(&node.pttl("r")), "{}", node.pttl("r"));
    }
    let status = other_client.status("r").await.expect("the client is open");
    assert!(status.holder().is_some_and(|holder| holder.is_cooling_down()), "{status}");
    assert!(status.to_string().starts_with("cooling down "), "{status}");
    let refused = redlock.try_acquire("r").await.expect_err("the cool-down runs");
    assert!(matches!(refused, AcquireError::Contended { held_here: false, .. }), "{refused}");
    let waited = other_client.acquire("r").wait(SOON).await.expect("the cool-down ends");
    assert!(started.elapsed() >= ms(1_490), "{:?}", started.elapsed());
    assert_eq!(waited.release().await, Ok(ReleaseOutcome::Released));
    let waited = redlock.try_acquire("r").await.expect("free");
    assert_eq!(waited.release_after(ms(0)).await, Ok(ReleaseOutcome::Released));
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn pending_cool_down_is_not_prolonged() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).node_timeout(ms(200)).build().expect("valid settings");
    let lease = redlock.try_acquire("r").await.expect("the lock is free");
    eventually("all nodes have the key", || cluster.all_have("r")).await;
    cluster[0].stop();
    assert_eq!(lease.release_after(ms(1_000)).await, Ok(ReleaseOutcome::Released));
    cluster[0].cont();
    eventually("the cool-down ends on all nodes", || cluster.is_empty()).await;
}
