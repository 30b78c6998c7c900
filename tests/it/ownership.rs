//! Who holds a lock, and how it changes hands.

use crate::{SOON, builder, client, eventually, ms};
use kit::{Cluster, Server};
use quorlock::{
    AcquireError, ClientError, LockState, Loss, NodeVote, ReenterError, ReleaseOutcome,
};
use std::time::Duration;
use tokio::time::timeout;

#[tokio::test]
async fn the_metadata_of_the_holder_can_be_read_by_others() {
    let cluster = Cluster::start(5);
    let (ours, theirs) = (client(&cluster), client(&cluster));
    let held = theirs.try_acquire("r").metadata("worker-7: größe").await.expect("a free lock");
    let (digits, told) = held.value().split_once(':').expect("metadata follows a colon");
    assert_eq!((digits.len(), told), (32, "worker-7: größe"));
    eventually("the key is everywhere", || cluster.all_have("r")).await;
    let status = ours.status("r").await.expect("a client that works");
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
    held.release().await.expect("nodes are up");
}

#[tokio::test]
async fn the_owner_is_the_host_and_the_process_when_asked_for() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).owner().build().expect("good settings");
    let held = redlock.try_acquire("r").await.expect("a free lock");
    let status = redlock.status("r").await.expect("a client that works");
    let holder = status.holder().expect("it is held");
    let owner = holder.metadata().expect("asked for").to_owned();
    assert!(owner.ends_with(&format!(":{}", std::process::id())) && owner.len() > 4, "{owner}");
    let own = redlock.try_acquire("other").metadata("mine").await.expect("a free lock");
    assert!(own.value().ends_with(":mine"), "one acquire's own metadata comes first");
    held.release().await.expect("nodes are up");
    own.release().await.expect("nodes are up");
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn a_status_tells_each_node_apart() {
    let cluster = Cluster::start(5);
    let redlock = builder(&cluster).node_timeout(ms(300)).build().expect("good settings");
    redlock.try_acquire("warm").await.expect("free").release().await.expect("nodes are up");
    cluster[0].set("r", "somebody");
    cluster[1].set("r", "somebody");
    cluster[2].cmd(&["HSET", "r", "field", "1"]);
    cluster[4].stop();
    let status = redlock.status("r").await.expect("a client that works");
    assert!(!status.is_held(), "two of five are no quorum: {status}");
    let seen: Vec<_> = status.nodes().iter().map(quorlock::NodeStatus::state).collect();
    assert!(matches!(seen[0], LockState::Held(holder) if holder.ttl().is_none()), "{status}");
    assert!(matches!(seen[1], LockState::Held(holder) if holder.metadata().is_none()), "{status}");
    assert!(matches!(seen[2], LockState::Foreign { ttl: None }), "{status}");
    assert!(matches!(seen[3], LockState::Free), "{status}");
    assert!(matches!(seen[4], LockState::Failed(_)), "{status}");
    cluster[3].set("r", "somebody");
    let status = redlock.status("r").await.expect("a client that works");
    assert!(status.is_held(), "{status}");
    assert_eq!(status.holder().and_then(|holder| holder.ttl()), None, "for ever");
    cluster[4].cont();
}

#[tokio::test]
async fn an_adopted_lock_is_taken_over_from_its_giver() {
    let cluster = Cluster::start(5);
    let (donor, heir) = (client(&cluster), client(&cluster));
    // It is not renewed within any test: only a push can tell.
    let hour = Duration::from_hours(1);
    let given = donor.acquire("r").ttl(hour).auto_extend(hour).await.expect("a free lock");
    eventually("the key is everywhere", || cluster.all_have("r")).await;
    let adopted = heir.adopt("r", given.value()).ttl(ms(20_000)).metadata("heir").await;
    let adopted = adopted.expect("it stands there");
    assert!(adopted.is_valid() && adopted.validity() <= ms(20_000));
    assert_ne!(adopted.value(), given.value());
    let why = timeout(SOON, given.lost()).await.expect("told at once, as nodes push");
    assert_eq!(why, Loss::TakenOver);
    assert_eq!(given.release().await, Ok(ReleaseOutcome::TakenOver));
    assert!(adopted.is_valid());
    assert_eq!(adopted.release().await, Ok(ReleaseOutcome::Released), "nothing of it was touched");
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn forced_release_of_a_short_foreign_value_reports_a_readable_error() {
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
        let report = redlock.force_release("r").await.expect("a client that works").to_string();
        assert!(report.contains("has no permissions to run"), "{report}");
        permit(&["+@all"]);
    }
}

