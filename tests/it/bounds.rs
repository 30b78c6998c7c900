//! Tests of the limits of an acquire and of its clean-up: connect time, client overload, keys without expiry,
//! `at_least`, and `close`.

use crate::errors::display;
use crate::{SOON, all_up, builder, client, eventually, ms, through};
use futures::FutureExt;
use futures::future::join_all;
use kit::{Cluster, Direction, Proxy};
use quorlock::{
    AcquireError, ConfigError, Lease, NodeFailure, NodeState, NodeVote, Redlock, ReleaseOutcome,
    RetryPolicy,
};
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

const LONG: Duration = Duration::from_mins(2);

fn failures(refused: &AcquireError) -> Vec<NodeFailure> {
    let nodes = refused.report().expect("the nodes were asked").nodes().iter();
    let failure = |vote: &NodeVote| match vote {
        NodeVote::Failed(failure) => Some(failure.clone()),
        _ => None,
    };
    nodes.filter_map(|node| failure(node.vote())).collect()
}

#[tokio::test]
async fn first_attempt_waits_for_connections() {
    let cluster = Cluster::start(3);
    let proxies = cluster.proxies();
    for proxy in &proxies {
        proxy.delay(Direction::Requests, ms(40));
        proxy.delay(Direction::Replies, ms(40));
    }
    let urls: Vec<_> = proxies.iter().map(Proxy::url).collect();
    let fresh = || {
        let builder = Redlock::builder().nodes(&urls).node_timeout(ms(200));
        builder.connect_timeout(SOON).build().expect("valid settings")
    };
    // The connection set-up and the acquire need several round trips, in total longer than the node timeout.
    for _ in 0..3 {
        let lease = fresh().try_acquire("r").await.expect("nodes are up");
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    }
    let redlock = fresh();
    timeout(SOON, redlock.ready()).await.expect("nodes are up").expect("there is a runtime");
    let up = redlock.nodes().iter().filter(|node| *node.state() == NodeState::Up).count();
    assert!(up >= 2, "{up} are up");
}

