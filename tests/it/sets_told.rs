//! Who waits for several resources is told of whatever was in the way; so is who was in the way of them.
//!
//! Nobody tries again by a timer here: whoever is not told does not get its locks in time.

use crate::{SOON, eventually, ms};
use kit::{Cluster, Direction, Proxy, Server};
use quorlock::{Redlock, RetryPolicy};
use std::time::Duration;

/// A client that tries again when it is told, and not before the end.
fn patient(urls: impl IntoIterator<Item = String>) -> Redlock {
    let never = RetryPolicy::fixed(Duration::from_mins(10));
    let builder = Redlock::builder().nodes(urls).ttl(ms(60_000)).node_timeout(SOON);
    builder.retry(never).wait(SOON).build().expect("good settings")
}

/// Locks once, so that the scripts are known, and the connections.
async fn warm_up(redlock: &Redlock) {
    let lease = redlock.acquire_all(["other", "third"]).await.expect("free locks");
    lease.release().await.expect("nodes are up");
}

#[tokio::test]
async fn nodes_may_name_different_ones() {
    for order in [[0, 1, 2], [1, 0, 2], [2, 1, 0]] {
        let cluster = Cluster::start(3);
        let ours = patient(cluster.urls());
        warm_up(&ours).await;
        let [odd, one, other] = order.map(|index| &cluster[index]);
        odd.set("b", "theirs");
        one.set("c", "theirs");
        other.set("c", "theirs");
        let asked: Vec<_> = cluster.iter().map(|node| node.calls("pttl")).collect();
        let waiting = tokio::spawn(ours.acquire_all(["a", "b", "c"]).into_future());
        let is_asked = |(node, asked): &(&Server, &u64)| node.calls("pttl") > **asked;
        // Servers with `MSETEX` run the script only until a quorum has refused.
        let is_refused = || cluster.iter().zip(&asked).filter(is_asked).count() >= 2;
        eventually("it was refused", is_refused).await;
        one.del("c");
        other.del("c");
        let lease = waiting.await.expect("no panic").expect("it is told that a majority is free");
        lease.release().await.expect("nodes are up");
    }
}

/// Three of five nodes name one lock, and the two others one that is released in this process. With one of the
/// three they are a majority.
#[tokio::test]
async fn what_is_released_here_counts_where_it_was_in_the_way() {
    let cluster = Cluster::start(5);
    let ours = patient(cluster.urls());
    warm_up(&ours).await;
    let held = ours.acquire("b").await.expect("a free lock");
    eventually("it is held everywhere", || cluster.all_have("b")).await;
    // What stands for ever stands longest: it is what those name that have both.
    cluster.servers()[..3].iter().for_each(|node| node.set("c", "theirs"));
    let asked: Vec<_> = cluster.iter().map(|node| node.calls("pttl")).collect();
    let waiting = tokio::spawn(ours.acquire_all(["a", "b", "c"]).into_future());
    // Where it is refused it tries once more, now that it stands in line.
    let is_asked = |(node, asked): &(&Server, &u64)| node.calls("pttl") > **asked + 1;
    let is_refused = || cluster.iter().zip(&asked).filter(is_asked).count() >= 3;
    eventually("it was refused", is_refused).await;
    held.release().await.expect("nodes are up");
    eventually("it is free everywhere", || cluster.none_has("b")).await;
    cluster[1].del("c");
    let lease = waiting.await.expect("no panic").expect("it is told that three are free");
    lease.release().await.expect("nodes are up");
}

/// What an attempt for several locks leaves for a moment stands in the way of one who wants one of them.
#[tokio::test]
async fn who_was_in_the_way_of_one_for_a_moment_tells_it() {
    let cluster = Cluster::start(2);
    let proxy = Proxy::start(cluster[1].addr());
    let ours = patient([cluster[0].url(), proxy.url()]);
    warm_up(&ours).await;
    cluster[1].set("b", "theirs");

    proxy.hold(Direction::Requests);
    let all = tokio::spawn(ours.acquire_all(["a", "b"]).into_future());
    eventually("one node has granted", || cluster[0].get("a").is_some()).await;
    let asked = cluster[0].calls("pttl");
    let one = tokio::spawn(ours.acquire("a").into_future());
    eventually("and has refused the other", || cluster[0].calls("pttl") > asked).await;
    proxy.heal();
    let lease = one.await.expect("no panic").expect("it is told that the lock is free");
    lease.release().await.expect("nodes are up");
    cluster[1].del("b");
    let lease = all.await.expect("no panic").expect("it is told that the lock is free");
    lease.release().await.expect("nodes are up");
}
