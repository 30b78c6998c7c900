//! Tests of futures that are polled rarely: by a `select!` with slow branches, or by hand.

use crate::{SOON, eventually, ms, warm_up};
use kit::{Cluster, Direction, Proxy, Server};
use quorlock::{AcquireError, Builder, Redlock, ReleaseOutcome};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

/// The default node timeout.
const NODE_TIMEOUT: Duration = ms(50);

const SLACK: Duration = ms(5_000);

fn default_timeout(cluster: &Cluster) -> Builder {
    Redlock::builder().nodes(cluster.urls()).node_timeout(NODE_TIMEOUT)
}

async fn warm(builder: Builder) -> Redlock {
    let redlock = builder.build().expect("valid settings");
    warm_up(&redlock).await;
    redlock
}

/// Polls `future` immediately and then after every `pause`, whether or not its waker was woken. Returns the output and
/// the number of polls.
async fn polled_every<F: Future>(pause: Duration, future: F) -> (F::Output, usize) {
    let mut future = pin!(future);
    for polls in 1.. {
        let polled = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
        if let Poll::Ready(output) = polled {
            return (output, polls);
        }
        sleep(pause).await;
    }
    unreachable!("the loop ends with the output")
}

/// Polls `future` once and checks that it is pending. The test decides when to poll it again.
async fn polled_once<F: Future + Unpin>(mut future: F) -> F {
    let polled = poll_fn(|cx| Poll::Ready(Pin::new(&mut future).poll(cx).is_pending())).await;
    assert!(polled, "the future must be pending");
    future
}

#[tokio::test]
async fn free_lock_is_acquired_at_the_second_poll() {
    let cluster = Cluster::start(3);
    let redlock = warm(default_timeout(&cluster)).await;
    for pause in [ms(20), NODE_TIMEOUT, ms(120), ms(1_200)] {
        let before = cluster[0].calls("set");
        for acquire in [redlock.acquire("r"), redlock.acquire_all(["q", "r"])] {
            let acquiring = polled_every(pause, acquire.wait(SOON));
            let (won, polls) =
                timeout(SOON * 2, acquiring).await.expect("the acquire ends at its deadline");
            let lease = won.expect("no other acquire wants the lock");
            // On a busy machine, the release may exceed the node timeout.
            let _ = lease.release().await;
            assert!(polls <= 3, "{polls} polls, every {pause:?}");
        }
        assert!(
            cluster[0].calls("set") - before <= 4,
            "more than one attempt per acquire, polled every {pause:?}"
        );
        eventually("no key is left", || cluster.is_empty()).await;
    }
}