#[tokio::test]
async fn of_two_who_adopt_at_once_one_wins() {
    let cluster = Cluster::start(5);
    let (donor, one, two) = (client(&cluster), client(&cluster), client(&cluster));
    for round in 0..50 {
        let key = format!("r{round}");
        let given = donor.try_acquire(&key).await.expect("a free lock");
        eventually("the key is everywhere", || cluster.all_have(&key)).await;
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
async fn what_is_not_there_cannot_be_adopted_and_is_not_made() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let refused = redlock.adopt("r", "0123456789abcdef0123456789abcdef").await;
    let AcquireError::NotHeld { report } = refused.expect_err("nothing stands there") else {
        panic!("another error");
    };
    let missing = report.nodes().iter().filter(|node| *node.vote() == NodeVote::Missing);
    assert!(missing.count() >= 2 && report.granted() == 0, "{report}");
    assert!(cluster.is_empty(), "nothing was set");
    let held = redlock.try_acquire("r").await.expect("a free lock");
    let refused = redlock.adopt("r", "not the value").await.expect_err("another's");
    assert!(matches!(refused, AcquireError::NotHeld { .. }), "{refused}");
    assert_eq!(held.release().await, Ok(ReleaseOutcome::Released), "it was not touched");
}

#[tokio::test]
async fn force_release_deletes_what_it_read_once_and_the_holder_is_told() {
    let cluster = Cluster::start(5);
    let (ours, theirs) = (client(&cluster), client(&cluster));
    // It is not renewed within any test: only a push can tell.
    let hour = Duration::from_hours(1);
    let held = theirs.acquire("r").ttl(hour).auto_extend(hour).await.expect("a free lock");
    eventually("the key is everywhere", || cluster.all_have("r")).await;
    cluster[4].del("r");
    cluster[4].cmd(&["HSET", "r", "field", "1"]);
    let report = ours.force_release("r").await.expect("a client that works");
    assert_eq!(report.granted(), 4, "{report}");
    assert_eq!(*report.nodes()[4].vote(), NodeVote::Held, "no lock of ours: {report}");
    assert!(cluster.servers()[..4].iter().all(|node| node.get("r").is_none()));
    let why = timeout(SOON, held.lost()).await.expect("told at once, as nodes push");
    assert!(matches!(why, Loss::QuorumLost | Loss::TakenOver), "{why:?}");
    let report = ours.force_release("r").await.expect("a client that works");
    assert_eq!(report.granted(), 0, "{report}");
    assert_eq!(*report.nodes()[0].vote(), NodeVote::Missing);
}

#[tokio::test]
async fn force_release_is_not_owed_to_a_node_that_hangs() {
    let cluster = Cluster::start(3);
    let ours = builder(&cluster).node_timeout(ms(200)).build().expect("good settings");
    ours.try_acquire("warm").await.expect("free").release().await.expect("nodes are up");
    for node in &cluster {
        node.set("r", "somebody");
    }
    cluster[0].stop();
    let report = ours.force_release("r").await.expect("a client that works");
    assert_eq!(report.granted(), 2, "{report}");
    ours.close().await.expect("nothing is owed");
    cluster[0].cont();
    tokio::time::sleep(ms(300)).await;
    assert!(cluster[0].get("r").is_some(), "it is asked once, and was not read in time");
}

#[tokio::test]
async fn the_last_guard_of_a_lease_releases_it() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let outer = redlock.try_acquire("r").await.expect("a free lock");
    let inner = outer.reenter().expect("it is held");
    let innermost = inner.reenter().expect("it is held");
    assert_eq!((outer.guards(), innermost.value()), (3, outer.value()));
    assert_eq!(outer.release().await, Ok(ReleaseOutcome::StillHeld { guards: 2 }));
    drop(innermost);
    assert!(inner.is_valid() && inner.guards() == 1);
    assert!(redlock.try_acquire("r").await.is_err(), "it is still locked");
    let view = inner.view();
    assert_eq!(inner.release().await, Ok(ReleaseOutcome::Released));
    assert_eq!(view.reenter().expect_err("it is gone"), ReenterError::Released);
    assert!(!view.is_valid() && view.loss().is_none());
    let refused = view.extend(ms(10_000)).await.expect_err("it is gone");
    assert!(matches!(refused, quorlock::ExtendError::Released), "{refused}");
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn a_view_does_not_keep_the_lock() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let lease = redlock.try_acquire("r").await.expect("a free lock");
    let view = lease.view();
    assert!(view.is_valid() && view.guards() == 1);
    drop(lease);
    assert!(!view.is_valid() && view.guards() == 0);
    eventually("no key is left", || cluster.is_empty()).await;
    assert_eq!(view.resource(), b"r");
}

