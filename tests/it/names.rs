//! Tests of lock names. A name is any byte sequence except the names of the library's own keys (see `companions`). The
//! key in Redis is exactly the prefix followed by the name.

use crate::{builder, client, eventually, ms};
use kit::Cluster;
use quorlock::{AcquireError, Lease, Redlock, ReleaseOutcome};
use std::collections::BTreeSet;

fn unusual() -> Vec<Vec<u8>> {
    let texts = [
        "",
        " ",
        "two words",
        " leading and trailing ",
        "line\nbreak",
        "\r\n",
        "*3\r\n$3\r\nSET\r\n",
        "$-1\r\n",
        "\0",
        "\0🐉",
        "日本語/ключ",
        "*",
        "[a-z]?",
        "h?llo*",
        "\\*",
        "{hash}tag",
        "{hash}tags",
        "{}",
        "\"quoted\" and 'quoted'",
        "nil",
        "-1",
        "KEYS[1]",
        "%s{0}",
    ];
    let mut names: Vec<Vec<u8>> = texts.map(Vec::from).into();
    names.push((0..=u8::MAX).collect());
    names.push((0..=u8::MAX).rev().collect());
    names.push(vec![0xff; 3]);
    names.push(vec![b'x'; 64 << 10]);
    names.push(vec![0; 64 << 10]);
    names
}

/// Returns the keys of one node, or `None` if the nodes have different keys.
fn keys(cluster: &Cluster) -> Option<Vec<Vec<u8>>> {
    let mut per_node = cluster.keys_per_node();
    let first = per_node.pop()?;
    per_node.iter().all(|keys| *keys == first).then_some(first)
}

