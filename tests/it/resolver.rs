//! Nodes whose names are resolved slowly, or to another address after a failover. A slow search blocks a thread, and
//! nobody waits for that.

use crate::{SOON, eventually, granted_by_all, is_up, ms, multi_thread};
use kit::{Cluster, Rerun, Server};
use quorlock::{Builder, Redlock, ReleaseOutcome, RestartGuard, Severity};
use std::time::{Duration, Instant};
use std::{env, fs};

/// Its name is not found for a minute where the library is preloaded.
const SLOW: &str = "redis://slow.invalid:6379";

/// What tells a child the other nodes.
const URLS: &str = "QUORLOCK_TEST_RESOLVER_NODES";

/// The node timeout, the connect timeout and the ttl fit together; all are far below a minute.
fn builder(urls: &str) -> Builder {
    let builder = Redlock::builder().nodes(urls.split(' ')).nodes([SLOW]);
    builder.connect_timeout(ms(500)).node_timeout(ms(1_000)).ttl(ms(30_000))
}

/// Runs the ignored test `name` in a process whose resolver hangs.
fn run(name: &str) {
    let cluster = Cluster::start(3);
    let urls = cluster.urls().join(" ");
    let test = format!("resolver::{name}");
    let args = ["--ignored", "--exact", &test, "--nocapture", "--test-threads=1"];
    let env = [(URLS, urls.as_str())];
    let rerun = Rerun::start_with_library(&args, &env, include_str!("resolver/hang.c"));
    rerun.finish(Duration::from_secs(50));
    assert!(rerun.output().contains("1 passed"), "{}", rerun.output());
    kit::eventually(SOON, "nothing is left", || cluster.is_empty());
}

#[test]
fn the_last_handle_of_a_blocking_client_does_not_wait_for_a_resolver() {
    run("drops_a_blocking_client");
}

#[test]
fn closing_and_checking_do_not_wait_for_a_resolver() {
    run("closes_and_checks");
}

#[test]
#[ignore = "run by a test, in a process whose resolver hangs"]
fn drops_a_blocking_client() {
    let Ok(urls) = env::var(URLS) else { return };
    for is_closed in [false, true] {
        let redlock = builder(&urls).build_blocking().expect("good settings");
        let lease = redlock.acquire("r").wait(SOON).call().expect("three of four are up");
        let checks = redlock.check().expect("a client that works");
        assert_eq!(checks[3].worst(), Some(Severity::Danger), "it is searched for: {}", checks[3]);
        let begun = Instant::now();
        if is_closed {
            let _ = redlock.close();
        }
        drop(lease);
        drop(redlock);
        assert!(begun.elapsed() < SOON, "closed: {is_closed}, {:?}", begun.elapsed());
    }
}

#[test]
#[ignore = "run by a test, in a process whose resolver hangs"]
fn closes_and_checks() {
    let Ok(urls) = env::var(URLS) else { return };
    let runtime = multi_thread(1);
    let begun = Instant::now();
    runtime.block_on(async {
        let redlock = builder(&urls).build().expect("good settings");
        let lease = redlock.acquire("r").wait(SOON).await.expect("three of four are up");
        eventually("all three have it", || lease.report().granted() == 3).await;
        let checks = redlock.check().await.expect("a client that works");
        assert_eq!(checks[3].worst(), Some(Severity::Danger), "it is searched for: {}", checks[3]);
        let status = redlock.status("r").await.expect("a client that works");
        assert!(status.is_held(), "{status}");
        assert_eq!(lease.release().await.expect("three are up"), ReleaseOutcome::Released);
        let _ = redlock.close().await;
    });
    // This runtime is the caller's own.
    runtime.shutdown_background();
    assert!(begun.elapsed() < 2 * SOON, "{:?}", begun.elapsed());
}

/// The file with the address of `moving.invalid`, and its name for the resolver.
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
#[ignore = "run by a test, in a process with a resolver of its own"]
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
    let redlock = builder.node_timeout(ms(1_000)).ttl(ms(30_000)).build().expect("good settings");
    drop(redlock.acquire("r").wait(SOON).await.expect("a free lock"));
    eventually("the name is found", || is_up(&redlock, 0)).await;
    // The new master is named first: a client whose old connection still works has to be turned away.
    fs::write(&file, "127.0.0.2").expect("a scratch directory");
    old.cmd(&["REPLICAOF", "127.0.0.2", &port]);
    let lease = redlock.acquire("followed").wait(SOON).await.expect("two others");
    eventually("the node is followed", || is_up(&redlock, 0) && promoted.calls("hello") > 0).await;
    let last = granted_by_all(&redlock, "last").await;
    assert!(promoted.get("last").is_some(), "it is the node now");
    drop(last);
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
}
