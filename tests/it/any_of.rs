//! Tests of acquires of any one of several resources.

use crate::{builder, client, eventually, ms};
use kit::Cluster;
use quorlock::{AcquireError, ConfigError, Lease, ReleaseOutcome};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

const SLOTS: [&str; 3] = ["slot/0", "slot/1", "slot/2"];

fn resource(lease: &Lease) -> String {
    assert_eq!(lease.resources().count(), 1);
    String::from_utf8_lossy(lease.resource()).into_owned()
}

#[tokio::test]
async fn leases_have_different_resources_until_all_are_held() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).key_prefix("lock:").build().expect("valid settings");
    let mut leases = Vec::new();
    for _ in SLOTS {
        leases.push(redlock.try_acquire_any(SLOTS).await.expect("a slot is free"));
    }
    let resources: BTreeSet<_> = leases.iter().map(resource).collect();
    assert_eq!(resources.into_iter().collect::<Vec<_>>(), SLOTS);
    for lease in &leases {
        let key = format!("lock:{}", resource(lease));
        let value = lease.value().as_bytes();
        eventually("all nodes have the key", || {
            cluster.iter().all(|node| node.get(&key).as_deref() == Some(value))
        })
        .await;
    }
    let refused = redlock.try_acquire_any(SLOTS).await.expect_err("all are held");
    assert!(matches!(refused, AcquireError::Contended { held_here: true, .. }), "{refused}");
    let plain = redlock.try_acquire("slot/1").await.expect_err("it is held");
    assert!(plain.is_contended(), "{plain}");
    for lease in leases {
        lease.extend(ms(20_000)).await.expect("nodes are up");
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    }
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn at_most_one_holder_per_resource_with_many_clients() {
    let cluster = Cluster::start(5);
    let inside = Arc::new(SLOTS.map(|_| AtomicUsize::new(0)));
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let redlock = client(&cluster);
        for _ in 0..5 {
            let (redlock, inside) = (redlock.clone(), inside.clone());
            tasks.spawn(async move {
                for _ in 0..5 {
                    let lease = redlock.acquire_any(SLOTS).wait(ms(60_000)).await.expect("a slot");
                    let slot = SLOTS.iter().position(|slot| **slot == resource(&lease));
                    let holders = &inside[slot.expect("one of the slots")];
                    assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                    sleep(ms(3)).await;
                    holders.fetch_sub(1, Ordering::SeqCst);
                    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
                }
            });
        }
    }
    tasks.join_all().await;
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn waiter_gets_the_released_resource() {
    let cluster = Cluster::start(3);
    let (redlock, other) = (client(&cluster), client(&cluster));
    let mut leases = Vec::new();
    for slot in SLOTS {
        leases.push(other.acquire(slot).ttl(ms(60_000)).await.expect("the lock is free"));
    }
    let waiting = tokio::spawn(redlock.acquire_any(SLOTS).wait(ms(30_000)));
    sleep(ms(100)).await;
    let begun = Instant::now();
    assert_eq!(leases.remove(1).release().await, Ok(ReleaseOutcome::Released));
    let lease = waiting.await.expect("no panic").expect("a slot is free");
    assert_eq!(resource(&lease), "slot/1");
    assert!(begun.elapsed() < ms(10_000), "{:?}: a push wakes the waiter", begun.elapsed());
}

#[tokio::test]
async fn fenced_leases_have_rising_tokens_per_resource() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let mut last = std::collections::BTreeMap::new();
    for _ in 0..12 {
        let lease = redlock.acquire_any(SLOTS).fenced().await.expect("a slot is free");
        let token = lease.token().expect("a token").get();
        let earlier = last.insert(resource(&lease), token);
        assert!(earlier.is_none_or(|earlier| earlier < token), "{earlier:?}, then {token}");
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    }
}

#[tokio::test]
async fn dropped_acquires_leave_no_keys() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    for delay in 0..20_u64 {
        let acquire = redlock.acquire_any(SLOTS);
        let limit = std::time::Duration::from_micros(50 * delay);
        drop(tokio::time::timeout(limit, acquire).await);
    }
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn invalid_lists_of_resources_are_rejected() {
    let cluster = Cluster::start(1);
    let redlock = client(&cluster);
    let none = redlock.acquire_any(<[&str; 0]>::default()).await.expect_err("no resource");
    assert!(matches!(none, AcquireError::Invalid(ConfigError::NoResources)), "{none}");
    let many: Vec<_> = (0..1_001).map(|slot| slot.to_string()).collect();
    let many = redlock.acquire_any(many).await.expect_err("too many resources");
    assert!(matches!(many, AcquireError::Invalid(ConfigError::TooManyResources { .. })), "{many}");
    let one = redlock.acquire_any(["a", "a"]).await.expect("the lock is free");
    assert_eq!(resource(&one), "a");
}

/// A holder that crashes or reboots gets its slot back within the TTL, if it has stored the resource and the value.
#[tokio::test]
async fn lease_is_adopted_by_its_resource_and_value() {
    let cluster = Cluster::start(3);
    let lease = client(&cluster).acquire_any(SLOTS).await.expect("a slot is free");
    let (slot, value) = (resource(&lease), lease.value().to_owned());
    std::mem::forget(lease);
    let adopted = client(&cluster).adopt(&slot, &value).await.expect("the key exists");
    assert_eq!(adopted.release().await, Ok(ReleaseOutcome::Released));
}
