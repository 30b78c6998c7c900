//! Tests of the keys that the library stores beside a lock's key, such as fencing counters. These keys never collide
//! with the key of another lock.

use crate::{builder, client, eventually, ms};
use kit::{Cluster, Server};
use quorlock::{AcquireError, ClientError, ConfigError, Lease, Redlock, ReleaseOutcome};
use std::collections::HashSet;

/// The marker in the name of every key that the library stores beside a lock's key. Lock names must not contain it.
const MARK: &str = "#quorlock:";

/// Pairs of lock names. One name of each pair equals, or resembles, the name that an earlier version of the library
/// gave to the fencing counter of the other name.
const NEIGHBOURS: [(&str, &str); 6] = [
    ("{user:7}", "{user:7}:token"),
    ("{user:7}:token", "{user:7}"),
    ("r", "r:token:{r}"),
    ("r:token:{r}", "r"),
    ("a", "{a}"),
    ("{a}", "a"),
];

async fn release(lease: Lease) {
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
}

/// Returns the keys of locks on all nodes, without the library's own keys.
fn locks(cluster: &Cluster) -> Vec<Vec<u8>> {
    let is_lock = |key: &Vec<u8>| !key.windows(MARK.len()).any(|part| part == MARK.as_bytes());
    cluster.keys_per_node().into_iter().flatten().filter(is_lock).collect()
}

#[tokio::test]
async fn lock_names_do_not_collide_with_counters() {
    let cluster = Cluster::start(3);
    let (redlock, other_client) = (client(&cluster), client(&cluster));
    for (name, other) in NEIGHBOURS {
        cluster.iter().for_each(Server::flushall);
        let first = redlock.try_acquire(name).fenced().await.expect("the lock is free");
        release(first).await;
        let plain = other_client.try_acquire(other).await;
        let plain = plain.unwrap_or_else(|error| panic!("{other} after {name}: {error}"));
        let fenced = redlock.try_acquire(name).fenced().await;
        let fenced = fenced.unwrap_or_else(|error| panic!("{name} beside {other}: {error}"));
        assert!(fenced.token().is_some());
        release(plain).await;
        release(fenced).await;
        let set = redlock.try_acquire_all([name, other]).fenced().await;
        release(set.unwrap_or_else(|error| panic!("{name} with {other}: {error}"))).await;
        eventually("the locks are released", || locks(&cluster).is_empty()).await;
        // A node outside the quorum may have received no command, so this combines the keys of all nodes.
        let counters: HashSet<_> = cluster.iter().flat_map(Server::keys).collect();
        assert_eq!(counters.len(), 2, "one counter for each lock: {counters:?}");
    }
}

#[tokio::test]
async fn key_has_one_counter_for_any_prefix_split() {
    let cluster = Cluster::start(3);
    for key in ["lock:r", "lock:{u}:r", "{lock}:r"] {
        cluster.iter().for_each(Server::flushall);
        let mut last = None;
        for length in 0..=key.len() {
            let (prefix, resource) = key.split_at(length);
            let redlock = builder(&cluster).key_prefix(prefix).build().expect("valid settings");
            let lease = redlock.try_acquire(resource).fenced().await.expect("the lock is free");
            assert!(lease.token() > last, "{prefix} {resource}");
            last = lease.token();
            release(lease).await;
            eventually("released", || locks(&cluster).is_empty()).await;
            assert_eq!(cluster[0].keys().len(), 1, "{prefix} {resource}");
        }
    }
}

#[tokio::test]
async fn user_restricted_to_a_prefix_can_draw_tokens() {
    let setup = Server::builder().user("walter", "secret");
    let cluster = Cluster::start_with(3, &setup);
    for node in &cluster {
        node.cmd(&["ACL", "SETUSER", "walter", "resetkeys", "~lock:*"]);
    }
    let urls = cluster.iter().map(Server::url_with_auth);
    let redlock = Redlock::builder().nodes(urls).node_timeout(ms(1_000)).key_prefix("lock:");
    let redlock = redlock.build().expect("valid settings");
    for name in ["r", "{u}:r"] {
        let lease = redlock.try_acquire(name).fenced().await.expect("the lock is free");
        assert!(lease.token().is_some());
        release(lease).await;
    }
}

#[tokio::test]
async fn reserved_names_are_refused_before_any_command() {
    let cluster = Cluster::start(3);
    let free = Redlock::builder().nodes(cluster.urls());
    let plain = client(&cluster);
    let part = builder(&cluster)
        .key_prefix("lock:#quor")
        .build()
        .expect("the prefix contains only a part of the mark");
    for (redlock, resource) in [
        (&plain, "r#quorlock:token:{r}"),
        (&plain, "{u}#quorlock:token"),
        (&plain, "#quorlock:"),
        (&plain, "of a later#quorlock:version"),
        (&part, "lock:r"),
    ] {
        let reason = ConfigError::ReservedResource { resource: resource.into() };
        assert!(reason.to_string().contains(&format!("{resource:?}")), "{reason}");
        let invalid = Some(AcquireError::Invalid(reason.clone()));
        assert_eq!(redlock.try_acquire(resource).await.err(), invalid);
        assert_eq!(redlock.acquire(resource).fenced().await.err(), invalid);
        assert_eq!(redlock.try_acquire_all(["a", resource]).await.err(), invalid);
        assert_eq!(redlock.acquire_all(["a", resource]).await.err(), invalid);
        assert_eq!(redlock.adopt(resource, "a value").await.err(), invalid);
        let invalid = ClientError::Invalid(reason);
        assert_eq!(redlock.status(resource).await, Err(invalid.clone()));
        assert_eq!(redlock.force_release(resource).await, Err(invalid));
    }
    for prefix in ["#quorlock:", "lock#quorlock:token:"] {
        let refused = free.clone().key_prefix(prefix).build().err();
        assert_eq!(refused, Some(ConfigError::ReservedPrefix { prefix: prefix.into() }));
    }
    for node in &cluster {
        for command in ["set", "get", "eval", "evalsha"] {
            assert_eq!(node.calls(command), 0, "{command}");
        }
    }
    release(part.try_acquire("x").await.expect("the name contains no mark")).await;
}

