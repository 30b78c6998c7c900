//! Tests of cancellation: futures and leases that are dropped at any moment, and runtimes that shut down.

use crate::{SOON, all_up, builder, eventually, ms, multi_thread};
use futures::future::{join_all, try_join_all};
use kit::Cluster;
use quorlock::{Lease, Redlock, ReleaseOutcome, RetryPolicy};
use rand::random_range;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

/// A TTL longer than any wait in these tests, so that no key expires.
const LONG: Duration = Duration::from_mins(2);

const MOST_POLLS: usize = 200;

fn client(cluster: &Cluster) -> Redlock {
    // A retry policy with a limit ignores the retry times that nodes report, so the client retries frequently.
    let retry = RetryPolicy::jittered(ms(0)..ms(3)).limit(u32::MAX);
    let builder = builder(cluster).ttl(LONG).retry(retry).connect_timeout(SOON);
    builder.build().expect("valid settings")
}

async fn lease(redlock: &Redlock, resource: &str) -> Lease {
    redlock.acquire(resource).wait(SOON).await.expect("free, or free soon")
}

/// Polls `future` at most `polls` times, then drops it. Returns the output, or `None` if the future did not complete.
/// Sometimes pauses before it drops an incomplete future.
async fn dropped_after<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    let output = poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await;
    if output.is_none() && random_range(0..3) == 0 {
        sleep(Duration::from_micros(random_range(0..1_500))).await;
    }
    output
}

/// Closes the client and checks that no key is left. After `close` returns, the client sends no more releases.
async fn close_and_expect_no_keys(redlock: &Redlock, cluster: &Cluster) {
    redlock.close().await.expect("nodes are up");
    let text = |key: Vec<u8>| String::from_utf8_lossy(&key).into_owned();
    let left: Vec<_> = cluster.keys_per_node().into_iter().flatten().map(text).collect();
    assert!(left.is_empty(), "{left:?}");
}

async fn acquires_dropped_at_every_poll(redlock: &Redlock, resource: &str) {
    for polls in 0..MOST_POLLS {
        if dropped_after(polls, redlock.try_acquire(resource)).await.is_some() {
            break;
        }
        assert!(polls + 1 < MOST_POLLS, "the acquire is ready");
    }
    for polls in 0..MOST_POLLS {
        let patient = redlock.acquire(resource).wait(SOON);
        if dropped_after(polls, patient).await.is_some() {
            break;
        }
        assert!(polls + 1 < MOST_POLLS, "the acquire is ready");
    }
}

async fn waits_dropped_at_every_poll(redlock: &Redlock, resource: &str) {
    let holder = lease(redlock, resource).await;
    for polls in 0..16 {
        // The wait limit may end the acquire before its last poll.
        let wait = Duration::from_millis(20);
        let refused = dropped_after(polls, redlock.acquire(resource).wait(wait)).await;
        assert!(!matches!(refused, Some(Ok(_))), "it is held: {refused:?}");
    }
    let held = dropped_after(MOST_POLLS, redlock.try_acquire(resource)).await;
    held.expect("the attempt ends").expect_err("it is held");
    assert_eq!(holder.release().await, Ok(ReleaseOutcome::Released));
}

