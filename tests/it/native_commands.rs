//! Tests of the native commands that replace scripts. `DELIFEQ` (Valkey 9.0) and `DELEX` (Redis 8.4) delete a key that
//! has a given value. `MSETEX` (Valkey 9.1, Redis 8.4) sets several keys.

use crate::{client, eventually, granted_by_all};
use kit::{Cluster, Server};
use quorlock::{AcquireError, ReleaseOutcome};

/// Returns the native command that deletes a key with a given value, or `None` if `server` has no such command.
pub(crate) fn native(server: &Server) -> Option<&'static str> {
    match at_least(server, (9, 0), (8, 4)) {
        (Some(true), _) => Some("delifeq"),
        (None, true) => Some("delex"),
        _ => None,
    }
}

/// Returns true if `server` supports `MSETEX`.
pub(crate) fn sets_all(server: &Server) -> bool {
    let (valkey, redis) = at_least(server, (9, 1), (8, 4));
    valkey.unwrap_or(redis)
}

/// Compares the server's version with a minimum version of Valkey and a minimum version of Redis. Returns the result
/// for each. The result for Valkey is `None` if the server is not Valkey.
fn at_least(server: &Server, valkey: (u32, u32), redis: (u32, u32)) -> (Option<bool>, bool) {
    let info = server.info("server");
    let at_least = |field: &str, least| {
        let mut parts = info.get(field)?.split('.').map(str::parse::<u32>);
        let level = (parts.next()?.ok()?, parts.next()?.ok()?);
        Some(level >= least)
    };
    (at_least("valkey_version", valkey), at_least("redis_version", redis).unwrap_or_default())
}

/// Returns how often the nodes received the native command that deletes a key, and how often they refused it.
fn native_calls(cluster: &Cluster) -> (u64, u64) {
    let Some(command) = native(&cluster[0]) else { return (0, 0) };
    let run = cluster.iter().map(|node| node.calls(command)).sum();
    (run, cluster.iter().map(|node| node.rejected_calls(command)).sum())
}

#[tokio::test]
async fn release_uses_the_native_command_if_available() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let has = u64::from(native(&cluster[0]).is_some());
    for fenced in [false, true] {
        let acquire = redlock.acquire("r");
        let acquire = if fenced { acquire.fenced() } else { acquire };
        let lease = acquire.await.expect("the lock is free");
        eventually("all nodes have granted", || lease.report().granted() == 3).await;
        let (before, scripts) = (native_calls(&cluster).0, scripts(&cluster));
        assert_eq!(lease.release().await.expect("nodes are up"), ReleaseOutcome::Released);
        eventually("the key is deleted", || cluster.none_has("r")).await;
        assert_eq!(native_calls(&cluster).0 - before, 3 * has);
        assert_eq!(self::scripts(&cluster) - scripts, 3 * (1 - has));
    }
    // If the native command deletes no key, the script reports the reason.
    for (other, outcome) in
        [(None, ReleaseOutcome::Expired), (Some("x"), ReleaseOutcome::TakenOver)]
    {
        let lease = granted_by_all(&redlock, "r").await;
        for node in &cluster {
            match other {
                Some(value) => node.set("r", value),
                None => drop(node.cmd(&["DEL", "r"])),
            }
        }
        assert_eq!(lease.release().await.expect("nodes are up"), outcome);
    }
}

/// Checks that an error about a key of the wrong type does not make the client fall back to the script. Servers report
/// this error in different words.
#[tokio::test]
async fn native_command_stays_in_use_after_a_type_error() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let has = u64::from(native(&cluster[0]).is_some());
    let lease = granted_by_all(&redlock, "r").await;
    for node in &cluster {
        node.cmd(&["DEL", "r"]);
        node.cmd(&["RPUSH", "r", "x"]);
    }
    assert_eq!(lease.release().await.expect("nodes are up"), ReleaseOutcome::TakenOver);
    let lease = granted_by_all(&redlock, "other").await;
    let before = native_calls(&cluster).0;
    assert_eq!(lease.release().await.expect("nodes are up"), ReleaseOutcome::Released);
    eventually("the key is deleted", || cluster.none_has("other")).await;
    assert_eq!(native_calls(&cluster).0 - before, 3 * has);
}

fn scripts(cluster: &Cluster) -> u64 {
    cluster.iter().map(|node| node.calls("evalsha")).sum()
}

#[tokio::test]
async fn forbidden_native_command_is_replaced_by_the_script() {
    let cluster = Cluster::start(3);
    let Some(command) = native(&cluster[0]) else { return };
    let without = format!("-{command}");
    cluster.iter().for_each(|node| drop(node.cmd(&["ACL", "SETUSER", "default", &without])));
    let redlock = client(&cluster);
    for _ in 0..5 {
        let lease = granted_by_all(&redlock, "r").await;
        assert_eq!(lease.release().await.expect("nodes are up"), ReleaseOutcome::Released);
        eventually("the key is deleted", || cluster.none_has("r")).await;
    }
    assert_eq!(native_calls(&cluster), (0, 3), "once on each connection");
}

