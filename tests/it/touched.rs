//! Keys that others touch, and leases that nobody keeps any more.

use crate::{MAX_TTL, SOON, builder, eventually, ms};
use kit::{Cluster, Server};
use quorlock::Loss;
use std::time::Instant;
use tokio::time::{sleep, timeout};

/// How many scripts `node` has run: one for each extension.
fn scripts(node: &Server) -> u64 {
    node.calls("evalsha") + node.calls("eval")
}

/// Touches the key on all nodes for three seconds, by setting its ttl as often as possible; how many
/// scripts a node has run meanwhile, and in how many pauses between two checks.
fn touch(cluster: &Cluster, ttl: &str) -> (u64, u64) {
    let (begun, before) = (Instant::now(), scripts(&cluster[0]));
    let mut times = 0;
    while begun.elapsed() < ms(3_000) {
        cluster.iter().for_each(|node| drop(node.cmd(&["PEXPIRE", "r", ttl])));
        times += 1;
    }
    let asked = scripts(&cluster[0]) - before;
    assert!(times > 300, "{times} times is not often");
    println!("{asked} scripts for {times} touches with a ttl of {ttl} ms");
    (asked, u64::try_from(begun.elapsed().as_millis()).expect("below 2^64") / 100)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_others_touch_all_the_time_is_looked_after_ten_times_a_second_at_most() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).build().expect("good settings");
    // It is not renewed within any test.
    let lease = redlock.acquire("r").ttl(MAX_TTL).auto_extend(MAX_TTL).await.expect("a free lock");
    eventually("the key is everywhere", || cluster.all_have("r")).await;
    let (asked, pauses) = touch(&cluster, "3600000");
    assert!(asked <= pauses + 2, "{asked} in {pauses} pauses");
    // Keys that are shortened look like a clock that stood still: then it is renewed as well.
    let (asked, pauses) = touch(&cluster, "3000000");
    assert!(asked <= 2 * pauses + 4, "{asked} in {pauses} pauses");
    assert!(lease.is_valid(), "{:?}", lease.loss());
    // What happens in the pause is not missed: the key is taken right after it was touched.
    for value in ["touched", "the thief's"] {
        cluster.iter().for_each(|node| node.set("r", value));
    }
    assert_eq!(timeout(SOON, lease.lost()).await.expect("told"), Loss::TakenOver);
}

#[tokio::test]
async fn a_theft_within_the_pause_after_a_check_is_told() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).build().expect("good settings");
    let lease = redlock.acquire("r").ttl(MAX_TTL).auto_extend(MAX_TTL).await.expect("a free lock");
    eventually("the key is everywhere", || cluster.all_have("r")).await;
    let before = scripts(&cluster[0]);
    cluster.iter().for_each(|node| drop(node.cmd(&["PEXPIRE", "r", "3000000"])));
    eventually("a check was made", || scripts(&cluster[0]) > before).await;
    cluster.iter().for_each(Server::flushall);
    assert_eq!(timeout(SOON, lease.lost()).await.expect("told"), Loss::QuorumLost);
}

#[tokio::test]
async fn who_waits_for_the_loss_of_a_released_lease_keeps_no_connection() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).build().expect("good settings");
    let lease = redlock.acquire("r").await.expect("a free lock");
    let (waiting, view) = (lease.view(), lease.view());
    let waiting = tokio::spawn(async move { waiting.lost().await });
    sleep(ms(50)).await;
    lease.release().await.expect("nodes are up");
    drop(redlock);
    let has_gone = || cluster.iter().all(|node| node.clients().is_empty());
    eventually("the client has gone", has_gone).await;
    assert!(!waiting.is_finished(), "a release is no loss");
    assert_eq!((view.resource(), view.report().granted() >= 2), (&b"r"[..], true));
    waiting.abort();
}

#[tokio::test]
async fn touches_of_one_node_and_another_add_up_only_until_the_nodes_were_asked() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).build().expect("good settings");
    let lease = redlock.acquire("r").ttl(MAX_TTL / 2).auto_extend(MAX_TTL).await.expect("free");
    eventually("all have granted", || lease.report().granted() == 3).await;
    let touch = |at: usize| drop(cluster[at].cmd(&["SET", "r", lease.value(), "KEEPTTL"]));
    touch(0);
    sleep(ms(300)).await;
    lease.extend(MAX_TTL * 3 / 4).await.expect("it is held");
    eventually("on the last, too", || cluster[2].pttl("r") > 2_600_000).await;
    sleep(ms(300)).await;
    let before = scripts(&cluster[2]);
    touch(1);
    sleep(ms(500)).await;
    assert_eq!(scripts(&cluster[2]), before, "a minority was touched since");
    touch(0);
    eventually("now a quorum may be gone", || scripts(&cluster[2]) > before).await;
    assert!(lease.is_valid());
}