#[tokio::test]
async fn a_lost_lease_is_not_entered_again() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let lease = redlock.try_acquire("r").ttl(ms(1_100)).await.expect("a free lock");
    timeout(SOON, lease.lost()).await.expect("its time ends");
    let refused = lease.reenter().expect_err("it has ended");
    assert_eq!(refused, ReenterError::Lost { reason: Loss::Expired });
    assert_eq!(lease.guards(), 1, "and was not counted");
}

#[tokio::test]
async fn locking_what_this_client_holds_is_told_apart() {
    let cluster = Cluster::start(3);
    let (ours, theirs) = (client(&cluster), client(&cluster));
    let lease = ours.try_acquire("r").await.expect("a free lock");
    let here = |error: AcquireError| match error {
        AcquireError::Contended { held_here, .. } => (held_here, error.to_string()),
        other => panic!("{other}"),
    };
    let (held_here, text) = here(ours.try_acquire("r").await.expect_err("it is held"));
    assert!(held_here && text.starts_with("held by another lease of this client: "), "{text}");
    let (held_here, text) = here(theirs.try_acquire("r").await.expect_err("it is held"));
    assert!(!held_here && text.starts_with("held by another client: "), "{text}");
    lease.release().await.expect("nodes are up");
    let theirs = theirs.try_acquire("r").await.expect("a free lock");
    let (held_here, _) = here(ours.try_acquire("r").await.expect_err("it is held"));
    assert!(!held_here, "ours was released");
    theirs.release().await.expect("nodes are up");
}

#[tokio::test]
async fn releasing_what_was_released_by_the_client_is_an_outcome() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let one = redlock.acquire("one").auto_extend(SOON).await.expect("a free lock");
    let two = redlock.acquire_all(["two", "three"]).await.expect("free locks");
    let mut released = redlock.release_all().await;
    released.sort_by(|a, b| a.0.cmp(&b.0));
    let expected = [b"one".to_vec(), b"three".to_vec()];
    assert_eq!(released, expected.map(|name| (name, Ok(ReleaseOutcome::Released))));
    assert!(!one.is_valid() && one.loss() == Some(Loss::Closed));
    assert_eq!(timeout(SOON, two.lost()).await.expect("told"), Loss::Closed);
    eventually("no key is left", || cluster.is_empty()).await;
    assert_eq!(one.release().await, Ok(ReleaseOutcome::AlreadyReleased));
    drop(two);
    assert_eq!(redlock.release_all().await, []);
    let again = redlock.try_acquire("one").await.expect("the client goes on");
    assert!(again.is_valid());
}

