//! Several resources, locked together.

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
async fn they_are_sorted_each_once_under_one_lease_and_one_validity() {
    let cluster = Cluster::start(5);
    let redlock = builder(&cluster).key_prefix("lock:").build().expect("good settings");
    let lease = redlock.acquire_all(["c", "a", "b", "a"]).await.expect("free locks");
    let resources: Vec<_> = lease.resources().map(<[u8]>::to_vec).collect();
    assert_eq!(resources, [b"a".to_vec(), b"b".to_vec(), b"c".to_vec()]);
    assert_eq!(lease.resource(), b"a");
    let all = ["lock:a", "lock:b", "lock:c"];
    let is_ours = |key: &str| {
        cluster.iter().all(|node| node.get(key).as_deref() == Some(lease.value().as_bytes()))
    };
    eventually("all stand everywhere", || all.iter().all(|key| is_ours(key))).await;
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
async fn it_is_all_or_nothing_on_every_node() {
    let cluster = Cluster::start(3);
    let (ours, theirs) = (client(&cluster), client(&cluster));
    let held = theirs.try_acquire("b").await.expect("a free lock");
    eventually("the key is everywhere", || cluster.all_have("b")).await;
    let refused = ours.try_acquire_all(["a", "b", "c"]).await.expect_err("b is held");
    let AcquireError::Contended { report, held_here: false } = &refused else {
        panic!("{refused}")
    };
    assert!(report.nodes().iter().all(|node| *node.vote() != NodeVote::Granted), "{report}");
    for node in &cluster {
        assert!(node.get("a").is_none() && node.get("c").is_none(), "nothing was set");
    }
    held.release().await.expect("nodes are up");
    let lease = ours.try_acquire_all(["a", "b", "c"]).await.expect("free locks");
    // One of its keys is stolen on a majority: the whole lease is lost.
    for node in &cluster.servers()[..2] {
        node.set("b", "the thief's");
    }
    let refused = lease.extend(ms(60_000)).await.expect_err("stolen");
    assert!(matches!(refused, quorlock::ExtendError::Lost { reason: Loss::TakenOver, .. }));
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::TakenOver));
    eventually("the rest is released, and nothing of the thief's", || {
        let ours = |key| cluster.none_has(key);
        ours("a") && ours("c") && cluster[0].get("b").is_some() && cluster[2].get("b").is_none()
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_locked_together_is_refused_by_name() {
    let cluster = Cluster::start(1);
    let redlock = client(&cluster);
    let none: [&str; 0] = [];
    let refused = redlock.try_acquire_all(none).await.expect_err("nothing to lock");
    assert_eq!(refused, AcquireError::Invalid(ConfigError::NoResources));
    let many = (0..1_001).map(|i| i.to_string());
    let refused = redlock.try_acquire_all(many).await.expect_err("too many");
    let reason = ConfigError::TooManyResources { given: 1_001, most: 1_000 };
    assert_eq!(refused, AcquireError::Invalid(reason));
    let most = redlock.try_acquire_all((0..1_000).map(|i| i.to_string())).await;
    assert_eq!(most.expect("just as many").resources().count(), 1_000);
    let long = redlock.try_acquire("r").metadata("x".repeat(4_097)).await.expect_err("too long");
    let reason = ConfigError::LongMetadata { length: 4_097, most: 4_096 };
    assert_eq!(long, AcquireError::Invalid(reason));
}

#[tokio::test]
async fn a_set_waits_for_the_one_that_is_in_the_way() {
    let cluster = Cluster::start(3);
    let never = RetryPolicy::fixed(SOON * 10);
    let ours = builder(&cluster).retry(never).wait(SOON).build().expect("good settings");
    let theirs = client(&cluster);
    let orders = [("b", "c"), ("c", "b")];
    for (holder, (first, second)) in orders.map(|order| [(&ours, order), (&theirs, order)]).concat()
    {
        // It stands in line for the one that is held longest, and then for the other.
        let first = holder.try_acquire(first).await.expect("a free lock");
        let second = holder.try_acquire(second).await.expect("a free lock");
        let waiting = tokio::spawn(ours.acquire_all(["a", "b", "c"]));
        sleep(ms(50)).await;
        // It holds nothing while it waits, and stands in nobody's way.
        let free = ours.acquire("a").wait(SOON).await.expect("a is free");
        free.release().await.expect("nodes are up");
        first.release().await.expect("nodes are up");
        sleep(ms(50)).await;
        assert!(!waiting.is_finished(), "the other is still held");
        second.release().await.expect("nodes are up");
        let lease = timeout(SOON, waiting).await.expect("woken").expect("no panic");
        lease.expect("free").release().await.expect("nodes are up");
    }
    eventually("no key is left", || cluster.is_empty()).await;
}

/// Counts the attempts for several locks.
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
async fn a_set_stands_behind_those_who_came_before_it_and_asks_no_node_meanwhile() {
    let cluster = Cluster::start(3);
    let attempts = Arc::new(Attempts::default());
    let ours = builder(&cluster).observer(attempts.clone()).build().expect("good settings");
    let held = client(&cluster).try_acquire("b").await.expect("a free lock");
    let mut before_it = Vec::new();
    for _ in 0..2 {
        before_it.push(tokio::spawn(ours.acquire("b").wait(SOON).into_future()));
        sleep(ms(50)).await;
    }
    let set = tokio::spawn(ours.acquire_all(["a", "b", "c"]).wait(SOON).into_future());
    let asked = || attempts.0.load(Ordering::SeqCst);
    eventually("the set was refused", || asked() > 0).await;
    held.release().await.expect("nodes are up");
    let second = before_it.pop().expect("two");
    let first = before_it.pop().expect("two");
    let lease = timeout(SOON, first).await.expect("woken").expect("no panic").expect("free");
    sleep(ms(100)).await;
    assert_eq!(asked(), 1, "it waits for its turn");
    lease.release().await.expect("nodes are up");
    for waiting in [second, set] {
        let lease = timeout(SOON, waiting).await.expect("woken").expect("no panic").expect("free");
        lease.release().await.expect("nodes are up");
    }
}

/// Locks `names` again and again, and sees that nobody else does at the same time.
async fn rounds(redlock: Redlock, names: &'static [&'static str], inside: Arc<[AtomicUsize; 4]>) {
    let all: [&str; 4] = ["a", "b", "c", "d"];
    for _ in 0..15 {
        let lease = redlock.acquire_all(names).wait(SOON * 3).await.expect("no deadlock");
        let taken: Vec<_> = all.iter().zip(&*inside).filter(|(n, _)| names.contains(n)).collect();
        for (name, count) in &taken {
            assert_eq!(count.fetch_add(1, Ordering::SeqCst), 0, "two hold {name}");
        }
        sleep(ms(1)).await;
        assert!(lease.is_valid());
        for (_, count) in &taken {
            count.fetch_sub(1, Ordering::SeqCst);
        }
        lease.release().await.expect("nodes are up");
    }
}

#[tokio::test]
async fn sets_that_overlap_in_any_order_never_deadlock() {
    let cluster = Cluster::start(3);
    let retry = RetryPolicy::jittered(ms(2)..ms(20));
    let clients = [(); 2].map(|()| builder(&cluster).retry(retry.clone()).build().expect("good"));
    let inside: Arc<[AtomicUsize; 4]> = Arc::default();
    let sets: [&[&str]; 5] = [&["a", "b"], &["b", "a"], &["d", "c", "b"], &["d", "a"], &["c"]];
    let tasks = sets.iter().flat_map(|names| {
        clients.iter().map(|redlock| tokio::spawn(rounds(redlock.clone(), names, inside.clone())))
    });
    for task in tasks.collect::<Vec<_>>() {
        timeout(SOON * 4, task).await.expect("no deadlock").expect("no panic");
    }
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn a_set_is_kept_up_and_repaired() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).ttl(ms(3_000)).build().expect("good settings");
    let lease = redlock.acquire_all(["a", "b"]).auto_extend(SOON).await.expect("free locks");
    eventually("it stands everywhere", || cluster.all_have("a")).await;
    cluster[2].del("b");
    eventually("what was lost is back", || cluster[2].get("b").is_some()).await;
    cluster[1].flushall();
    eventually("what was lost is back", || cluster[1].get("a").is_some()).await;
    sleep(ms(3_500)).await;
    assert!(lease.is_valid(), "{:?}", lease.loss());
    assert!(cluster.iter().all(|node| node.get("a") == node.get("b") && node.get("a").is_some()));
    lease.release().await.expect("nodes are up");
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn a_dropped_set_leaves_nothing() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    drop(redlock.acquire_all(["a", "b", "c"]).await.expect("free locks"));
    eventually("no key is left", || cluster.is_empty()).await;
    let hung = builder(&cluster).node_timeout(ms(200)).build().expect("good settings");
    hung.try_acquire("warm").await.expect("free").release().await.expect("nodes are up");
    cluster[0].stop();
    cluster[1].stop();
    let refused = hung.try_acquire_all(["a", "b"]).await.expect_err("too few answer");
    assert!(matches!(refused, AcquireError::NoQuorum { .. }), "{refused}");
    cluster[0].cont();
    cluster[1].cont();
    eventually("no key is left", || cluster.is_empty()).await;
}
