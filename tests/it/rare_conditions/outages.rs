//! Tests with nodes that are not reachable yet, or are briefly unreachable.

use crate::{SOON, all_down, all_up, client, eventually, ms, through};
use kit::{Cluster, Proxy};
use quorlock::{AcquireError, ReleaseOutcome, RestartGuard, RetryPolicy};
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

const LONG: Duration = Duration::from_mins(3);

#[tokio::test]
async fn acquire_without_connections_ends_at_its_wait() {
    let cluster = Cluster::start(3);
    let proxies = cluster.proxies();
    for proxy in &proxies {
        proxy.hold_connects(true);
    }
    let redlock = through(&proxies).connect_timeout(LONG).build().expect("valid settings");
    let started = Instant::now();
    let waits = [redlock.acquire("a"), redlock.acquire_all(["b", "c"])];
    for waiting in waits.map(|acquire| tokio::spawn(acquire.wait(ms(300)))) {
        let refused =
            timeout(LONG / 2, waiting).await.expect("the acquire ends").expect("no panic");
        let refused = refused.expect_err("no node is connected");
        assert!(matches!(refused, AcquireError::Timeout { .. }), "{refused}");
    }
    assert!(started.elapsed() < LONG / 2, "the acquire waited for the connections");
}

#[tokio::test]
async fn waiter_tries_again_after_reconnecting() {
    let cluster = Cluster::start(3);
    let proxies = cluster.proxies();
    let redlock = through(&proxies).build().expect("valid settings");
    let other = client(&cluster);
    let held = other.acquire("r").ttl(LONG * 2).wait(SOON).await.expect("free");
    eventually("all nodes have the key", || held.report().granted() == 3).await;
    redlock.ready().await.expect("there is a runtime");
    let never = RetryPolicy::fixed(LONG);
    let waiting = tokio::spawn(redlock.acquire("r").retry(never).wait(LONG * 2));
    sleep(ms(500)).await;
    for proxy in &proxies {
        proxy.refuse(true);
    }
    proxies.iter().for_each(Proxy::reset);
    eventually("all nodes are down", || all_down(&redlock)).await;
    assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
    proxies.iter().for_each(Proxy::heal);
    let acquired =
        timeout(LONG / 2, waiting).await.expect("the waiter tries again").expect("no panic");
    drop(acquired.expect("the lock is released"));
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn cancelled_command_is_never_written() {
    let cluster = Cluster::start(3);
    let proxies = cluster.proxies();
    // The command waits for the connection to this node, and the attempt succeeds without it. With the restart guard,
    // the attempt would wait for the node, because all nodes have just started.
    proxies[2].hold_connects(true);
    let builder = through(&proxies).connect_timeout(LONG).restart_guard(RestartGuard::Off);
    let redlock = builder.build().expect("valid settings");
    let lease = redlock.try_acquire("r").await.expect("two nodes are up");
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    proxies[2].heal();
    eventually("all nodes are up", || all_up(&redlock)).await;
    redlock.close().await.expect("no release is pending");
    assert_eq!(cluster[2].calls("set"), 0, "the command was written");
    assert!(cluster.is_empty());
}