#[tokio::test]
async fn the_end_of_an_earlier_lease_leaves_the_later_one_to_its_client() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let earlier = redlock.try_acquire("r").ttl(ms(1_500)).await.expect("a free lock");
    assert_eq!(timeout(SOON, earlier.lost()).await, Ok(Loss::Expired));
    let later = redlock.acquire("r").wait(SOON).auto_extend(SOON).await.expect("free again");
    drop(earlier);
    redlock.close().await.expect("delivered");
    assert_eq!(later.loss(), Some(Loss::Closed), "its client knows it");
}

#[tokio::test]
async fn closing_ends_leases_and_waiters() {
    let cluster = Cluster::start(3);
    // Those who wait do not try again by themselves within any test.
    let never = quorlock::RetryPolicy::fixed(SOON * 10);
    let redlock = builder(&cluster).retry(never).build().expect("good settings");
    let lease = redlock.acquire("r").auto_extend(SOON).await.expect("a free lock");
    let _others = client(&cluster).acquire("other").await.expect("a free lock");
    let waiting: Vec<_> = (0..6)
        .map(|number| ["r", "other"][number % 2])
        .map(|resource| tokio::spawn(redlock.acquire(resource).wait(SOON * 2)))
        .collect();
    let told = {
        let view = lease.view();
        tokio::spawn(async move { view.lost().await })
    };
    tokio::time::sleep(ms(50)).await;
    timeout(Duration::from_secs(10), redlock.close()).await.expect("bounded").expect("delivered");
    let is_gone = |node: &Server| node.get("r").is_none();
    assert!(cluster.iter().all(is_gone), "all is delivered when it returns");
    assert_eq!(told.await.expect("no panic"), Loss::Closed);
    for waiter in waiting {
        let refused = timeout(SOON / 2, waiter).await.expect("told").expect("no panic");
        assert!(matches!(refused, Err(AcquireError::Closed)), "{refused:?}");
    }
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::AlreadyReleased));
    assert_eq!(redlock.status("r").await, Err(ClientError::Closed));
    assert_eq!(redlock.force_release("r").await, Err(ClientError::Closed));
}

#[tokio::test]
async fn a_released_lock_can_be_left_standing_for_a_while() {
    let cluster = Cluster::start(3);
    let (ours, theirs) = (client(&cluster), client(&cluster));
    let lease = ours.try_acquire("r").await.expect("a free lock");
    eventually("the key is everywhere", || cluster.all_have("r")).await;
    let value = lease.value().to_owned();
    let begun = std::time::Instant::now();
    assert_eq!(lease.release_after(ms(1_500)).await, Ok(ReleaseOutcome::Released));
    for node in &cluster {
        let standing = node.get("r").expect("something stands there");
        assert_ne!(standing, value.as_bytes(), "but nobody owns it");
        assert!((1..=1_500).contains(&node.pttl("r")), "{}", node.pttl("r"));
    }
    let status = theirs.status("r").await.expect("a client that works");
    assert!(status.holder().is_some_and(|holder| holder.is_cooling_down()), "{status}");
    assert!(status.to_string().starts_with("cooling down "), "{status}");
    let refused = ours.try_acquire("r").await.expect_err("it cools down");
    assert!(matches!(refused, AcquireError::Contended { held_here: false, .. }), "{refused}");
    let waited = theirs.acquire("r").wait(SOON).await.expect("free after a while");
    assert!(begun.elapsed() >= ms(1_490), "{:?}", begun.elapsed());
    waited.release().await.expect("nodes are up");
    let waited = ours.try_acquire("r").await.expect("free");
    assert_eq!(waited.release_after(ms(0)).await, Ok(ReleaseOutcome::Released));
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn a_cool_down_that_is_owed_is_not_longer_than_asked_for() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).node_timeout(ms(200)).build().expect("good settings");
    let lease = redlock.try_acquire("r").await.expect("a free lock");
    eventually("the key is everywhere", || cluster.all_have("r")).await;
    cluster[0].stop();
    assert_eq!(lease.release_after(ms(1_000)).await, Ok(ReleaseOutcome::Released));
    cluster[0].cont();
    eventually("all have cooled down", || cluster.is_empty()).await;
}
