//! Tests of acquires of several resources that are locked together.

use crate::{SOON, builder, client, eventually, ms};
use kit::Cluster;
use quorlock::event::Event;
use quorlock::{
    AcquireError, ConfigError, Loss, NodeVote, Observer, Redlock, ReleaseOutcome, RetryPolicy,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::time::{sleep, timeout};

#[tokio::test]
async fn resources_are_sorted_and_deduplicated_in_one_lease() {
    let cluster = Cluster::start(5);
    let redlock = builder(&cluster).key_prefix("lock:").build().expect("valid settings");
    let lease = redlock.acquire_all(["c", "a", "b", "a"]).await.expect("the locks are free");
    let resources: Vec<_> = lease.resources().map(<[u8]>::to_vec).collect();
    assert_eq!(resources, [b"a".to_vec(), b"b".to_vec(), b"c".to_vec()]);
    assert_eq!(lease.resource(), b"a");
    let all = ["lock:a", "lock:b", "lock:c"];
    let has_value = |key: &str| {
        cluster.iter().all(|node| node.get(key).as_deref() == Some(lease.value().as_bytes()))
    };
    eventually("all nodes have all keys", || all.iter().all(|key| has_value(key))).await;
    for resource in ["a", "b", "c"] {
        let refused = redlock.try_acquire(resource).await.expect_err("it is held");
        assert!(matches!(refused, AcquireError::Contended { held_here: true, .. }), "{refused}");
    }
    lease.extend(ms(60_000)).await.expect("nodes are up");
    eventually("extended", || cluster.iter().all(|n| all.iter().all(|k| n.pttl(k) > 30_000))).await;
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn each_node_grants_all_keys_or_none() {
    let cluster = Cluster::start(3);
    let (redlock, other_client) = (client(&cluster), client(&cluster));
    let held = other_client.try_acquire("b").await.expect("the lock is free");
    eventually("all nodes have the key", || cluster.all_have("b")).await;
    let refused = redlock.try_acquire_all(["a", "b", "c"]).await.expect_err("b is held");
    let AcquireError::Contended { report, held_here: false } = &refused else {
        panic!("{refused}")
    };
    assert!(report.nodes().iter().all(|node| *node.vote() != NodeVote::Granted), "{report}");
    for node in &cluster {
        assert!(node.get("a").is_none() && node.get("c").is_none(), "no key was set");
    }
    assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
    let lease = redlock.try_acquire_all(["a", "b", "c"]).await.expect("the locks are free");
    // Another client overwrites one of the keys on a majority, so the whole lease is lost.
    for node in &cluster.servers()[..2] {
        node.set("b", "other");
    }
    let refused = lease.extend(ms(60_000)).await.expect_err("stolen");
    assert!(matches!(refused, quorlock::ExtendError::Lost { reason: Loss::TakenOver, .. }));
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::TakenOver));
    eventually("only the lease's keys are deleted", || {
        let redlock = |key| cluster.none_has(key);
        redlock("a")
            && redlock("c")
            && cluster[0].get("b").is_some()
            && cluster[2].get("b").is_none()
    })
    .await;
}

#[tokio::test]
async fn invalid_combinations_of_resources_are_refused() {
    let cluster = Cluster::start(1);
    let redlock = client(&cluster);
    let none: [&str; 0] = [];
    let refused = redlock.try_acquire_all(none).await.expect_err("no resources");
    assert_eq!(refused, AcquireError::Invalid(ConfigError::NoResources));
    let many = (0..1_001).map(|i| i.to_string());
    let refused = redlock.try_acquire_all(many).await.expect_err("too many");
    let reason = ConfigError::TooManyResources { given: 1_001, most: 1_000 };
    assert_eq!(refused, AcquireError::Invalid(reason));
    let largest = redlock.try_acquire_all((0..1_000).map(|i| i.to_string())).await;
    assert_eq!(largest.expect("exactly the limit").resources().count(), 1_000);
    let long = redlock.try_acquire("r").metadata("x".repeat(4_097)).await.expect_err("too long");
    let reason = ConfigError::LongMetadata { length: 4_097, most: 4_096 };
    assert_eq!(long, AcquireError::Invalid(reason));
}

#[tokio::test]
async fn acquire_of_several_locks_waits_for_the_conflicting_one() {
    let cluster = Cluster::start(3);
    let never = RetryPolicy::fixed(SOON * 10);
    let redlock = builder(&cluster).retry(never).wait(SOON).build().expect("valid settings");
    let other_client = client(&cluster);
    let orders = [("b", "c"), ("c", "b")];
    for (holder, (first, second)) in
        orders.map(|order| [(&redlock, order), (&other_client, order)]).concat()
    {
        // The acquire queues for the key that blocks it, and then for the other key.
        let first = holder.try_acquire(first).await.expect("the lock is free");
        let second = holder.try_acquire(second).await.expect("the lock is free");
        let waiting = tokio::spawn(redlock.acquire_all(["a", "b", "c"]));
        sleep(ms(50)).await;
        // A waiting acquire of several locks holds no key.
        let free = redlock.acquire("a").wait(SOON).await.expect("a is free");
        assert_eq!(free.release().await, Ok(ReleaseOutcome::Released));
        assert_eq!(first.release().await, Ok(ReleaseOutcome::Released));
        sleep(ms(50)).await;
        assert!(!waiting.is_finished(), "the other key is still held");
        assert_eq!(second.release().await, Ok(ReleaseOutcome::Released));
        let lease = timeout(SOON, waiting).await.expect("the acquire is woken").expect("no panic");
        assert_eq!(lease.expect("free").release().await, Ok(ReleaseOutcome::Released));
    }
    eventually("no key is left", || cluster.is_empty()).await;
}