async fn exercise_lock(cluster: &Cluster, clients: [&Redlock; 2], resource: &[u8], key: &[u8]) {
    let [redlock, other_client] = clients;
    let name = String::from_utf8_lossy(&resource[..resource.len().min(40)]).into_owned();
    let lease = redlock.try_acquire(resource).await;
    let lease = lease.unwrap_or_else(|error| panic!("{name:?}: {error}"));
    assert_eq!(lease.resource(), resource);
    eventually("all nodes have only this key", || keys(cluster).is_some_and(|keys| keys == [key]))
        .await;
    for node in cluster {
        assert_eq!(node.get(key).as_deref(), Some(lease.value().as_bytes()), "{name:?}");
    }
    let shown = format!("{lease:?}");
    assert!(!shown.contains(lease.value()) && !shown.contains('\n'), "{shown}");

    let refused = other_client.try_acquire(resource).await.expect_err("it is held");
    assert!(matches!(refused, AcquireError::Contended { .. }), "{name:?}: {refused}");
    lease.extend(ms(90_000)).await.unwrap_or_else(|error| panic!("{name:?}: {error}"));
    eventually("all nodes have the longer expiry", || {
        cluster.iter().all(|node| node.pttl(key) > 60_000)
    })
    .await;
    let released = lease.release().await.unwrap_or_else(|error| panic!("{name:?}: {error}"));
    assert_eq!(released, ReleaseOutcome::Released, "{name:?}");
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn unusual_names_are_used_as_keys_unchanged() {
    let cluster = Cluster::start(3);
    let (redlock, other_client) = (client(&cluster), client(&cluster));
    for resource in unusual() {
        exercise_lock(&cluster, [&redlock, &other_client], &resource, &resource).await;
    }
}

#[tokio::test]
async fn unusual_prefixes_are_used_unchanged() {
    let cluster = Cluster::start(3);
    for prefix in [&b""[..], b"lock:", b"{tag}:", b"*", b" \r\n", b"\0", b"\xff\xfe"] {
        let with_prefix = || builder(&cluster).key_prefix(prefix).build().expect("valid settings");
        let (redlock, other_client) = (with_prefix(), with_prefix());
        for resource in [&b"r"[..], b"", b"\0\xf0", b"*"] {
            let key = [prefix, resource].concat();
            exercise_lock(&cluster, [&redlock, &other_client], resource, &key).await;
        }
    }
}

#[tokio::test]
async fn unusual_names_can_be_held_concurrently() {
    let cluster = Cluster::start(3);
    let clients = [client(&cluster), client(&cluster)];
    let mut leases: Vec<Lease> = Vec::new();
    for (place, resource) in unusual().iter().enumerate() {
        let lease = clients[place % 2].try_acquire(resource).await;
        leases.push(lease.expect("the names have different keys"));
    }
    let mut expected = unusual();
    expected.sort_unstable();
    eventually("all nodes have all keys", || keys(&cluster).as_ref() == Some(&expected)).await;
    leases.truncate(1);
    eventually("only the first key is left", || keys(&cluster) == Some(vec![Vec::new()])).await;
    drop(leases);
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn resource_can_be_text_or_bytes_owned_or_borrowed() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let (borrowed, bytes) = (&String::from("&String"), Vec::from(*b"Vec<u8>"));
    let leases = [
        redlock.try_acquire("str").await.expect("free"),
        redlock.try_acquire(String::from("String")).await.expect("free"),
        redlock.try_acquire(borrowed).await.expect("free"),
        redlock.acquire(b"&[u8; N]").await.expect("free"),
        redlock.acquire(*b"[u8; N]").await.expect("free"),
        redlock.acquire(&b"&[u8]"[..]).await.expect("free"),
        redlock.acquire(bytes).await.expect("free"),
        redlock.acquire(Box::<[u8]>::from(*b"Box<[u8]>")).await.expect("free"),
    ];
    let resources: BTreeSet<_> = leases.iter().map(|lease| lease.resource()).collect();
    let forms =
        ["str", "String", "&String", "&[u8; N]", "[u8; N]", "&[u8]", "Vec<u8>", "Box<[u8]>"];
    assert_eq!(resources, forms.map(str::as_bytes).into());
    drop(leases);
    eventually("no key is left", || cluster.is_empty()).await;
}

/// Checks that the key is the prefix followed by the resource. The documentation promises this format, so other
/// programs can use the same keys. Within one client, different names have different keys.
#[tokio::test]
async fn prefix_and_resource_form_one_key() {
    let cluster = Cluster::start(3);
    let with_prefix =
        |prefix: &str| builder(&cluster).key_prefix(prefix).build().expect("valid settings");
    let (none, a, ab) = (with_prefix(""), with_prefix("a"), with_prefix("ab"));
    let held = a.try_acquire("bc").await.expect("free");
    let refused = ab.try_acquire("c").await.expect_err("the same key");
    assert!(matches!(refused, AcquireError::Contended { .. }), "{refused}");
    let refused = none.try_acquire("abc").await.expect_err("the same key");
    assert!(matches!(refused, AcquireError::Contended { .. }), "{refused}");

    let others = [
        a.try_acquire("c").await.expect("another key"),
        a.try_acquire("b").await.expect("another key"),
        a.try_acquire("bC").await.expect("another key"),
        a.try_acquire("bc ").await.expect("another key"),
        a.try_acquire("bc\0").await.expect("another key"),
        ab.try_acquire("bc").await.expect("another key"),
        none.try_acquire("bc").await.expect("another key"),
    ];
    assert_eq!(held.release().await.expect("nodes are up"), ReleaseOutcome::Released);
    drop(ab.try_acquire("c").await.expect("the lock is released"));
    drop(others);
    eventually("no key is left", || cluster.is_empty()).await;
}

const MANY: usize = 3_000;

#[tokio::test]
async fn thousands_of_locks_are_held_and_released() {
    let cluster = Cluster::start(3);
    let (redlock, other_client) = (client(&cluster), client(&cluster));
    let acquires = |redlock: &Redlock| {
        let names = (0..MANY).map(|number| redlock.acquire(format!("many/{number}")));
        names.map(tokio::spawn).collect::<Vec<_>>()
    };
    let mut leases = Vec::new();
    for acquire in acquires(&redlock) {
        leases.push(acquire.await.expect("no panic").expect("free"));
    }
    eventually("all nodes have all keys", || {
        let keys = cluster.keys_per_node();
        keys.iter().all(|keys| keys.len() == MANY)
    })
    .await;
    let values: BTreeSet<_> = leases.iter().map(|lease| lease.value()).collect();
    assert_eq!(values.len(), MANY, "the values are unique");
    for lease in leases.iter().step_by(100) {
        let refused = other_client.try_acquire(lease.resource()).await.expect_err("it is held");
        assert!(matches!(refused, AcquireError::Contended { .. }), "{refused}");
    }
    drop(leases);
    eventually("no key is left", || cluster.is_empty()).await;
}
