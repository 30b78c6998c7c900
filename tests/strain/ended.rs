//! Tests of runtimes that are shut down while their tasks hold and acquire locks.

use crate::{SOON, builder, client, current_thread, eventually, ms, multi_thread};
use futures::future::try_join_all;
use kit::{Cluster, Server};
use quorlock::Redlock;
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// A TTL longer than the tests, so that no key expires.
const TTL: Duration = Duration::from_mins(10);

/// Spawns 1,000 tasks that hold leases, 100 that wait for held locks, and 100 that repeatedly acquire free locks.
fn occupy(runtime: &Runtime, redlock: &Redlock) {
    runtime.block_on(async {
        let acquire = |n| redlock.acquire(format!("held/{n}")).wait(SOON).auto_extend_forever();
        let leases = try_join_all((0..1_000).map(acquire)).await.expect("free locks");
        for lease in leases {
            tokio::spawn(async move { lease.lost().await });
        }
    });
    for n in 0..100 {
        let (free, held) = (format!("free/{n}"), format!("held/{n}"));
        runtime.spawn(redlock.acquire(held).wait(TTL).into_future());
        let redlock = redlock.clone();
        runtime.spawn(async move {
            loop {
                drop(redlock.acquire(&free).wait(SOON).await);
            }
        });
    }
    runtime.block_on(async { tokio::time::sleep(ms(100)).await });
}

async fn cycles(redlock: &Redlock, is_over: impl Fn() -> bool) -> Duration {
    let mut longest = Duration::ZERO;
    while !is_over() {
        let begun = Instant::now();
        let lease = redlock.try_acquire("other").await.expect("nodes are up");
        longest = longest.max(begun.elapsed());
        lease.release().await.map(drop).expect("nodes are up");
    }
    longest
}

#[test]
fn runtime_shutdown_leaves_no_keys_and_affects_no_client() {
    let cluster = Cluster::start(5);
    let other = client(&cluster);
    let rest = current_thread();
    for (is_alone, drops_client) in [(true, true), (true, false), (false, true), (false, false)] {
        let case = format!("one thread: {is_alone}, client dropped: {drops_client}");
        let redlock = builder(&cluster).ttl(TTL).build().expect("good settings");
        let runtime = if is_alone { current_thread() } else { multi_thread(2) };
        occupy(&runtime, &redlock);
        let kept = (!drops_client).then_some(redlock);
        let begun = Instant::now();
        let shutdown = thread::spawn(move || drop(runtime));
        let has_keys = || cluster.keys_per_node().iter().flatten().any(|key| key != b"other");
        let longest = rest.block_on(cycles(&other, || {
            assert!(begun.elapsed() < SOON, "{case}: keys are left");
            shutdown.is_finished() && !has_keys()
        }));
        println!("{case}: no key after {:?}, other client at most {longest:?}", begun.elapsed());
        shutdown.join().expect("no panic");
        drop(kept);
    }
}

/// Checks that a static client works in a test program whose 200 tests run concurrently, each on its own runtime.
#[test]
fn static_client_serves_200_runtimes_at_the_same_time() {
    static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| Cluster::start(5));
    static CLIENT: LazyLock<Redlock> = LazyLock::new(|| client(&CLUSTER));

    let one_test = |number: usize| {
        let runtime = if number.is_multiple_of(2) { current_thread() } else { multi_thread(1) };
        runtime.block_on(async {
            let own = CLIENT.acquire(format!("own/{number}")).wait(SOON).await.expect("free");
            let shared = CLIENT.acquire("shared").wait(3 * SOON).await.expect("free in time");
            match number % 3 {
                0 => drop(shared),
                1 => drop(shared.release().await.expect("nodes are up")),
                _ => drop(tokio::spawn(shared.release())),
            }
            drop(own);
        });
    };
    thread::scope(|scope| {
        let tests: Vec<_> = (0..200).map(|test| scope.spawn(move || one_test(test))).collect();
        for test in tests {
            test.join().expect("no failure");
        }
    });
    // The library's own runtime delivers the releases that the last runtimes left pending.
    kit::eventually(SOON, "no key is left", || CLUSTER.is_empty());
    // Statics are not dropped, so the servers are killed here.
    CLUSTER.servers().iter().for_each(Server::kill);
}

/// Checks that a release reaches a restarted node even if the client's runtime is no longer polled, as after
/// `block_on`.
#[test]
fn release_on_a_restarted_node_needs_no_polled_runtime() {
    let cluster = Cluster::start_with(3, &Server::builder().durable());
    let redlock = builder(&cluster).ttl(TTL).build().expect("good settings");
    let unpolled = current_thread();
    let lease = unpolled.block_on(async {
        let lease = redlock.acquire("r").wait(SOON).await.expect("a free lock");
        eventually("the key is on all nodes", || cluster.all_have("r")).await;
        lease
    });
    cluster[2].kill();
    drop(lease);
    thread::sleep(ms(500));
    cluster[2].restart();
    kit::eventually(SOON, "no key is left", || cluster.is_empty());
    drop(unpolled);
}