/// An observer that counts the attempts to acquire a set of locks that contains `c`.
#[derive(Default)]
struct Attempts(AtomicUsize);

impl Observer for Attempts {
    fn on_event(&self, event: &Event) {
        if let Event::AttemptFinished { lock, .. } = event
            && lock.resources.to_string().contains('c')
        {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[tokio::test]
async fn queued_acquire_of_several_locks_contacts_no_node() {
    let cluster = Cluster::start(3);
    let attempts = Arc::new(Attempts::default());
    let redlock = builder(&cluster).observer(attempts.clone()).build().expect("valid settings");
    let held = client(&cluster).try_acquire("b").await.expect("the lock is free");
    let mut earlier = Vec::new();
    for _ in 0..2 {
        earlier.push(tokio::spawn(redlock.acquire("b").wait(SOON).into_future()));
        sleep(ms(50)).await;
    }
    let set = tokio::spawn(redlock.acquire_all(["a", "b", "c"]).wait(SOON).into_future());
    let asked = || attempts.0.load(Ordering::SeqCst);
    eventually("the set is refused", || asked() > 0).await;
    assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
    let second = earlier.pop().expect("two");
    let first = earlier.pop().expect("two");
    let lease =
        timeout(SOON, first).await.expect("the acquire is woken").expect("no panic").expect("free");
    sleep(ms(100)).await;
    assert_eq!(asked(), 1, "the set waits for its turn");
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    for waiting in [second, set] {
        let lease = timeout(SOON, waiting)
            .await
            .expect("the acquire is woken")
            .expect("no panic")
            .expect("free");
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    }
}

/// Acquires and releases `names` repeatedly. Each time, checks that no other task holds any of them.
async fn acquire_repeatedly(
    redlock: Redlock,
    names: &'static [&'static str],
    inside: Arc<[AtomicUsize; 4]>,
) {
    let all: [&str; 4] = ["a", "b", "c", "d"];
    for _ in 0..15 {
        let lease = redlock.acquire_all(names).wait(SOON * 3).await.expect("no deadlock");
        let taken: Vec<_> = all.iter().zip(&*inside).filter(|(n, _)| names.contains(n)).collect();
        for (name, count) in &taken {
            assert_eq!(count.fetch_add(1, Ordering::SeqCst), 0, "two tasks hold {name}");
        }
        sleep(ms(1)).await;
        assert!(lease.is_valid());
        for (_, count) in &taken {
            count.fetch_sub(1, Ordering::SeqCst);
        }
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    }
}

#[tokio::test]
async fn overlapping_sets_of_locks_never_deadlock() {
    let cluster = Cluster::start(3);
    let retry = RetryPolicy::jittered(ms(2)..ms(20));
    let clients =
        [(); 2].map(|()| builder(&cluster).retry(retry.clone()).build().expect("valid settings"));
    let inside: Arc<[AtomicUsize; 4]> = Arc::default();
    let sets: [&[&str]; 5] = [&["a", "b"], &["b", "a"], &["d", "c", "b"], &["d", "a"], &["c"]];
    let tasks = sets.iter().flat_map(|names| {
        clients
            .iter()
            .map(|redlock| tokio::spawn(acquire_repeatedly(redlock.clone(), names, inside.clone())))
    });
    for task in tasks.collect::<Vec<_>>() {
        timeout(SOON * 4, task).await.expect("no deadlock").expect("no panic");
    }
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn lease_of_several_locks_is_renewed_and_repaired() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).ttl(ms(3_000)).build().expect("valid settings");
    let lease =
        redlock.acquire_all(["a", "b"]).auto_extend(SOON).await.expect("the locks are free");
    eventually("all nodes have the keys", || cluster.all_have("a")).await;
    cluster[2].del("b");
    eventually("the lost key is restored", || cluster[2].get("b").is_some()).await;
    cluster[1].flushall();
    eventually("the lost keys are restored", || cluster[1].get("a").is_some()).await;
    sleep(ms(3_500)).await;
    assert!(lease.is_valid(), "{:?}", lease.loss());
    assert!(cluster.iter().all(|node| node.get("a") == node.get("b") && node.get("a").is_some()));
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn dropped_lease_of_several_locks_leaves_no_keys() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    drop(redlock.acquire_all(["a", "b", "c"]).await.expect("the locks are free"));
    eventually("no key is left", || cluster.is_empty()).await;
    let impatient = builder(&cluster).node_timeout(ms(200)).build().expect("valid settings");
    assert_eq!(
        impatient.try_acquire("warm").await.expect("free").release().await,
        Ok(ReleaseOutcome::Released)
    );
    cluster[0].stop();
    cluster[1].stop();
    let refused = impatient.try_acquire_all(["a", "b"]).await.expect_err("a quorum is stopped");
    assert!(matches!(refused, AcquireError::NoQuorum { .. }), "{refused}");
    cluster[0].cont();
    cluster[1].cont();
    eventually("no key is left", || cluster.is_empty()).await;
}
