//! Tests of adoption: a process takes over a lock by its value. Some locks do not permit this.

use crate::{SOON, builder, client, eventually, ms};
use kit::{Cluster, Server};
use quorlock::{AcquireError, ConfigError, Lease, Loss, ReleaseOutcome};
use tokio::time::timeout;

fn is_on_all_nodes(cluster: &Cluster, lease: &Lease) -> bool {
    let has =
        |node: &Server, key: &[u8]| node.get(key).as_deref() == Some(lease.value().as_bytes());
    lease.resources().all(|key| cluster.iter().all(|node| has(node, key)))
}

#[tokio::test]
async fn adopting_one_key_of_several_is_refused() {
    let cluster = Cluster::start(3);
    let (former, receiver) = (client(&cluster), client(&cluster));
    for metadata in [None, Some("worker-7"), Some(""), Some("+3:x")] {
        let set = former.acquire_all(["a", "b", "c"]);
        let set = match metadata {
            None => set,
            Some(text) => set.metadata(text),
        };
        let set = set.await.expect("the locks are free");
        eventually("all nodes have the keys", || is_on_all_nodes(&cluster, &set)).await;
        let calls = || cluster.iter().map(|node| node.calls("evalsha")).collect::<Vec<_>>();
        let before = calls();
        for resource in ["a", "b", "c", "d"] {
            let reason = AcquireError::Invalid(ConfigError::AdoptsSet { resources: 3 });
            let refused = receiver.adopt(resource, set.value()).await.err();
            assert_eq!(refused, Some(reason.clone()), "{metadata:?}");
            let refused = receiver.adopt(resource, set.value()).fenced().await.err();
            assert_eq!(refused, Some(reason.clone()), "{metadata:?}");
            assert!(!reason.to_string().contains(&set.value()[..16]), "{reason}");
        }
        assert_eq!(calls(), before, "no command was sent");
        set.extend(ms(60_000)).await.expect("all keys are held");
        assert!(is_on_all_nodes(&cluster, &set));
        let status = receiver.status("b").await.expect("the client is open");
        let holder = status.holder().expect("it is held");
        assert_eq!(holder.metadata(), metadata, "{status}");
        let shown = format!("{status} {status:?} {set:?} {holder:?}");
        assert!(!shown.contains(&set.value()[..16]), "no value is shown: {shown}");
        assert_eq!(set.release().await, Ok(ReleaseOutcome::Released));
        eventually("no key is left", || cluster.is_empty()).await;
    }
}

#[tokio::test]
async fn acquire_all_of_one_resource_can_be_adopted() {
    let cluster = Cluster::start(3);
    let (former, receiver) = (client(&cluster), client(&cluster));
    let given = former.acquire_all(["a", "a"]).metadata("me").await.expect("the lock is free");
    assert!(given.value().ends_with(":me") && !given.value().contains('+'), "a plain value");
    eventually("all nodes have the key", || is_on_all_nodes(&cluster, &given)).await;
    let adopted = receiver.adopt("a", given.value()).await.expect("the lock is held");
    assert_eq!(adopted.release().await, Ok(ReleaseOutcome::Released));
    assert_eq!(given.release().await, Ok(ReleaseOutcome::Expired));
}

#[tokio::test]
async fn values_resembling_those_of_several_locks_can_be_adopted() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).build().expect("valid settings");
    let digits = "0123456789abcdef0123456789abcdef";
    for rest in ["+1", "+0", "+", "+x", "+2x", "+-2", "++2", "+99999999999999999999999", "2", "+ 2"]
    {
        let value = format!("{digits}{rest}");
        for node in &cluster {
            node.set("r", &value);
        }
        let adopted = redlock.adopt("r", &value).await;
        let adopted = adopted.unwrap_or_else(|error| panic!("{rest}: {error}"));
        assert_eq!(adopted.release().await, Ok(ReleaseOutcome::Released), "{rest}");
    }
}