fn calls(cluster: &Cluster, command: &str) -> u64 {
    cluster.iter().map(|node| node.calls(command)).sum()
}

#[tokio::test]
async fn set_is_acquired_and_released_by_native_commands() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let has = u64::from(sets_all(&cluster[0]));
    let own_delete = native(&cluster[0]);
    for round in 1..=3 {
        let lease = redlock.acquire_all(["a", "b", "c"]).await.expect("free locks");
        eventually("all nodes granted", || lease.report().granted() == 3).await;
        assert_eq!(calls(&cluster, "msetex"), 3 * round * has);
        let value = Some(lease.value().as_bytes().to_vec());
        for node in &cluster {
            for key in ["a", "b", "c"] {
                assert_eq!(node.get(key), value);
                assert!((1..=30_000).contains(&node.pttl(key)), "no key without an expiry");
            }
        }
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
        eventually("no key is left", || cluster.is_empty()).await;
        let deleted = own_delete.map_or(0, |command| calls(&cluster, command));
        assert_eq!(deleted, if own_delete.is_some() { 9 * round } else { 0 });
        let natives = has + u64::from(own_delete.is_some());
        assert_eq!(scripts(&cluster), 3 * round * (2 - natives));
    }
}

#[tokio::test]
async fn refused_native_set_reports_the_holder_and_sets_no_key() {
    let cluster = Cluster::start(3);
    let (redlock, other) = (client(&cluster), client(&cluster));
    let held = granted_by_all(&other, "b").await;
    let refused = redlock.try_acquire_all(["a", "b", "c"]).await.expect_err("b is held");
    assert!(matches!(refused, AcquireError::Contended { .. }), "{refused}");
    assert!(refused.retry_after().is_some(), "the script reports the remaining TTL");
    assert!(cluster.none_has("a") && cluster.none_has("c"), "all or nothing");
    let has = u64::from(sets_all(&cluster[0]));
    assert!(calls(&cluster, "msetex") >= 2 * has, "a quorum was asked");
    assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
    eventually("b is free", || cluster.none_has("b")).await;
    // A key of another type is also a conflict.
    for node in &cluster {
        node.cmd(&["RPUSH", "c", "x"]);
    }
    let refused = redlock.try_acquire_all(["a", "b", "c"]).await.expect_err("c is a list");
    assert!(matches!(refused, AcquireError::Contended { .. }), "{refused}");
    assert!(cluster.none_has("a") && cluster.none_has("b"), "all or nothing");
}

#[tokio::test]
async fn incomplete_set_is_released_by_native_command_and_script() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    for (other, outcome) in
        [(None, ReleaseOutcome::Expired), (Some("x"), ReleaseOutcome::TakenOver)]
    {
        let lease = redlock.acquire_all(["a", "b", "c"]).await.expect("free locks");
        eventually("all nodes granted", || lease.report().granted() == 3).await;
        for node in &cluster {
            node.cmd(&["DEL", "b"]);
            if let Some(value) = other {
                node.set("b", value);
            }
        }
        assert_eq!(lease.release().await.expect("nodes are up"), outcome);
        eventually("its keys are deleted", || cluster.none_has("a") && cluster.none_has("c")).await;
        let other = other.map(|value| value.as_bytes().to_vec());
        assert!(cluster.iter().all(|node| node.get("b") == other), "another value stays");
    }
}

/// Checks that a set of locks is acquired by script if the user may not call `MSETEX` or `EXISTS`. Access rules that
/// are older than these commands do not permit them.
#[tokio::test]
async fn set_without_new_permissions_is_acquired_by_script() {
    for denied in [["-msetex", "-exists"], ["-msetex", "+exists"], ["+msetex", "-exists"]] {
        let cluster = Cluster::start(3);
        let has = sets_all(&cluster[0]);
        let denied = denied.into_iter().filter(|rule| has || !rule.ends_with("msetex"));
        let rules: Vec<_> = denied.collect();
        for node in &cluster {
            node.cmd(&[&["ACL", "SETUSER", "default"], &rules[..]].concat());
        }
        let redlock = client(&cluster);
        for _ in 0..3 {
            let lease = redlock.acquire_all(["a", "b"]).await.expect("free locks");
            eventually("all nodes granted", || lease.report().granted() == 3).await;
            assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
            eventually("no key is left", || cluster.is_empty()).await;
        }
        let refused: u64 = cluster.iter().map(|node| node.rejected_calls("msetex")).sum();
        let once = if has && rules.contains(&"-msetex") { 3 } else { 0 };
        assert_eq!(refused, once, "once on each connection: {rules:?}");
    }
}
