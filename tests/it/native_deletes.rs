//! Servers with a native command that deletes a key if it has a given value: `DELIFEQ` of Valkey 9, `DELEX` of
//! Redis 8.4. Other servers run a script.

use crate::{client, eventually, granted_by_all};
use kit::{Cluster, Server};
use quorlock::ReleaseOutcome;

/// The native command of `server`, if it has one.
pub(crate) fn native(server: &Server) -> Option<&'static str> {
    let info = server.info("server");
    let at_least = |field: &str, least| {
        let mut parts = info.get(field)?.split('.').map(str::parse::<u32>);
        let level = (parts.next()?.ok()?, parts.next()?.ok()?);
        Some(level >= least)
    };
    match (at_least("valkey_version", (9, 0)), at_least("redis_version", (8, 4))) {
        (Some(true), _) => Some("delifeq"),
        (None, Some(true)) => Some("delex"),
        _ => None,
    }
}

/// Calls and refused calls of the native command, on all nodes.
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

/// Servers reply with different errors.
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