async fn leases_dropped_at_every_poll(redlock: &Redlock, resource: &str) {
    let held = lease(redlock, resource).await;
    for polls in 0..MOST_POLLS {
        let extended = dropped_after(polls, held.extend(2 * LONG)).await;
        assert!(held.is_valid());
        if let Some(extended) = extended {
            extended.expect("a quorum is up");
            break;
        }
    }
    assert!(held.validity() > LONG, "the last extension was not dropped");
    assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
    for polls in 0..MOST_POLLS {
        let released = dropped_after(polls, lease(redlock, resource).await.release()).await;
        if let Some(released) = released {
            assert_eq!(released, Ok(ReleaseOutcome::Released));
            return;
        }
    }
    panic!("the release is ready");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_futures_leave_no_keys() {
    let cluster = Cluster::start(5);
    let redlock = client(&cluster);
    // The first futures are dropped while the client is connecting.
    let each = (0..40).map(|n| {
        let redlock = redlock.clone();
        tokio::spawn(async move {
            let resource = format!("r{n}");
            for _ in 0..4 {
                acquires_dropped_at_every_poll(&redlock, &resource).await;
                waits_dropped_at_every_poll(&redlock, &resource).await;
                leases_dropped_at_every_poll(&redlock, &resource).await;
            }
        })
    });
    try_join_all(each).await.expect("no panic");
    close_and_expect_no_keys(&redlock, &cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_futures_leave_no_keys_on_stopped_nodes() {
    let cluster = Cluster::start(5);
    for is_warm in [false, true] {
        let redlock = client(&cluster);
        if is_warm {
            drop(lease(&redlock, "warm-up").await);
            eventually("all nodes are up", || all_up(&redlock)).await;
        }
        cluster[2].stop();
        for n in 0..10 {
            let resource = format!("r{n}");
            acquires_dropped_at_every_poll(&redlock, &resource).await;
            waits_dropped_at_every_poll(&redlock, &resource).await;
            leases_dropped_at_every_poll(&redlock, &resource).await;
        }
        sleep(ms(300)).await;
        cluster[2].cont();
        close_and_expect_no_keys(&redlock, &cluster).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquire_dropped_during_a_round_is_released_at_once() {
    let cluster = Cluster::start(3);
    let redlock =
        builder(&cluster).node_timeout(ms(12_000)).ttl(LONG).build().expect("valid settings");
    drop(lease(&redlock, "warm-up").await);
    eventually("all nodes are up", || all_up(&redlock)).await;
    cluster[1].stop();
    cluster[2].stop();
    let is_there = || cluster[0].get("r").is_some();
    for acquire in [redlock.try_acquire("r"), redlock.acquire("r").wait(SOON)] {
        let acquiring = tokio::spawn(acquire);
        eventually("one node has granted", is_there).await;
        acquiring.abort();
        let aborted = Instant::now();
        eventually("the key is deleted on that node", || !is_there()).await;
        assert!(aborted.elapsed() < ms(6_000), "the release waited for the stopped nodes");
    }
    cluster[1].cont();
    cluster[2].cont();
    close_and_expect_no_keys(&redlock, &cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timeout_of_any_length_leaves_no_keys() {
    let cluster = Cluster::start(5);
    let redlock = client(&cluster);
    for round in 0..4 {
        for us in (0..3_000).step_by(50) {
            let (limit, resource) = (Duration::from_micros(us), format!("r{round}/{us}"));
            drop(timeout(limit, redlock.acquire(&resource).wait(SOON)).await);
            drop(timeout(limit, redlock.try_acquire(&resource)).await);
            let held = lease(&redlock, &resource).await;
            let extended = timeout(limit, held.extend(2 * LONG)).await;
            assert!(held.is_valid() && !matches!(extended, Ok(Err(_))), "{extended:?}");
            drop(timeout(limit, held.release()).await);
        }
    }
    close_and_expect_no_keys(&redlock, &cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aborted_tasks_leave_no_keys() {
    let cluster = Cluster::start(5);
    let redlock = client(&cluster);
    for n in 0..300 {
        let tasks = (0..4).map(|task| {
            let redlock = redlock.clone();
            tokio::spawn(async move {
                // Two tasks share each resource, so one waits for the other.
                let held = lease(&redlock, &format!("r{n}/{}", task / 2)).await;
                held.extend(2 * LONG).await.expect("nodes are up");
                assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
            })
        });
        let tasks: Vec<_> = tasks.collect();
        sleep(Duration::from_micros(random_range(0..3_000))).await;
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
        for task in tasks {
            assert!(!task.await.is_err_and(|error| error.is_panic()));
        }
    }
    close_and_expect_no_keys(&redlock, &cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn losing_select_branch_leaves_no_keys() {
    let cluster = Cluster::start(5);
    let redlock = client(&cluster);
    let (mut won, mut lost) = (0, 0);
    for n in 0..400 {
        tokio::select! {
            held = lease(&redlock, "one") => {
                won += 1;
                drop(held);
            }
            held = redlock.acquire("other").wait(SOON) => drop(held.expect("the lock becomes free")),
            () = sleep(Duration::from_micros(20 * (n % 100))) => lost += 1,
        }
    }
    assert!(lost > 0 && won < 400, "won {won}, lost {lost}");
    close_and_expect_no_keys(&redlock, &cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lease_can_be_dropped_in_any_context() {
    let cluster = Cluster::start(5);
    let redlock = client(&cluster);
    let is_deleted = |key: &str| cluster.none_has(key);
    let in_task = lease(&redlock, "task").await;
    tokio::spawn(async move { drop(in_task) }).await.expect("no panic");
    eventually("dropped in a task", || is_deleted("task")).await;

    let on_thread = lease(&redlock, "thread").await;
    thread::spawn(move || drop(on_thread)).join().expect("no panic");
    eventually("dropped on a thread without a runtime", || is_deleted("thread")).await;

    let unwound = lease(&redlock, "unwound").await;
    let panicked = thread::spawn(move || {
        let _held = unwound;
        panic!("on purpose");
    });
    panicked.join().expect_err("it panics");
    eventually("dropped by a panic on a thread", || is_deleted("unwound")).await;

    let unwound = lease(&redlock, "unwound").await;
    let panicked = tokio::spawn(async move {
        let _extension = unwound.extend(2 * LONG).await;
        panic!("on purpose");
    });
    panicked.await.expect_err("it panics");
    eventually("dropped by a panic in a task", || is_deleted("unwound")).await;

    let last = lease(&redlock, "last").await;
    drop(redlock);
    assert!(last.is_valid());
    last.extend(2 * LONG).await.expect("a lease needs no client");
    drop(last);
    eventually("dropped after its client", || cluster.is_empty()).await;

    let redlock = client(&cluster);
    let last = lease(&redlock, "last").await;
    drop(redlock);
    assert_eq!(last.release().await, Ok(ReleaseOutcome::Released));
    eventually("released after its client", || cluster.is_empty()).await;
}

#[test]
fn next_runtime_releases_leases_of_an_ended_runtime() {
    static KEPT: Mutex<Vec<Lease>> = Mutex::new(Vec::new());
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let first = multi_thread(2);
    let moved_out = first.block_on(async {
        for n in 0..10 {
            let held = lease(&redlock, &format!("static/{n}")).await;
            KEPT.lock().expect("no panic").push(held);
            // A task that never ends owns this lease, so the shutdown of the runtime drops it.
            let held = lease(&redlock, &format!("task/{n}")).await;
            tokio::spawn(async move {
                std::future::pending::<()>().await;
                drop(held);
            });
        }
        lease(&redlock, "moved out").await
    });
    drop(first);
    assert!(moved_out.is_valid());
    drop(moved_out);
    KEPT.lock().expect("no panic").clear();
    assert!(!cluster.is_empty(), "no runtime could deliver the releases");
    multi_thread(2).block_on(close_and_expect_no_keys(&redlock, &cluster));
}

/// Acquires, extends, drops and releases leases until its runtime shuts down. Each thread that owns a lease also holds
/// a clone of `alive`, so the test can count these threads.
async fn work(redlock: Redlock, task: usize, alive: Arc<()>) {
    loop {
        let Ok(held) = redlock.acquire(format!("r{}", task / 2)).wait(SOON).await else { return };
        let outside = thread::spawn({
            let alive = alive.clone();
            move || drop((held, alive))
        });
        let Ok(held) = redlock.try_acquire(format!("own/{task}")).await else { return };
        drop(timeout(Duration::from_micros(300), held.extend(2 * LONG)).await);
        drop(held.release().await);
        outside.join().expect("no panic");
    }
}

#[test]
fn next_runtime_cleans_up_after_a_shutdown_at_any_moment() {
    let cluster = Cluster::start(3);
    for round in 0..60 {
        let redlock = client(&cluster);
        let alive = Arc::new(());
        let runtimes = [multi_thread(2), multi_thread(2)];
        for (task, runtime) in (0..16).zip(runtimes.iter().cycle()) {
            runtime.spawn(work(redlock.clone(), task, alive.clone()));
        }
        let mut longest_us = 30_000;
        for runtime in runtimes {
            thread::sleep(Duration::from_micros(random_range(0..longest_us)));
            if round % 2 == 0 {
                drop(runtime);
            } else {
                runtime.shutdown_background();
            }
            // The next pause is short, so the second runtime may still be executing the work of the first.
            longest_us = 1_500;
        }
        kit::eventually(SOON, "all tasks have ended", || Arc::strong_count(&alive) == 1);
        multi_thread(2).block_on(close_and_expect_no_keys(&redlock, &cluster));
    }
}

#[test]
fn waiting_acquire_continues_in_another_runtime() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let (first, second) = (multi_thread(2), multi_thread(2));
    let held = second.block_on(lease(&redlock, "r"));
    let mut waits: Vec<_> = (0..20)
        .map(|n| redlock.acquire("r").wait(SOON).retry(RetryPolicy::fixed(ms(1 + 20 * n))))
        .collect();
    first.block_on(async {
        for wait in &mut waits {
            // The timeout interrupts some acquires during an attempt and others between attempts.
            assert!(timeout(ms(10), wait).await.is_err(), "it is held");
        }
    });
    drop(first);
    second.block_on(async {
        assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
        let wins =
            waits.into_iter().map(async |wait| drop(wait.await.expect("the lock becomes free")));
        timeout(SOON, join_all(wins)).await.expect("every acquire is served");
        close_and_expect_no_keys(&redlock, &cluster).await;
    });
}
