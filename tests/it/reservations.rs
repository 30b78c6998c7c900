//! Tests of the keys that waiting readers and writers leave on the nodes.

use crate::rw_lock::{INTENT, is_contended, quick_client, rw_lock};
use crate::{client, eventually, ms};
use kit::Cluster;
use tokio::time::{Instant, sleep, timeout};

const REQUEST: &str = "catalog#quorlock:waiting:{catalog}";

/// Stores the intent that a crashed writer with this TTL has left on all nodes.
fn leave_intent(cluster: &Cluster, ttl_ms: u64, lifetime_ms: u64) {
    let (intent, lifetime) = (format!("{ttl_ms} gone"), lifetime_ms.to_string());
    for server in cluster {
        server.cmd(&["SET", INTENT, &intent, "PX", &lifetime]);
    }
}

#[tokio::test]
async fn writer_that_gave_up_lets_readers_in() {
    let cluster = Cluster::start(3);
    let (one, two) = (client(&cluster), client(&cluster));
    let lock = rw_lock(&one);
    let reader = lock.read().ttl(ms(600_000)).await.expect("free");
    for ending in ["deadline", "drop", "close"] {
        let late = client(&cluster);
        let writer = rw_lock(&late).write().ttl(ms(300_000));
        match ending {
            "deadline" => assert!(is_contended(&writer.wait(ms(500)).await)),
            "drop" => assert!(timeout(ms(500), writer.wait(ms(300_000))).await.is_err()),
            _ => {
                let writing = tokio::spawn(writer.wait(ms(300_000)).into_future());
                eventually("an intent", || cluster.all_have(INTENT)).await;
                // The release of an attempt in progress would also delete the intent.
                sleep(ms(100)).await;
                late.close().await.expect("nodes are up");
                writing.await.expect("no panic").expect_err("the client is closed");
            }
        }
        let new = rw_lock(&two).read().wait(ms(30_000)).await.expect("no writer waits");
        assert_eq!(new.release().await, Ok(quorlock::ReleaseOutcome::Released));
        eventually(ending, || cluster.none_has(INTENT) && cluster.none_has(REQUEST)).await;
    }
    assert_eq!(reader.release().await, Ok(quorlock::ReleaseOutcome::Released));
}

#[tokio::test]
async fn reader_that_gave_up_leaves_no_key() {
    let cluster = Cluster::start(3);
    let lock = rw_lock(&client(&cluster));
    let writer = lock.write().ttl(ms(600_000)).await.expect("free");
    let late = client(&cluster);
    let reading = tokio::spawn(rw_lock(&late).read().wait(ms(300_000)).into_future());
    eventually("a request", || cluster.all_have(REQUEST)).await;
    late.close().await.expect("nodes are up");
    reading.await.expect("no panic").expect_err("the client is closed");
    eventually("no request", || cluster.none_has(REQUEST)).await;
    assert_eq!(writer.release().await, Ok(quorlock::ReleaseOutcome::Released));
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn intent_of_a_crashed_writer_ends_after_its_ttl() {
    let cluster = Cluster::start(3);
    let lock = rw_lock(&quick_client(&cluster));
    let reader = lock.read().ttl(ms(60_000)).await.expect("free");
    let began = Instant::now();
    leave_intent(&cluster, 1_000, 2_000);
    let nested = lock.read().wait(ms(30_000)).await.expect("the intent has lapsed");
    assert!(began.elapsed() >= ms(900), "{:?}", began.elapsed());
    // No writer can set another intent for as long again.
    let writing = tokio::spawn(lock.write().ttl(ms(1_000)).wait(ms(30_000)).into_future());
    sleep(ms(300)).await;
    let third = lock.try_read().await;
    if began.elapsed() < ms(1_900) {
        drop(third.expect("no intent"));
    }
    drop((reader, nested));
    drop(writing.await.expect("no panic").expect("the readers are gone"));
}

#[tokio::test]
async fn intent_that_lasts_longer_than_its_ttl_is_void() {
    let cluster = Cluster::start(3);
    let lock = rw_lock(&client(&cluster));
    // The nodes' clocks were put back by an hour.
    leave_intent(&cluster, 10_000, 3_620_000);
    let reader = lock.read().ttl(ms(60_000)).wait(ms(30_000)).await.expect("the intent is void");
    let writing = tokio::spawn(lock.write().wait(ms(30_000)).into_future());
    let is_new = || cluster.iter().all(|it| it.get(INTENT).is_some_and(|it| it != b"10000 gone"));
    eventually("an intent of the new writer", is_new).await;
    assert!(is_contended(&lock.try_read().await));
    assert_eq!(reader.release().await, Ok(quorlock::ReleaseOutcome::Released));
    drop(writing.await.expect("no panic").expect("free"));
}
