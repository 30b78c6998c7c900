//! Nodes that are not there yet, or not there for a moment.

use crate::{SOON, all_down, all_up, client, eventually, ms, through};
use kit::{Cluster, Proxy};
use quorlock::{AcquireError, ReleaseOutcome, RestartGuard, RetryPolicy};
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

const LONG: Duration = Duration::from_mins(3);

#[tokio::test]
async fn a_wait_for_the_first_connections_ends_with_the_wait_and_not_with_the_connecting() {
    let cluster = Cluster::start(3);
    let proxies = cluster.proxies();
    for proxy in &proxies {
        proxy.hold_connects(true);
    }
    let redlock = through(&proxies).connect_timeout(LONG).build().expect("good settings");
    let begun = Instant::now();
    let waits = [redlock.acquire("a"), redlock.acquire_all(["b", "c"])];
    for waiting in waits.map(|acquire| tokio::spawn(acquire.wait(ms(300)))) {
        let refused = timeout(LONG / 2, waiting).await.expect("it ends").expect("no panic");
        let refused = refused.expect_err("none is connected to");
        assert!(matches!(refused, AcquireError::Timeout { .. }), "{refused}");
    }
    assert!(begun.elapsed() < LONG / 2, "it waited for the connections");
}

#[tokio::test]
async fn what_was_released_while_nobody_could_be_told_is_asked_after_with_the_next_connection() {
    let cluster = Cluster::start(3);
    let proxies = cluster.proxies();
    let redlock = through(&proxies).build().expect("good settings");
    let theirs = client(&cluster);
    let held = theirs.acquire("r").ttl(LONG * 2).wait(SOON).await.expect("free");
    eventually("on all", || held.report().granted() == 3).await;
    redlock.ready().await.expect("there is a runtime");
    let never = RetryPolicy::fixed(LONG);
    let waiting = tokio::spawn(redlock.acquire("r").retry(never).wait(LONG * 2));
    sleep(ms(500)).await;
    for proxy in &proxies {
        proxy.refuse(true);
    }
    proxies.iter().for_each(Proxy::reset);
    eventually("all are away", || all_down(&redlock)).await;
    assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
    proxies.iter().for_each(Proxy::heal);
    let had = timeout(LONG / 2, waiting).await.expect("it asks again").expect("no panic");
    drop(had.expect("it is free"));
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn what_was_given_up_before_the_first_connection_is_never_written() {
    let cluster = Cluster::start(3);
    let proxies = cluster.proxies();
    // Its command waits for the connection, and the attempt succeeds without it. A guard would wait for it: all nodes are
    // young.
    proxies[2].hold_connects(true);
    let builder = through(&proxies).connect_timeout(LONG).restart_guard(RestartGuard::Off);
    let redlock = builder.build().expect("good settings");
    let lease = redlock.try_acquire("r").await.expect("two others");
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    proxies[2].heal();
    eventually("it is connected to", || all_up(&redlock)).await;
    redlock.close().await.expect("nothing is owed");
    assert_eq!(cluster[2].calls("set"), 0, "it was written");
    assert!(cluster.is_empty());
}