#[tokio::test]
async fn node_without_connection_is_reported_as_connecting() {
    let cluster = Cluster::start(3);
    for node in &cluster {
        node.stop();
    }
    let redlock = builder(&cluster).node_timeout(ms(100)).connect_timeout(SOON);
    let redlock = redlock.build().expect("valid settings");
    let ready = timeout(ms(100), redlock.ready()).await;
    assert!(ready.is_err(), "no node accepts the connection: {ready:?}");
    let refused = redlock.acquire("r").wait(ms(300)).await.expect_err("no node is connected");
    assert!(matches!(refused, AcquireError::Timeout { .. }), "{refused:?}");
    let connecting = |failure: &NodeFailure| matches!(failure, NodeFailure::Connecting(_));
    assert!(failures(&refused).iter().all(connecting), "{refused}");
    assert!(refused.to_string().contains(" connecting for "), "{refused}");
    for node in &cluster {
        node.cont();
    }
    timeout(SOON, redlock.ready()).await.expect("connected").expect("there is a runtime");
    assert_eq!(
        redlock.try_acquire("r").await.expect("all is well").release().await,
        Ok(ReleaseOutcome::Released)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_many_acquires_fail_as_overloaded() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).node_timeout(ms(20)).build().expect("valid settings");
    redlock.ready().await.expect("there is a runtime");
    eventually("all nodes are up", || all_up(&redlock)).await;
    let (mut count, mut overloaded) = (10_000, 0);
    while overloaded == 0 {
        assert!(count < 1_000_000, "no acquire was too late");
        let each = (0..count).map(|n| tokio::spawn(redlock.try_acquire(format!("r{n}"))));
        for tried in join_all(each.collect::<Vec<_>>()).await {
            match tried.expect("no panic") {
                Ok(lease) => drop(lease),
                Err(AcquireError::Overloaded { .. }) => overloaded += 1,
                // On a busy machine, the nodes can be slow, too.
                Err(AcquireError::NoQuorum { .. } | AcquireError::Expired { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
        eventually("no key is left", || cluster.is_empty()).await;
        count *= 2;
    }
    let acquired = redlock.acquire("r").wait(SOON).await.expect("the client recovers");
    drop(acquired);
    timeout(SOON, redlock.close()).await.expect("close returns").expect("nothing is pending");
}

#[tokio::test]
async fn give_up_early_does_not_wait_for_a_key_without_expiry() {
    let cluster = Cluster::start(3);
    cluster.iter().for_each(|node| node.set("r", "no expiry"));
    let redlock = client(&cluster);
    for acquire in [redlock.acquire("r"), redlock.acquire_all(["q", "r"])] {
        let started = Instant::now();
        let refused = acquire.wait(LONG).give_up_early().await.expect_err("the key has no expiry");
        assert!(matches!(refused, AcquireError::Contended { .. }), "{refused:?}");
        assert!(started.elapsed() < LONG / 2, "the acquire waited");
    }
}

#[tokio::test]
async fn try_acquire_with_retry_is_bounded_by_the_default_wait() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).wait(ms(400)).build().expect("valid settings");
    let held = redlock.try_acquire("r").await.expect("free");
    let retried = redlock.try_acquire("r").retry(RetryPolicy::fixed(ms(20)));
    let refused = timeout(SOON, retried).await.expect("the acquire is bounded").expect_err("held");
    assert!(matches!(refused, AcquireError::Contended { held_here: true, .. }), "{refused:?}");
    drop(held);
}

#[tokio::test]
async fn queued_acquire_with_short_wait_fails_as_contended() {
    let cluster = Cluster::start(3);
    let (redlock, other_client) = (client(&cluster), client(&cluster));
    let held = redlock.try_acquire("r").await.expect("free");
    let others = other_client.try_acquire("s").await.expect("free");
    // The nodes refuse these acquires, which are now the heads of their queues.
    let first = ["r", "s"].map(|resource| tokio::spawn(redlock.acquire(resource).wait(SOON)));
    sleep(ms(300)).await;
    for wait in [0, 1, 5, 40].map(ms) {
        for resource in ["r", "s"] {
            let refused = redlock.acquire(resource).wait(wait).await.expect_err("held");
            assert!(matches!(refused, AcquireError::Contended { .. }), "{wait:?}: {refused:?}");
        }
    }
    drop((held, others));
    for waiting in first {
        drop(waiting.await.expect("no panic").expect("the lock is free"));
    }
}

#[tokio::test]
async fn at_least_delays_release_and_drop() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let (minimum, copies) =
        (ms(20_000), |key: &str| cluster.iter().filter(|n| n.get(key).is_some()).count());
    drop(redlock.acquire("warm-up").await.expect("free"));
    eventually("all nodes are up", || all_up(&redlock)).await;
    let dropped = redlock.acquire("dropped").at_least(minimum).await.expect("free");
    let released = redlock.acquire("released").at_least(minimum).await.expect("free");
    let value = released.value().to_owned();
    let by_all = |lease: &Lease| lease.report().granted() == 3;
    eventually("all nodes have the keys", || by_all(&dropped) && by_all(&released)).await;
    drop(dropped);
    assert_eq!(released.release().await, Ok(ReleaseOutcome::Released));
    let set = redlock.acquire_all(["one", "two"]).at_least(minimum).await.expect("free");
    eventually("all nodes have the keys", || by_all(&set)).await;
    drop(set);
    let has_value =
        || cluster.iter().any(|node| node.get("released") == Some(value.clone().into()));
    eventually("the owner's value is replaced", || !has_value()).await;
    for key in ["dropped", "released", "one", "two"] {
        eventually("the key is on every node", || copies(key) == 3).await;
        let refused = redlock.try_acquire(key).await.expect_err("at_least has not passed");
        assert!(matches!(refused, AcquireError::Contended { .. }), "{key}: {refused:?}");
        // `at_least` counts from the acquire, not from the release.
        assert!(cluster.iter().all(|node| node.pttl(key) <= 20_000), "{key}");
    }

    let brief = redlock.acquire("brief").at_least(ms(30)).await.expect("free");
    sleep(ms(60)).await;
    drop(brief);
    eventually("the key is deleted, because at_least has passed", || copies("brief") == 0).await;

    let refused = redlock.acquire("r").ttl(ms(5_000)).at_least(ms(5_001)).await;
    let (at_least, ttl) = (ms(5_001), ms(5_000));
    let longer = ConfigError::AtLeastExceedsTtl { at_least, ttl };
    assert_eq!(refused.expect_err("at_least exceeds the ttl"), AcquireError::Invalid(longer));
    assert_eq!(copies("r"), 0, "no command was sent");
}

#[tokio::test]
async fn close_releases_locks_won_by_unpolled_futures() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    redlock.ready().await.expect("there is a runtime");
    let won = || cluster.all_have("r");
    let mut forgotten = redlock.acquire("r").wait(LONG);
    assert!((&mut forgotten).now_or_never().is_none());
    eventually("the lock is acquired", won).await;
    redlock.close().await.expect("nodes are up");
    eventually("the lock is released", || cluster.is_empty()).await;
    assert_eq!(forgotten.await.expect_err("closed"), AcquireError::Closed);

    // `try_acquire` behaves in the same way: closing releases the lock, and the future returns `Closed`.
    let redlock = client(&cluster);
    redlock.ready().await.expect("there is a runtime");
    let mut forgotten = redlock.try_acquire("r");
    assert!((&mut forgotten).now_or_never().is_none());
    eventually("the lock is acquired", won).await;
    redlock.close().await.expect("nodes are up");
    assert_eq!(forgotten.await.expect_err("closed"), AcquireError::Closed);
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn close_wakes_all_waiters_during_an_outage() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    redlock.ready().await.expect("there is a runtime");
    cluster[0].kill();
    cluster[1].kill();
    let never = RetryPolicy::fixed(LONG);
    let waits = [redlock.acquire("r"), redlock.acquire("r"), redlock.acquire_all(["a", "b"])];
    let waits = waits.map(|acquire| tokio::spawn(acquire.retry(never.clone()).wait(LONG)));
    sleep(ms(1_500)).await;
    let started = Instant::now();
    // The result may be an error, because releases for the killed nodes may still be pending.
    drop(redlock.close().await);
    for waiting in waits {
        let refused = waiting.await.expect("no panic").expect_err("closed");
        assert_eq!(refused, AcquireError::Closed);
    }
    assert!(started.elapsed() < LONG / 2, "the acquires waited until their deadline");
}

