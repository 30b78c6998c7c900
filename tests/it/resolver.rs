//! Tests with nodes whose names resolve slowly, or resolve to another address after a failover. A slow resolver blocks
//! a thread, and no operation may wait for that thread.

use crate::{SOON, eventually, granted_by_all, is_up, ms, multi_thread};
use kit::{Cluster, Rerun, Server};
use quorlock::{Builder, Redlock, ReleaseOutcome, RestartGuard, Severity};
use std::time::{Duration, Instant};
use std::{env, fs};

/// The URL of a node whose name takes one minute to resolve, because the test preloads a slow resolver.
const SLOW: &str = "redis://slow.invalid:6379";

/// The environment variable that passes the other nodes' URLs to the child.
const URLS: &str = "QUORLOCK_TEST_RESOLVER_NODES";

/// Returns settings with timeouts far below one minute. The builder accepts this combination of connect timeout, node
/// timeout and ttl.
fn builder(urls: &str) -> Builder {
    let builder = Redlock::builder().nodes(urls.split(' ')).nodes([SLOW]);
    builder.connect_timeout(ms(500)).node_timeout(ms(1_000)).ttl(ms(30_000))
}

/// Runs the ignored test `name` in a process whose resolver is slow.
fn run(name: &str) {
    let cluster = Cluster::start(3);
    let urls = cluster.urls().join(" ");
    let test = format!("resolver::{name}");
    let args = ["--ignored", "--exact", &test, "--nocapture", "--test-threads=1"];
    let env = [(URLS, urls.as_str())];
    let rerun = Rerun::start_with_library(&args, &env, include_str!("resolver/hang.c"));
    rerun.finish(Duration::from_secs(50));
    assert!(rerun.output().contains("1 passed"), "{}", rerun.output());
    kit::eventually(SOON, "no key is left", || cluster.is_empty());
}

#[test]
fn dropping_a_blocking_client_does_not_wait_for_a_resolver() {
    run("drops_a_blocking_client");
}

#[test]
fn close_and_check_do_not_wait_for_a_resolver() {
    run("closes_and_checks");
}

#[test]
#[ignore = "runs in a process that a test starts, with an unresponsive resolver"]
fn drops_a_blocking_client() {
    let Ok(urls) = env::var(URLS) else { return };
    for is_closed in [false, true] {
        let redlock = builder(&urls).build_blocking().expect("valid settings");
        let lease = redlock.acquire("r").wait(SOON).call().expect("three of four nodes are up");
        let checks = redlock.check().expect("the client is open");
        assert_eq!(
            checks[3].worst(),
            Some(Severity::Danger),
            "the name is not resolved: {}",
            checks[3]
        );
        let started = Instant::now();
        if is_closed {
            let _ = redlock.close();
        }
        drop(lease);
        drop(redlock);
        assert!(started.elapsed() < SOON, "closed: {is_closed}, {:?}", started.elapsed());
    }
}

#[test]
#[ignore = "runs in a process that a test starts, with an unresponsive resolver"]
fn closes_and_checks() {
    let Ok(urls) = env::var(URLS) else { return };
    let runtime = multi_thread(1);
    let started = Instant::now();
    runtime.block_on(async {
        let redlock = builder(&urls).build().expect("valid settings");
        let lease = redlock.acquire("r").wait(SOON).await.expect("three of four nodes are up");
        eventually("three nodes have the key", || lease.report().granted() == 3).await;
        let checks = redlock.check().await.expect("the client is open");
        assert_eq!(
            checks[3].worst(),
            Some(Severity::Danger),
            "the name is not resolved: {}",
            checks[3]
        );
        let status = redlock.status("r").await.expect("the client is open");
        assert!(status.is_held(), "{status}");
        assert_eq!(lease.release().await.expect("three nodes are up"), ReleaseOutcome::Released);
        let _ = redlock.close().await;
    });
    // The caller owns this runtime and must shut it down.
    runtime.shutdown_background();
    assert!(started.elapsed() < 2 * SOON, "{:?}", started.elapsed());
}

/// The environment variable with the path of a file that contains the address of `moving.invalid`. The preloaded
/// resolver reads this file.
const FILE: &str = "QUORLOCK_TEST_RESOLVER_FILE";

#[test]
fn name_is_resolved_again_after_a_failover() {
    let args = ["--ignored", "--exact", "resolver::follows_a_name", "--nocapture"];
    // The path is relative to the scratch directory of the child process.
    let env = [(FILE, "address")];
    let rerun = Rerun::start_with_library(&args, &env, include_str!("resolver/move.c"));
    rerun.finish(Duration::from_secs(50));
    assert!(rerun.output().contains("1 passed"), "{}", rerun.output());
}

#[tokio::test]
#[ignore = "runs in a process that a test starts, with a preloaded resolver"]
async fn follows_a_name() {
    let Ok(file) = env::var(FILE) else { return };
    let cluster = Cluster::start(3);
    let old = &cluster[0];
    let port = old.port().to_string();
    let promoted =
        Server::builder().arg("--bind").arg("127.0.0.2").arg("--port").arg(&port).start();
    fs::write(&file, "127.0.0.1").expect("a scratch directory");
    let urls = [format!("redis://moving.invalid:{port}"), cluster[1].url(), cluster[2].url()];
    let builder = Redlock::builder().nodes(urls).restart_guard(RestartGuard::Off);
    let redlock = builder.node_timeout(ms(1_000)).ttl(ms(30_000)).build().expect("valid settings");
    drop(redlock.acquire("r").wait(SOON).await.expect("the lock is free"));
    eventually("the name is resolved", || is_up(&redlock, 0)).await;
    // The name changes before the old master is demoted. The client's old connection therefore still works, and the
    // client must reject it.
    fs::write(&file, "127.0.0.2").expect("a scratch directory");
    old.cmd(&["REPLICAOF", "127.0.0.2", &port]);
    let lease = redlock.acquire("followed").wait(SOON).await.expect("two nodes are up");
    eventually("the client is connected to the new master", || {
        is_up(&redlock, 0) && promoted.calls("hello") > 0
    })
    .await;
    let last = granted_by_all(&redlock, "last").await;
    assert!(promoted.get("last").is_some(), "the new master has the key");
    drop(last);
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
}
