//! Tests with keys that other clients change, and with holders that only wait for the end of their lease.

use crate::{MAX_TTL, SOON, builder, eventually, ms};
use kit::{Cluster, Server};
use quorlock::{Loss, ReleaseOutcome};
use std::time::Instant;
use tokio::time::{sleep, timeout};

/// Returns the number of scripts that `node` has executed. Each extension executes one script.
fn scripts(node: &Server) -> u64 {
    node.calls("evalsha") + node.calls("eval")
}

/// Changes the key's TTL on all nodes as often as possible for 3 s, and at least 300 times. Returns the number of scripts that the first node
/// executed in this time, and the number of minimum check intervals (100 ms) that fit into this time.
fn change_repeatedly(cluster: &Cluster, ttl: &str) -> (u64, u64) {
    let (started, before) = (Instant::now(), scripts(&cluster[0]));
    let mut times = 0;
    while started.elapsed() < ms(3_000) || times < 300 {
        cluster.iter().for_each(|node| drop(node.cmd(&["PEXPIRE", "r", ttl])));
        times += 1;
    }
    let run = scripts(&cluster[0]) - before;
    println!("{run} scripts for {times} changes with a ttl of {ttl} ms");
    (run, u64::try_from(started.elapsed().as_millis()).expect("below 2^64") / 100)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frequently_changed_key_is_checked_ten_times_a_second() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).build().expect("valid settings");
    // With this TTL, the lease is not renewed during the test.
    let lease =
        redlock.acquire("r").ttl(MAX_TTL).auto_extend(MAX_TTL).await.expect("the lock is free");
    eventually("all nodes have the key", || cluster.all_have("r")).await;
    let (run, pauses) = change_repeatedly(&cluster, "3600000");
    assert!(run <= pauses + 2, "{run} scripts in {pauses} intervals");
    // Shortened keys look as if the client's clock had stopped, so the client also extends the lease.
    let (run, pauses) = change_repeatedly(&cluster, "3000000");
    assert!(run <= 2 * pauses + 4, "{run} scripts in {pauses} intervals");
    assert!(lease.is_valid(), "{:?}", lease.loss());
    // The client must not miss a change within the interval, so the test overwrites the key directly after another
    // change.
    for value in ["touched", "other"] {
        cluster.iter().for_each(|node| node.set("r", value));
    }
    assert_eq!(timeout(SOON, lease.lost()).await.expect("the loss is reported"), Loss::TakenOver);
}

#[tokio::test]
async fn loss_directly_after_a_check_is_reported() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).build().expect("valid settings");
    let lease =
        redlock.acquire("r").ttl(MAX_TTL).auto_extend(MAX_TTL).await.expect("the lock is free");
    eventually("all nodes have the key", || cluster.all_have("r")).await;
    let before = scripts(&cluster[0]);
    cluster.iter().for_each(|node| drop(node.cmd(&["PEXPIRE", "r", "3000000"])));
    eventually("a check was made", || scripts(&cluster[0]) > before).await;
    cluster.iter().for_each(Server::flushall);
    assert_eq!(timeout(SOON, lease.lost()).await.expect("the loss is reported"), Loss::QuorumLost);
}

#[tokio::test]
async fn waiting_for_loss_of_a_released_lease_keeps_no_connection() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).build().expect("valid settings");
    let lease = redlock.acquire("r").await.expect("the lock is free");
    let (waiting, view) = (lease.view(), lease.view());
    let waiting = tokio::spawn(async move { waiting.lost().await });
    sleep(ms(50)).await;
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    drop(redlock);
    let has_disconnected = || cluster.iter().all(|node| node.clients().is_empty());
    eventually("the client has disconnected", has_disconnected).await;
    assert!(!waiting.is_finished(), "a release is not a loss");
    assert_eq!((view.resource(), view.report().granted() >= 2), (&b"r"[..], true));
    waiting.abort();
}

#[tokio::test]
async fn lost_subscribes_to_keys_if_the_acquire_did_not() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).ttl(MAX_TTL).build().expect("valid settings");
    let cases = [
        ("one attempt", redlock.try_acquire("r")),
        ("fenced", redlock.acquire("r").wait(SOON).fenced()),
        ("two resources", redlock.acquire_all(["r", "s"]).wait(SOON)),
        ("one of two", redlock.acquire_any(["r", "held"]).wait(SOON)),
    ];
    for (case, acquire) in cases {
        cluster.iter().for_each(|node| node.set("held", "other"));
        let lease = acquire.await.expect("the lock is free");
        eventually("all nodes have the key", || cluster.all_have("r")).await;
        let (view, before) = (lease.view(), scripts(&cluster[2]));
        let waiting = tokio::spawn(async move { view.lost().await });
        eventually(case, || scripts(&cluster[2]) > before).await;
        cluster.iter().for_each(|node| node.set("r", "other"));
        let loss = timeout(SOON, waiting).await.expect("the loss is reported").expect("no panic");
        assert_eq!(loss, Loss::TakenOver, "{case}");
        drop(lease);
        cluster.iter().for_each(Server::flushall);
    }
}

#[tokio::test]
async fn changes_of_different_nodes_count_until_an_extension() {
    let cluster = Cluster::start(3);
    // Redis 6.2 ignores `NOLOOP` in scripts: it also pushes the changes that the client's own extension made, and these
    // pushes can arrive after the extension has ended. An extension to a shorter ttl changes no key.
    let pushes_own_changes = cluster[0].info("server")["redis_version"].starts_with("6.");
    let ttls =
        if pushes_own_changes { vec![MAX_TTL / 4] } else { vec![MAX_TTL / 4, MAX_TTL * 3 / 4] };
    for ttl in ttls {
        let redlock = builder(&cluster).build().expect("valid settings");
        let lease = redlock.acquire("r").ttl(MAX_TTL / 2).auto_extend(MAX_TTL).await.expect("free");
        eventually("all nodes have granted", || lease.report().granted() == 3).await;
        let change = |at: usize| drop(cluster[at].cmd(&["SET", "r", lease.value(), "KEEPTTL"]));
        change(0);
        sleep(ms(300)).await;
        let before = scripts(&cluster[2]);
        lease.extend(ttl).await.expect("it is held");
        eventually("the third node has executed it", || scripts(&cluster[2]) > before).await;
        sleep(ms(300)).await;
        let before = scripts(&cluster[2]);
        change(1);
        sleep(ms(500)).await;
        assert_eq!(scripts(&cluster[2]), before, "only a minority has changed since: {ttl:?}");
        change(0);
        eventually("a quorum changed, so a check runs", || scripts(&cluster[2]) > before).await;
        assert!(lease.is_valid());
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    }
}