#[tokio::test]
async fn refusal_reports_retry_time_and_holder() {
    let cluster = Cluster::start(3);
    let (redlock, other_client) = (client(&cluster), client(&cluster));
    let held = other_client.acquire("r").ttl(ms(25_000)).metadata("worker\n7").await.expect("free");
    let set =
        other_client.acquire_all(["a", "b"]).ttl(ms(25_000)).metadata("both").await.expect("free");
    let once = redlock.acquire("r").max_attempts(1);
    let again = redlock.acquire("r").wait(ms(600)).retry(RetryPolicy::fixed(ms(50)));
    let fenced = redlock.acquire("r").fenced().max_attempts(1);
    let sets = redlock.acquire_all(["b", "c"]).max_attempts(1);
    for (acquire, told) in
        [(once, "worker\\n7"), (again, "worker\\n7"), (fenced, "worker\\n7"), (sets, "both")]
    {
        let refused = acquire.await.expect_err("it is held");
        assert!(refused.is_contended(), "{refused}");
        let retry_after = refused.retry_after().expect("the nodes reported the ttl");
        assert!((ms(1_000)..=ms(25_000)).contains(&retry_after), "{retry_after:?}");
        assert!(refused.to_string().contains(&format!(" held by {told} ")), "{refused}");
        let nodes = refused.report().expect("they were asked").nodes();
        assert!(nodes.iter().filter(|node| node.holder().is_some()).count() >= 2, "{refused}");
        for lease in [&held, &set] {
            assert!(!refused.to_string().contains(&lease.value()[..32]), "it shows a value");
        }
    }
    let single = redlock.try_acquire("r").await.expect_err("it is held");
    assert_eq!(single.retry_after(), None, "try_acquire does not ask for the remaining ttl");

    cluster.iter().for_each(|node| node.set("persistent", "x"));
    let refused =
        redlock.acquire("persistent").max_attempts(1).await.expect_err("the key has no expiry");
    assert_eq!(refused.retry_after(), None);
    drop((held, set));
}

/// Checks that a client's tasks end after the client is closed or dropped while a node is stopped. Stops the node, runs
/// `wait`, and then closes the client if `is_closed` is true, or drops it otherwise.
async fn client_ends_while_a_node_is_stopped(is_closed: bool, wait: impl AsyncFnOnce(&Redlock)) {
    let cluster = Cluster::start(3);
    // The client closes a silent connection only after ten node timeouts (50 s), later than this test waits.
    let builder = builder(&cluster).node_timeout(ms(5_000)).ttl(ms(60_000));
    let redlock = builder.build().expect("valid settings");
    assert_eq!(
        redlock.try_acquire("r").await.expect("free").release().await,
        Ok(ReleaseOutcome::Released)
    );
    redlock.ready().await.expect("there is a runtime");
    let is_pending = || quorlock_test::pending_work(&redlock).releases > 0;
    eventually("no release is pending", || !is_pending()).await;
    cluster[2].stop();
    wait(&redlock).await;
    if is_closed {
        redlock.close().await.expect("no release is pending");
    } else {
        drop(redlock);
    }
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    eventually("its tasks have ended", || tasks() == 0).await;
}

