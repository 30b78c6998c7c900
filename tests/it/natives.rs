//! Servers that delete a key of a given value by a command of their own: `DELIFEQ` of Valkey 9, `DELEX` of Redis
//! 8.4. Others are asked by a script.

use crate::{client, eventually, granted_by_all};
use kit::{Cluster, Server};
use quorlock::ReleaseOutcome;

/// The command, if `server` has it.
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

/// How often the command was run, and how often it was refused, on all nodes.
fn counted(cluster: &Cluster) -> (u64, u64) {
    let Some(command) = native(&cluster[0]) else { return (0, 0) };
    let run = cluster.iter().map(|node| node.calls(command)).sum();
    (run, cluster.iter().map(|node| node.rejected_calls(command)).sum())
}

#[tokio::test]
async fn a_lock_is_deleted_by_the_servers_own_command_where_it_has_one() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let has = u64::from(native(&cluster[0]).is_some());
    for fenced in [false, true] {
        let acquire = redlock.acquire("r");
        let acquire = if fenced { acquire.fenced() } else { acquire };
        let lease = acquire.await.expect("a free lock");
        eventually("all granted", || lease.report().granted() == 3).await;
        let (before, scripts) = (counted(&cluster).0, scripts(&cluster));
        assert_eq!(lease.release().await.expect("nodes are up"), ReleaseOutcome::Released);
        eventually("it is gone", || cluster.none_has("r")).await;
        assert_eq!(counted(&cluster).0 - before, 3 * has);
        assert_eq!(self::scripts(&cluster) - scripts, 3 * (1 - has));
    }
    // Where it deletes nothing, the script says why.
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

/// Servers differ in how they say so.
#[tokio::test]
async fn a_key_of_another_kind_leaves_the_command_in_use() {
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
    let before = counted(&cluster).0;
    assert_eq!(lease.release().await.expect("nodes are up"), ReleaseOutcome::Released);
    eventually("it is gone", || cluster.none_has("other")).await;
    assert_eq!(counted(&cluster).0 - before, 3 * has);
}

fn scripts(cluster: &Cluster) -> u64 {
    cluster.iter().map(|node| node.calls("evalsha")).sum()
}

#[tokio::test]
async fn where_it_is_forbidden_it_is_tried_once_and_the_script_does_it() {
    let cluster = Cluster::start(3);
    let Some(command) = native(&cluster[0]) else { return };
    let without = format!("-{command}");
    cluster.iter().for_each(|node| drop(node.cmd(&["ACL", "SETUSER", "default", &without])));
    let redlock = client(&cluster);
    for _ in 0..5 {
        let lease = granted_by_all(&redlock, "r").await;
        assert_eq!(lease.release().await.expect("nodes are up"), ReleaseOutcome::Released);
        eventually("it is gone", || cluster.none_has("r")).await;
    }
    assert_eq!(counted(&cluster), (0, 3), "once on each connection");
}
