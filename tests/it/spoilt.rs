//! Fencing counters that show no number any more, under a lock that is held.

use crate::{MAX_TTL, builder, client, eventually, ms};
use kit::{Cluster, Server};
use quorlock::{AcquireError, ExtendError, Lease, Redlock, ReleaseOutcome};
use quorlock_test::Clock;
use std::time::Duration;

const COUNTER: &str = "r#quorlock:token:{r}";

/// What somebody else put in the place of a counter.
fn spoilt() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("a text", b"garbage".to_vec()),
        ("nothing", Vec::new()),
        ("no whole number", b"1.5".to_vec()),
        ("a negative number", b"-5".to_vec()),
        ("no number", b"nan".to_vec()),
        ("the end", b"9007199254740992".to_vec()),
        ("beyond the end", b"1e400".to_vec()),
        ("many digits", vec![b'9'; 1 << 20]),
        ("no text", (0..=u8::MAX).collect()),
    ]
}

/// A client, and its clock. Once that was moved by [`LATE`], a release goes to the counters, too: half of their
/// time is over.
fn aging(cluster: &Cluster) -> (Redlock, Clock) {
    let clock = Clock::default();
    let builder = builder(cluster).ttl(MAX_TTL).token_ttl(MAX_TTL).clock(&clock);
    (builder.build().expect("good settings"), clock)
}

const LATE: Duration = MAX_TTL.saturating_sub(Duration::from_secs(20));

/// A lease with a counter on every node.
async fn held(cluster: &Cluster, redlock: &Redlock) -> Lease {
    let lease = redlock.acquire("r").fenced().await.expect("a free lock");
    eventually("all have it", || cluster.all_have(COUNTER)).await;
    lease
}

#[tokio::test]
async fn a_release_deletes_its_key_whatever_the_counter_shows() {
    let cluster = Cluster::start(3);
    for (what, garbage) in spoilt() {
        let (redlock, clock) = aging(&cluster);
        cluster.iter().for_each(Server::flushall);
        let lease = held(&cluster, &redlock).await;
        clock.advance(LATE);
        cluster.iter().for_each(|node| node.set(COUNTER, &garbage));
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released), "{what}");
        eventually("no lock is left", || cluster.none_has("r")).await;
        let left = |node: &Server| node.get(COUNTER).as_deref() == Some(&garbage);
        assert!(cluster.iter().all(left), "{what}: it is not ours to repair");

        let (redlock, clock) = aging(&cluster);
        cluster.iter().for_each(Server::flushall);
        let lease = held(&cluster, &redlock).await;
        clock.advance(LATE);
        cluster.iter().for_each(|node| node.set(COUNTER, &garbage));
        drop(lease);
        eventually("no lock is left", || cluster.none_has("r")).await;
        redlock.close().await.expect("nothing is owed");
    }
}

#[tokio::test]
async fn a_release_leaves_a_counter_of_another_type_alone() {
    let cluster = Cluster::start(3);
    let (redlock, clock) = aging(&cluster);
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
        assert_eq!(node.pttl(COUNTER), -1, "not touched");
    }
    redlock.close().await.expect("nothing is owed");
}

#[tokio::test]
async fn a_cool_down_begins_whatever_the_counter_shows() {
    let cluster = Cluster::start(3);
    let (redlock, clock) = aging(&cluster);
    let lease = held(&cluster, &redlock).await;
    clock.advance(LATE);
    let value = lease.value().as_bytes().to_vec();
    cluster.iter().for_each(|node| node.set(COUNTER, "garbage"));
    let hour = Duration::from_hours(1);
    assert_eq!(lease.release_after(hour).await, Ok(ReleaseOutcome::Released));
    let cools = |node: &Server| {
        node.pttl("r") > 3_500_000 && node.get("r").is_some_and(|standing| standing != value)
    };
    eventually("another value stands there", || cluster.iter().all(cools)).await;
}

#[tokio::test]
async fn the_other_counters_of_a_set_are_kept_up_by_its_release() {
    let cluster = Cluster::start(3);
    let (redlock, clock) = aging(&cluster);
    let set = redlock.acquire_all(["a", "b", "r"]).fenced().await.expect("free locks");
    let token = set.token().expect("it is fenced").to_string();
    let [a, b] = ["a", "b"].map(|name| format!("{name}#quorlock:token:{{{name}}}"));
    eventually("all have it", || cluster.all_have(COUNTER)).await;
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
async fn all_else_is_refused_as_long_as_a_counter_shows_no_number() {
    let cluster = Cluster::start(3);
    let (ours, theirs) = (client(&cluster), client(&cluster));
    let lease = held(&cluster, &ours).await;
    let value = lease.value().to_owned();
    cluster.iter().for_each(|node| node.set(COUNTER, "garbage"));
    let refused = lease.extend(ms(60_000)).await.expect_err("its token could be given again");
    assert!(matches!(refused, ExtendError::NoQuorum { .. }), "{refused}");
    assert!(refused.to_string().contains("COUNTER"), "{refused}");
    let refused = theirs.adopt("r", &value).fenced().await.expect_err("no token can be had");
    assert!(matches!(refused, AcquireError::NoQuorum { .. }), "{refused}");
    for node in &cluster {
        assert_eq!(node.get("r").as_deref(), Some(value.as_bytes()), "it is still ours");
        assert_eq!(node.get(COUNTER).as_deref(), Some(&b"garbage"[..]));
    }
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    let refused = ours.try_acquire("r").fenced().await.expect_err("no token can be had");
    assert!(refused.to_string().contains("COUNTER"), "{refused}");
    eventually("no lock is left", || cluster.none_has("r")).await;
    assert!(cluster.iter().all(|node| node.del(COUNTER)));
    held(&cluster, &ours).await.release().await.expect("nodes are up");
}

#[tokio::test]
async fn a_full_server_takes_the_release_and_keeps_the_counter_up() {
    let cluster = Cluster::start(3);
    let (redlock, clock) = aging(&cluster);
    let lease = held(&cluster, &redlock).await;
    clock.advance(LATE);
    let token = lease.token().expect("it is fenced").to_string();
    for node in &cluster {
        node.set(COUNTER, "5");
        node.cmd(&["CONFIG", "SET", "maxmemory", "1"]);
    }
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    eventually("no lock is left", || cluster.none_has("r")).await;
    let is_kept = |node: &Server| node.get(COUNTER).as_deref() == Some(token.as_bytes());
    assert!(cluster.iter().all(is_kept), "what the next token hangs on");
}