#[tokio::test]
async fn close_does_not_wait_for_the_time_of_a_stopped_node() {
    // Idle connections send `TIME` every 5 s.
    client_ends_while_a_node_is_stopped(true, async |_| tokio::time::sleep(ms(6_000)).await).await;
}

#[tokio::test]
async fn drop_does_not_wait_for_the_time_of_a_stopped_node() {
    client_ends_while_a_node_is_stopped(false, async |_| tokio::time::sleep(ms(6_000)).await).await;
}

#[tokio::test]
async fn close_does_not_wait_for_a_stalled_node() {
    let is_stalled = async |redlock: &Redlock| {
        let stalled = |node: &quorlock::NodeInfo| *node.state() == NodeState::Stalled;
        eventually("the node is stalled", || redlock.nodes().iter().any(stalled)).await;
        // Long enough for the client to check whether other nodes are silent too.
        tokio::time::sleep(ms(11_000)).await;
    };
    client_ends_while_a_node_is_stopped(true, is_stalled).await;
}

/// Checks that `close` does not wait for a reply that no operation needs. A node that refused the lock still receives
/// the command that raises its fencing counter.
#[tokio::test]
async fn close_does_not_wait_for_a_node_that_refused_the_lock() {
    let cluster = Cluster::start(3);
    let proxies = cluster.proxies();
    // The client closes a silent connection only after ten node timeouts (50 s), later than this test waits.
    let redlock =
        through(&proxies).ttl(ms(60_000)).node_timeout(ms(5_000)).build().expect("valid settings");
    redlock.ready().await.expect("there is a runtime");
    eventually("all are connected", || all_up(&redlock)).await;
    // One counter is ahead, so a second round confirms the token. One node refuses the lock.
    cluster[0].set("r#quorlock:token:{r}", "9000000000000000");
    cluster[2].set("r", "theirs");
    proxies[..2].iter().for_each(|proxy| proxy.delay(Direction::Replies, ms(1_000)));
    let asked = cluster[2].calls("evalsha");
    let acquiring = tokio::spawn(redlock.try_acquire("r").fenced().into_future());
    eventually("one node has refused", || cluster[2].calls("evalsha") > asked).await;
    tokio::time::sleep(ms(200)).await;
    proxies[2].hold(Direction::Replies);
    let lease = acquiring.await.expect("no panic").expect("two of three grant");
    assert_eq!(lease.token().map(u64::from), Some(9_000_000_000_000_001));
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released), "two nodes are up");
    redlock.close().await.expect("no release is pending");
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    eventually("its tasks have ended", || tasks() == 0).await;
}

#[tokio::test]
async fn acquire_with_wait_shorter_than_a_reply_times_out() {
    let cluster = Cluster::start(3);
    let proxies = cluster.proxies();
    let urls = || proxies.iter().map(Proxy::url);
    let redlock = Redlock::builder().nodes(urls()).node_timeout(ms(5_000)).ttl(ms(60_000));
    let (warm, cold) = (
        redlock.clone().build().expect("valid settings"),
        redlock.build().expect("valid settings"),
    );
    drop(warm.try_acquire("r").await.expect("the lock is free"));
    eventually("the lock is released", || cluster.is_empty()).await;

    for proxy in &proxies {
        proxy.delay(Direction::Replies, ms(400));
        proxy.hold_connects(true);
    }
    for redlock in [&warm, &cold] {
        let started = Instant::now();
        let refused = redlock.acquire("r").wait(ms(80)).await.expect_err("no answer in time");
        assert!(started.elapsed() >= ms(80), "the acquire used its whole wait");
        let AcquireError::Timeout { report: Some(report) } = &refused else {
            panic!("{}", display(&refused));
        };
        let text = display(&refused);
        for node in report.nodes() {
            let NodeVote::Failed(NodeFailure::Timeout(after) | NodeFailure::Connecting(after)) =
                node.vote()
            else {
                panic!("{text}")
            };
            // The node timeout starts with the command, which a busy machine can send late.
            assert!(*after >= ms(40), "{text}");
        }
    }
    proxies.iter().for_each(Proxy::heal);
    for redlock in [warm, cold] {
        let lease = redlock.acquire("r").wait(SOON).await.expect("the nodes were slow");
        assert_eq!(lease.release().await.expect("nodes are up"), ReleaseOutcome::Released);
    }
    eventually("no key is left", || cluster.is_empty()).await;
}
