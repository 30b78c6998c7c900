//! Tests of the notifications that wake acquires of several locks. The deletion of any conflicting key notifies such an
//! acquire, and also the acquires that compete with it.
//!
//! The retry delay exceeds each test, so an acquire that is not notified fails its test.

use crate::{SOON, eventually, ms};
use kit::{Cluster, Direction, Proxy, Server};
use quorlock::{Redlock, ReleaseOutcome, RetryPolicy};
use std::time::Duration;

/// Creates a client whose acquires only try again after a notification.
fn client_without_retries(urls: impl IntoIterator<Item = String>) -> Redlock {
    let never = RetryPolicy::fixed(Duration::from_mins(10));
    let builder = Redlock::builder().nodes(urls).ttl(ms(60_000)).node_timeout(SOON);
    builder.retry(never).wait(SOON).build().expect("valid settings")
}

/// Acquires locks once, so that the connections are open and the scripts are loaded.
async fn warm_up(redlock: &Redlock) {
    let lease = redlock.acquire_all(["other", "third"]).await.expect("the locks are free");
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
}

#[tokio::test]
async fn acquire_is_notified_if_nodes_name_different_keys() {
    for order in [[0, 1, 2], [1, 0, 2], [2, 1, 0]] {
        let cluster = Cluster::start(3);
        let redlock = client_without_retries(cluster.urls());
        warm_up(&redlock).await;
        let [first, second, third] = order.map(|index| &cluster[index]);
        first.set("b", "other");
        second.set("c", "other");
        third.set("c", "other");
        let asked: Vec<_> = cluster.iter().map(|node| node.calls("pttl")).collect();
        let waiting = tokio::spawn(redlock.acquire_all(["a", "b", "c"]).into_future());
        let is_asked = |(node, asked): &(&Server, &u64)| node.calls("pttl") > **asked;
        // Servers with `MSETEX` run the script only until a quorum has refused.
        let is_refused = || cluster.iter().zip(&asked).filter(is_asked).count() >= 2;
        eventually("the acquire is refused", is_refused).await;
        second.del("c");
        third.del("c");
        let lease = waiting
            .await
            .expect("no panic")
            .expect("the acquire is notified that a majority is free");
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    }
}

/// Checks that a release by the same process notifies an acquire of several locks. Three of five nodes refuse the
/// acquire because of one key, and two because of a key that this process releases. These two nodes form a majority
/// with one of the three.
#[tokio::test]
async fn local_release_counts_for_a_blocked_set() {
    let cluster = Cluster::start(5);
    let redlock = client_without_retries(cluster.urls());
    warm_up(&redlock).await;
    let held = redlock.acquire("b").await.expect("the lock is free");
    eventually("all nodes have the key", || cluster.all_have("b")).await;
    // A key without expiry blocks longest, so nodes that have both keys name this key.
    cluster.servers()[..3].iter().for_each(|node| node.set("c", "theirs"));
    let asked: Vec<_> = cluster.iter().map(|node| node.calls("pttl")).collect();
    let waiting = tokio::spawn(redlock.acquire_all(["a", "b", "c"]).into_future());
    // The acquire makes one more attempt after it has queued.
    let is_asked = |(node, asked): &(&Server, &u64)| node.calls("pttl") > **asked + 1;
    let is_refused = || cluster.iter().zip(&asked).filter(is_asked).count() >= 3;
    eventually("the acquire is refused twice", is_refused).await;
    assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
    eventually("the key is deleted", || cluster.none_has("b")).await;
    cluster[1].del("c");
    let lease = waiting
        .await
        .expect("no panic")
        .expect("the acquire is notified that three nodes are free");
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
}

/// Checks that an acquire is notified after it was briefly blocked by the keys of a refused attempt for several locks.
#[tokio::test]
async fn refused_set_notifies_the_acquire_it_blocked() {
    let cluster = Cluster::start(2);
    let proxy = Proxy::start(cluster[1].addr());
    let redlock = client_without_retries([cluster[0].url(), proxy.url()]);
    warm_up(&redlock).await;
    cluster[1].set("b", "theirs");

    proxy.hold(Direction::Requests);
    let all = tokio::spawn(redlock.acquire_all(["a", "b"]).into_future());
    eventually("one node has granted", || cluster[0].get("a").is_some()).await;
    let asked = cluster[0].calls("pttl");
    let one = tokio::spawn(redlock.acquire("a").into_future());
    eventually("the same node has refused the other acquire", || cluster[0].calls("pttl") > asked)
        .await;
    proxy.heal();
    let lease = one.await.expect("no panic").expect("the acquire is notified");
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    cluster[1].del("b");
    let lease = all.await.expect("no panic").expect("the acquire is notified");
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
}