#[tokio::test]
async fn wait_ends_with_the_first_poll_after_its_deadline() {
    let cluster = Cluster::start(3);
    // A node timeout that is long enough for a busy machine.
    let redlock = warm(default_timeout(&cluster).node_timeout(ms(1_000))).await;
    let held = redlock.acquire_all(["r", "s"]).ttl(ms(30_000)).await.expect("free");
    for pause in [ms(20), NODE_TIMEOUT, ms(120), ms(700)] {
        for acquire in [redlock.acquire("r"), redlock.acquire_all(["q", "r"])] {
            let (started, wait) = (Instant::now(), ms(500));
            let (refused, polls) = polled_every(pause, acquire.wait(wait)).await;
            let refused = refused.expect_err("it is held");
            assert!(matches!(refused, AcquireError::Contended { .. }), "{refused:?}");
            assert!(started.elapsed() < wait + pause + SLACK, "{:?}", started.elapsed());
            let longest = wait + SLACK;
            let limit = usize::try_from(longest.as_nanos() / pause.as_nanos()).expect("few") + 2;
            assert!(polls <= limit, "{polls} polls, every {pause:?}");
        }
    }
    assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn unpolled_lease_is_revoked_soon() {
    let cluster = Cluster::start(3);
    let redlock = warm(default_timeout(&cluster)).await;
    for acquire in [redlock.acquire("r"), redlock.acquire_all(["q", "r"])] {
        let forgotten = polled_once(acquire.ttl(ms(30_000)).wait(ms(400))).await;
        eventually("the lock is acquired", || cluster.all_have("r")).await;
        let started = Instant::now();
        eventually("the lease is revoked", || cluster.is_empty()).await;
        assert!(started.elapsed() < ms(15_000), "the keys expired: {:?}", started.elapsed());
        let refused = forgotten.await.expect_err("its wait has ended");
        let AcquireError::NotPolled { report } = &refused else { panic!("{refused:?}") };
        assert!(report.granted() >= 2, "{refused}");
    }
}

#[tokio::test]
async fn unpolled_lease_is_revoked_after_its_validity() {
    let cluster = Cluster::start(3);
    let redlock = warm(default_timeout(&cluster)).await;
    let forgotten = polled_once(redlock.acquire("r").ttl(ms(400)).wait(SOON)).await;
    eventually("the lock is acquired", || cluster[0].get("r").is_some()).await;
    sleep(ms(1_500)).await;
    let lease = forgotten.await.expect("the acquire tries again");
    assert!(lease.is_valid());
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));

    let once = redlock.acquire("r").max_attempts(1).ttl(ms(400)).wait(SOON);
    let forgotten = polled_once(once).await;
    eventually("the lock is acquired", || cluster[0].get("r").is_some()).await;
    sleep(ms(1_500)).await;
    let refused = forgotten.await.expect_err("max_attempts is one");
    assert!(matches!(refused, AcquireError::NotPolled { .. }), "{refused:?}");
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn expired_unpolled_lease_is_not_pending_work() {
    let cluster = Cluster::start(3);
    let redlock = warm(default_timeout(&cluster)).await;
    let forgotten = polled_once(redlock.acquire("r").ttl(ms(400)).wait(SOON * 9)).await;
    let pending = || quorlock_test::pending_work(&redlock);
    assert_eq!(pending().rounds, 1);
    eventually("the expired lease is not pending", || pending().is_empty()).await;
    drop(forgotten);
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn unpolled_lease_is_revoked_for_other_clients() {
    let cluster = Cluster::start(3);
    // The time until the client revokes a lease does not depend on the node timeout.
    let builder = default_timeout(&cluster).node_timeout(ms(15_000)).ttl(ms(60_000));
    let (redlock, other) = (warm(builder.clone()).await, warm(builder).await);
    let forgotten = polled_once(redlock.acquire_all(["p", "q", "r"]).wait(SOON * 3)).await;
    eventually("the lock is acquired", || cluster.all_have("q")).await;
    sleep(ms(300)).await;
    assert!(cluster[0].get("q").is_some(), "the limit has not passed");
    let started = Instant::now();
    let lease = other.acquire("q").wait(SOON).await.expect("the lease is revoked");
    assert!(started.elapsed() > ms(500), "revoked too early: {:?}", started.elapsed());
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    drop(forgotten.await.expect("the lock is released"));
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rarely_polled_waiter_keeps_its_turn() {
    let cluster = Cluster::start(3);
    let redlock = warm(default_timeout(&cluster)).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let busy = (0..4).map(|_| {
        let (redlock, is_over) = (redlock.clone(), is_over.clone());
        tokio::spawn(async move {
            let mut turns = 0;
            while !is_over.load(Ordering::Relaxed) {
                let lease = redlock.acquire("r").wait(SOON).await.expect("the lock becomes free");
                turns += 1;
                sleep(ms(2)).await;
                drop(lease);
            }
            turns
        })
    });
    let busy: Vec<_> = busy.collect();
    sleep(ms(50)).await;
    for pause in [ms(120), ms(400)] {
        let (won, _) = polled_every(pause, redlock.acquire("r").wait(SOON)).await;
        drop(won.expect("the acquire keeps its place in the queue"));
    }
    is_over.store(true, Ordering::Relaxed);
    for task in busy {
        assert!(task.await.expect("no panic") > 0);
    }
    eventually("no key is left", || cluster.is_empty()).await;
}

/// Runs each operation of the public API once and polls it only after every `pause`. Returns a description of each
/// operation that exceeded its time limit.
async fn late_operations(redlock: &Redlock, pause: Duration) -> Vec<String> {
    let mut late = Vec::new();
    let mut check = |operation: &str, started: Instant, bound: Duration| {
        let took = started.elapsed();
        if took > bound + pause + SLACK {
            late.push(format!("{operation} took {took:?}, polled every {pause:?}"));
        }
    };
    macro_rules! operation {
        ($name:literal, $bound:expr, $future:expr) => {{
            let started = Instant::now();
            let (output, _) = polled_every(pause, $future).await;
            check($name, started, $bound);
            output
        }};
    }
    let once = NODE_TIMEOUT;
    let set = operation!("try_acquire_all", once, redlock.try_acquire_all(["a", "b"]));
    drop(set);
    let held = operation!("try_acquire", once, redlock.try_acquire("r"));
    let waited = operation!("acquire", ms(300), redlock.acquire("r").wait(ms(300)));
    drop(waited);
    drop(operation!("acquire fenced", ms(300), redlock.acquire("f").fenced().wait(ms(300))));
    drop(operation!("status", once, Box::pin(redlock.status("r"))));
    if let Ok(lease) = held {
        let _ = operation!("extend", once, lease.extend(ms(5_000)));
        let adopted = operation!("adopt", once, redlock.adopt("r", lease.value()));
        let _ = operation!("release", once, lease.release());
        if let Ok(adopted) = adopted {
            let _ = operation!("release_after", once, adopted.release_after(ms(50)));
        }
    }
    let _ = operation!("force_release", once * 2, redlock.force_release("r"));
    let used = redlock.acquire("u").wait(ms(300)).using(async |_| 7);
    let _ = operation!("using", ms(300) + once, used);
    drop(operation!("release_all", once, redlock.release_all()));
    let _ = operation!("check", ms(1_000) + once * 2, redlock.check());
    late
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rarely_polled_operations_end_in_time() {
    let cluster = Cluster::start(3);
    let pauses = [ms(20), NODE_TIMEOUT, ms(130), ms(2_300)];
    // First all nodes are up, then a majority is stopped.
    for hung in [0, 2] {
        let clients = pauses.map(|_| default_timeout(&cluster).ttl(ms(1_000)));
        let mut warmed = Vec::new();
        for builder in clients {
            warmed.push(warm(builder).await);
        }
        cluster.iter().take(hung).for_each(Server::stop);
        for (redlock, pause) in warmed.iter().zip(pauses) {
            let late = late_operations(redlock, pause).await;
            assert!(late.is_empty(), "{hung} nodes stopped: {late:#?}");
        }
        cluster.iter().take(hung).for_each(Server::cont);
        for redlock in warmed {
            redlock.close().await.expect("nodes are up");
        }
    }
    // Only cool-down keys, which expire, and fencing counters may be left.
    let locks =
        || cluster.keys_per_node().into_iter().flatten().filter(|key| key.len() <= 1).count();
    eventually("no lock is left", || locks() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operations_end_while_all_workers_are_busy() {
    let cluster = Cluster::start(3);
    let redlock = warm(default_timeout(&cluster).ttl(ms(1_000))).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let load = (0..4).map(|_| {
        let is_over = is_over.clone();
        tokio::spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                std::thread::sleep(ms(7));
                tokio::task::yield_now().await;
            }
        })
    });
    let load: Vec<_> = load.collect();
    for pause in [ms(20), ms(130)] {
        let late = late_operations(&redlock, pause).await;
        assert!(late.is_empty(), "{late:#?}");
    }
    is_over.store(true, Ordering::Relaxed);
    for task in load {
        task.await.expect("no panic");
    }
    redlock.close().await.expect("nodes are up");
}

#[tokio::test]
async fn future_moved_to_another_task_is_woken_there() {
    let cluster = Cluster::start(3);
    let proxies = cluster.proxies();
    let builder = Redlock::builder().nodes(proxies.iter().map(Proxy::url)).max_ttl(SOON * 20);
    let redlock = warm(builder.node_timeout(SOON * 4).ttl(SOON * 10)).await;
    for proxy in &proxies {
        proxy.delay(Direction::Replies, ms(300));
    }
    for acquire in [redlock.try_acquire("one"), redlock.acquire("two")] {
        let moved = polled_once(acquire).await;
        let lease =
            timeout(SOON, tokio::spawn(moved)).await.expect("the votes wake the other task");
        drop(lease.expect("no panic").expect("the lock is free"));
    }
    proxies.iter().for_each(Proxy::heal);
    eventually("no key is left", || cluster.is_empty()).await;
}

/// Checks that an acquire whose wait has elapsed returns at the next poll. The test blocks the runtime, so the runtime
/// has not processed its timers before this poll.
#[tokio::test]
async fn elapsed_wait_ends_with_the_next_poll() {
    let cluster = Cluster::start(3);
    let redlock = warm(default_timeout(&cluster)).await;
    let held = redlock.acquire("r").ttl(ms(50_000)).await.expect("the lock is free");
    let first = tokio::spawn(redlock.acquire("r").wait(SOON * 2));
    sleep(ms(300)).await;
    let mut second = polled_once(redlock.acquire("r").wait(ms(200))).await;
    std::thread::sleep(ms(400));
    let polled = poll_fn(|cx| Poll::Ready(Pin::new(&mut second).poll(cx))).await;
    let Poll::Ready(Err(refused)) = polled else { panic!("the acquire is still pending") };
    assert!(matches!(refused, AcquireError::Contended { .. }), "{refused}");
    drop(held);
    drop(first.await.expect("no panic").expect("the lock is released"));
}

#[tokio::test]
async fn all_of_many_unpolled_leases_are_revoked() {
    // The client has more queues, and more acquires outside queues, than it processes in one step (512).
    const ALL: usize = 650;
    const LONG: Duration = Duration::from_hours(1);
    let cluster = Cluster::start(3);
    let redlock = warm(default_timeout(&cluster).node_timeout(ms(5_000)).ttl(ms(60_000))).await;
    let mut forgotten = Vec::new();
    for number in 0..ALL {
        let name = |kind: &str| format!("{kind}{number:04}");
        let [single, first, second] = ["single", "first", "second"].map(name);
        forgotten.push(polled_once(redlock.acquire(single).wait(LONG)).await);
        forgotten.push(polled_once(redlock.acquire_all([first, second]).wait(LONG)).await);
    }
    eventually("locks are acquired", || !cluster.is_empty()).await;
    eventually("all leases are revoked", || cluster.is_empty()).await;
    drop(forgotten);
}
