//! Tests of fencing counters whose value stops being a number while a lock is held.

use crate::{MAX_TTL, builder, client, eventually, ms};
use kit::{Cluster, Server};
use quorlock::{AcquireError, ExtendError, Lease, Redlock, ReleaseOutcome};
use quorlock_test::Clock;
use std::time::Duration;

const COUNTER: &str = "r#quorlock:token:{r}";

fn invalid_values() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("a text", b"garbage".to_vec()),
        ("an empty value", Vec::new()),
        ("a fraction", b"1.5".to_vec()),
        ("a negative number", b"-5".to_vec()),
        ("not a number", b"nan".to_vec()),
        ("above the maximum", b"9007199254740992".to_vec()),
        ("far above the maximum", b"1e400".to_vec()),
        ("many digits", vec![b'9'; 1 << 20]),
        ("binary data", (0..=u8::MAX).collect()),
    ]
}

/// Creates a client with a test clock. An advance by [`LATE`] takes the client past half of the counters' TTL, so its
/// next release also refreshes the counters.
fn with_clock(cluster: &Cluster) -> (Redlock, Clock) {
    let clock = Clock::default();
    let builder = builder(cluster).ttl(MAX_TTL).token_ttl(MAX_TTL).clock(&clock);
    (builder.build().expect("valid settings"), clock)
}

const LATE: Duration = MAX_TTL.saturating_sub(Duration::from_secs(20));

async fn held(cluster: &Cluster, redlock: &Redlock) -> Lease {
    let lease = redlock.acquire("r").fenced().await.expect("the lock is free");
    eventually("all nodes have the counter", || cluster.all_have(COUNTER)).await;
    lease
}

#[tokio::test]
async fn release_deletes_the_key_with_an_invalid_counter() {
    let cluster = Cluster::start(3);
    for (what, value) in invalid_values() {
        let (redlock, clock) = with_clock(&cluster);
        cluster.iter().for_each(Server::flushall);
        let lease = held(&cluster, &redlock).await;
        clock.advance(LATE);
        cluster.iter().for_each(|node| node.set(COUNTER, &value));
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released), "{what}");
        eventually("no lock is left", || cluster.none_has("r")).await;
        let left = |node: &Server| node.get(COUNTER).as_deref() == Some(&value);
        assert!(cluster.iter().all(left), "{what}: the release must not change the counter");

        let (redlock, clock) = with_clock(&cluster);
        cluster.iter().for_each(Server::flushall);
        let lease = held(&cluster, &redlock).await;
        clock.advance(LATE);
        cluster.iter().for_each(|node| node.set(COUNTER, &value));
        drop(lease);
        eventually("no lock is left", || cluster.none_has("r")).await;
        redlock.close().await.expect("no release is pending");
    }
}

#[tokio::test]
async fn release_keeps_a_counter_of_another_type() {
    let cluster = Cluster::start(3);
    let (redlock, clock) = with_clock(&cluster);
    let lease = held(&cluster, &redlock).await;
    clock.advance(LATE);
    for node in &cluster {
        node.del(COUNTER);
        node.cmd(&["RPUSH", COUNTER, "x"]);
    }
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    eventually("no lock is left", || cluster.none_has("r")).await;
    for node in &cluster {
        assert_eq!(node.cmd(&["LLEN", COUNTER]), redis::Value::Int(1));
        assert_eq!(node.pttl(COUNTER), -1, "the expiry is unchanged");
    }
    redlock.close().await.expect("no release is pending");
}

#[tokio::test]
async fn cool_down_begins_with_an_invalid_counter() {
    let cluster = Cluster::start(3);
    let (redlock, clock) = with_clock(&cluster);
    let lease = held(&cluster, &redlock).await;
    clock.advance(LATE);
    let value = lease.value().as_bytes().to_vec();
    cluster.iter().for_each(|node| node.set(COUNTER, "garbage"));
    let hour = Duration::from_hours(1);
    assert_eq!(lease.release_after(hour).await, Ok(ReleaseOutcome::Released));
    let has_cool_down = |node: &Server| {
        node.pttl("r") > 3_500_000 && node.get("r").is_some_and(|current| current != value)
    };
    eventually("the cool-down runs on every node", || cluster.iter().all(has_cool_down)).await;
}

#[tokio::test]
async fn release_refreshes_the_other_counters_of_several_locks() {
    let cluster = Cluster::start(3);
    let (redlock, clock) = with_clock(&cluster);
    let set = redlock.acquire_all(["a", "b", "r"]).fenced().await.expect("the locks are free");
    let token = set.token().expect("the lease is fenced").to_string();
    let [a, b] = ["a", "b"].map(|name| format!("{name}#quorlock:token:{{{name}}}"));
    eventually("all nodes have the counters", || cluster.all_have(COUNTER)).await;
    clock.advance(LATE);
    for node in &cluster {
        node.set(&a, "5");
        node.set(&b, "garbage");
        node.del(COUNTER);
    }
    assert_eq!(set.release().await, Ok(ReleaseOutcome::Released));
    eventually("no lock is left", || ["a", "b", "r"].iter().all(|name| cluster.none_has(name)))
        .await;
    for node in &cluster {
        for counter in [a.as_str(), COUNTER] {
            assert_eq!(node.get(counter).as_deref(), Some(token.as_bytes()), "{counter}");
        }
        assert_eq!(node.get(&b).as_deref(), Some(&b"garbage"[..]));
    }
}

#[tokio::test]
async fn other_operations_are_refused_with_an_invalid_counter() {
    let cluster = Cluster::start(3);
    let (redlock, other_client) = (client(&cluster), client(&cluster));
    let lease = held(&cluster, &redlock).await;
    let value = lease.value().to_owned();
    cluster.iter().for_each(|node| node.set(COUNTER, "garbage"));
    let refused = lease.extend(ms(60_000)).await.expect_err("the token cannot be confirmed");
    assert!(matches!(refused, ExtendError::NoQuorum { .. }), "{refused}");
    assert!(refused.to_string().contains("COUNTER"), "{refused}");
    let refused =
        other_client.adopt("r", &value).fenced().await.expect_err("the counters are invalid");
    assert!(matches!(refused, AcquireError::NoQuorum { .. }), "{refused}");
    for node in &cluster {
        assert_eq!(
            node.get("r").as_deref(),
            Some(value.as_bytes()),
            "the lease still holds the key"
        );
        assert_eq!(node.get(COUNTER).as_deref(), Some(&b"garbage"[..]));
    }
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    let refused = redlock.try_acquire("r").fenced().await.expect_err("the counters are invalid");
    assert!(refused.to_string().contains("COUNTER"), "{refused}");
    eventually("no lock is left", || cluster.none_has("r")).await;
    assert!(cluster.iter().all(|node| node.del(COUNTER)));
    assert_eq!(held(&cluster, &redlock).await.release().await, Ok(ReleaseOutcome::Released));
}

#[tokio::test]
async fn full_server_accepts_the_release_and_refreshes_the_counter() {
    let cluster = Cluster::start(3);
    let (redlock, clock) = with_clock(&cluster);
    let lease = held(&cluster, &redlock).await;
    clock.advance(LATE);
    let token = lease.token().expect("the lease is fenced").to_string();
    for node in &cluster {
        node.set(COUNTER, "5");
        node.cmd(&["CONFIG", "SET", "maxmemory", "1"]);
    }
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    eventually("no lock is left", || cluster.none_has("r")).await;
    let is_kept = |node: &Server| node.get(COUNTER).as_deref() == Some(token.as_bytes());
    assert!(cluster.iter().all(is_kept), "the release must refresh the counter");
}