#[tokio::test]
async fn own_lease_ends_when_its_client_adopts_the_lock() {
    let cluster = Cluster::start(3);
    let (redlock, other) = (client(&cluster), client(&cluster));
    for is_renewed in [false, true] {
        let acquire = redlock.try_acquire("r");
        let acquire = if is_renewed { acquire.auto_extend_forever() } else { acquire };
        let given = acquire.await.expect("the lock is free");
        let adopted = redlock.adopt("r", given.value()).await.expect("the lock is held");
        assert_eq!((given.is_valid(), given.loss()), (false, Some(Loss::TakenOver)));
        assert_eq!(timeout(SOON, given.lost()).await, Ok(Loss::TakenOver));
        assert!(adopted.is_valid());
        assert_eq!(adopted.release().await, Ok(ReleaseOutcome::Released));
        let next = other.acquire("r").await.expect("the lock is free");
        assert!(next.is_valid() && !given.is_valid());
        assert_eq!(given.release().await, Ok(ReleaseOutcome::TakenOver));
        assert_eq!(
            next.release().await,
            Ok(ReleaseOutcome::Released),
            "the old lease deletes no key"
        );
    }
}

#[tokio::test]
async fn own_lease_ends_when_a_dropped_adoption_may_have_run() {
    let cluster = Cluster::start(3);
    let (redlock, other) = (client(&cluster), client(&cluster));
    let given = redlock.try_acquire("r").await.expect("the lock is free");
    eventually("all nodes have the key", || is_on_all_nodes(&cluster, &given)).await;
    cluster.iter().for_each(Server::stop);
    let adoption = timeout(ms(20), redlock.adopt("r", given.value())).await;
    assert!(adoption.is_err(), "no node replies: {adoption:?}");
    assert_eq!((given.is_valid(), given.loss()), (false, Some(Loss::TakenOver)));
    cluster.iter().for_each(Server::cont);
    let next = other.acquire("r").wait(SOON).await.expect("the adoption is released");
    assert!(!given.is_valid());
    assert_eq!(next.release().await, Ok(ReleaseOutcome::Released));
}

#[tokio::test]
async fn own_lease_survives_an_adoption_that_every_node_refused() {
    // A single node: with several nodes, the adoption can fail before the last reply, and then the lease ends.
    let cluster = Cluster::start(1);
    let redlock = client(&cluster);
    let given = redlock.try_acquire("r").await.expect("the lock is free");
    eventually("all nodes have the key", || is_on_all_nodes(&cluster, &given)).await;
    cluster[0].cmd(&["ACL", "SETUSER", "default", "-@scripting"]);
    let refused = redlock.adopt("r", given.value()).await.expect_err("no script can run");
    assert!(matches!(refused, AcquireError::NoQuorum { .. }), "{refused}");
    cluster[0].cmd(&["ACL", "SETUSER", "default", "+@all"]);
    assert!(given.is_valid() && is_on_all_nodes(&cluster, &given));
    given.extend(ms(30_000)).await.expect("it is still held");
    let not_held = redlock.adopt("r", "another value").await;
    assert!(matches!(not_held, Err(AcquireError::NotHeld { .. })), "{not_held:?}");
    assert_eq!(given.release().await, Ok(ReleaseOutcome::Released));
}

#[tokio::test]
async fn own_lease_ends_when_its_client_acquires_a_deleted_lock() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let old = redlock.try_acquire("r").await.expect("the lock is free");
    eventually("all nodes have the key", || is_on_all_nodes(&cluster, &old)).await;
    redlock.force_release("r").await.expect("the client is open");
    let new = redlock.acquire("r").await.expect("the lock is free");
    assert_eq!((old.is_valid(), old.loss()), (false, Some(Loss::TakenOver)));
    assert!(new.is_valid());
    assert_eq!(old.release().await, Ok(ReleaseOutcome::TakenOver));
    assert_eq!(new.release().await, Ok(ReleaseOutcome::Released));
}