#[cfg(feature = "blocking")]
#[test]
fn blocking_client_refuses_reserved_names() {
    let cluster = Cluster::start(1);
    let redlock = builder(&cluster).build_blocking().expect("valid settings");
    let resource = "r#quorlock:token:{r}";
    let reason = ConfigError::ReservedResource { resource: resource.into() };
    let invalid = Some(AcquireError::Invalid(reason.clone()).into());
    assert_eq!(redlock.try_acquire(resource).call().err(), invalid);
    assert_eq!(redlock.acquire(resource).call().err(), invalid);
    assert_eq!(redlock.acquire_all([resource, "a"]).call().err(), invalid);
    assert_eq!(redlock.adopt(resource, "a value").call().err(), invalid);
    let invalid = ClientError::Invalid(reason);
    assert_eq!(redlock.status(resource), Err(invalid.clone().into()));
    assert_eq!(redlock.force_release(resource), Err(invalid.into()));
    assert!(cluster.is_empty());
}

/// Starts three servers in cluster mode. Each server owns all slots.
async fn in_cluster_mode() -> Cluster {
    let setup = Server::builder().arg("--cluster-enabled").arg("yes");
    let cluster = Cluster::start_with(3, &setup);
    let slots: Vec<_> = (0..16_384).map(|slot| slot.to_string()).collect();
    let all: Vec<_> =
        ["CLUSTER", "ADDSLOTS"].into_iter().chain(slots.iter().map(|s| &**s)).collect();
    for node in &cluster {
        node.cmd(&all);
    }
    let is_ok =
        |node: &Server| format!("{:?}", node.cmd(&["CLUSTER", "INFO"])).contains("state:ok");
    eventually("the servers accept commands", || cluster.iter().all(is_ok)).await;
    cluster
}

#[tokio::test]
async fn cluster_mode_counter_is_in_the_slot_of_its_lock() {
    let cluster = in_cluster_mode().await;
    let slot = |key: &[u8]| cluster[0].cmd(&[b"CLUSTER", b"KEYSLOT", key]);
    for (prefix, resource, has_token) in [
        ("", "a{b", false),
        ("", "a}b", false),
        ("", "{}x", false),
        ("", "{}", false),
        ("", "", false),
        ("a{", "b", false),
        ("", "r", true),
        ("", "{u}", true),
        ("", "{u}:token", true),
        ("", "a{b}c}d", true),
        ("", "{a}{b", true),
        ("", "{{}}", true),
        ("lock:", "r", true),
        ("lock:", "{u}:r", true),
        ("{lock}:", "a{b", true),
        ("{lock}:", "}", true),
        ("a{b", "c}d", true),
    ] {
        let redlock = builder(&cluster).key_prefix(prefix).build().expect("valid settings");
        let what = format!("{prefix:?} {resource:?}");
        let key = [prefix.as_bytes(), resource.as_bytes()].concat();
        cluster.iter().for_each(Server::flushall);
        let plain = redlock.try_acquire(resource).await;
        release(plain.unwrap_or_else(|error| panic!("{what}: {error}"))).await;
        let fenced = redlock.try_acquire(resource).fenced().await;
        if !has_token {
            let refused = fenced.expect_err("no counter name is in the lock's slot");
            let reason = ConfigError::NoCounter { resource: resource.into() };
            assert_eq!(refused, AcquireError::Invalid(reason), "{what}");
            assert!(refused.to_string().contains(&format!("{resource:?}")), "{refused}");
            continue;
        }
        let lease = fenced.unwrap_or_else(|error| panic!("{what}: {error}"));
        lease.extend(ms(60_000)).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        release(lease).await;
        eventually("released", || locks(&cluster).is_empty()).await;
        let counter = cluster[0].keys().pop().expect("the counter outlives the lock");
        assert!(counter.starts_with(&key), "{what}");
        assert_eq!(slot(&counter), slot(&key), "{what}");
    }
    // The unit tests only compare hash tags. Here the server computes the slots.
    for (key, other, is_same) in [
        ("a{b}c}", "b", true),
        ("{{}}", "{", true),
        ("{a}{b}", "a", true),
        ("{}{a}", "a", false),
        ("}a{", "a", false),
        ("r", "{r}", true),
    ] {
        assert_eq!(slot(key.as_bytes()) == slot(other.as_bytes()), is_same, "{key} {other}");
    }
    let set = client(&cluster).try_acquire_all(["{u}:a", "{u}:b"]).fenced().await;
    release(set.expect("all keys are in one slot")).await;
}
