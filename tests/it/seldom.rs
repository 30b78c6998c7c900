//! Futures that are polled seldom: by a `select!` whose other arms take long, or by hand.

use crate::{SOON, eventually, ms, warm_up};
use kit::{Cluster, Direction, Proxy, Server};
use quorlock::{AcquireError, Builder, Redlock};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

/// The node timeout of these tests: the default.
const NODE_TIMEOUT: Duration = ms(50);

/// What a busy machine may add to anything.
const SLACK: Duration = ms(5_000);

fn hasty(cluster: &Cluster) -> Builder {
    Redlock::builder().nodes(cluster.urls()).node_timeout(NODE_TIMEOUT)
}

/// A client with a connection to each node.
async fn warm(builder: Builder) -> Redlock {
    let redlock = builder.build().expect("good settings");
    warm_up(&redlock).await;
    redlock
}

/// Polls `future` at once, and then once every `pause`, whatever wakes it. How often that was.
async fn polled_every<F: Future>(pause: Duration, future: F) -> (F::Output, usize) {
    let mut future = pin!(future);
    for polls in 1.. {
        let polled = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
        if let Poll::Ready(output) = polled {
            return (output, polls);
        }
        sleep(pause).await;
    }
    unreachable!("it is polled until it is ready")
}

/// Polls `future` once, and not again before the test says so.
async fn polled_once<F: Future + Unpin>(mut future: F) -> F {
    let polled = poll_fn(|cx| Poll::Ready(Pin::new(&mut future).poll(cx).is_pending())).await;
    assert!(polled, "it was ready at once");
    future
}

#[tokio::test]
async fn a_free_lock_is_had_at_the_second_poll_however_seldom_that_comes() {
    let cluster = Cluster::start(3);
    let redlock = warm(hasty(&cluster)).await;
    // The last is longer than others of this process would wait: there are none.
    for pause in [ms(20), NODE_TIMEOUT, ms(120), ms(1_200), ms(2_600)] {
        let before = cluster[0].calls("set");
        for acquire in [redlock.acquire("r"), redlock.acquire_all(["q", "r"])] {
            let acquiring = polled_every(pause, acquire.wait(SOON));
            let (won, polls) = timeout(SOON * 2, acquiring).await.expect("its deadline ends it");
            let lease = won.expect("nobody else wants it");
            // A busy machine may not be told in time that it is released.
            let _ = lease.release().await;
            assert!(polls <= 3, "{polls} polls, every {pause:?}");
        }
        assert!(cluster[0].calls("set") - before <= 4, "one attempt each: every {pause:?}");
        eventually("no key is left", || cluster.is_empty()).await;
    }
}

#[tokio::test]
async fn the_deadline_ends_every_wait_with_the_next_poll() {
    let cluster = Cluster::start(3);
    // No busy machine makes nodes look silent within it.
    let redlock = warm(hasty(&cluster).node_timeout(ms(1_000))).await;
    let held = redlock.acquire_all(["r", "s"]).ttl(ms(30_000)).await.expect("free");
    for pause in [ms(20), NODE_TIMEOUT, ms(120), ms(700)] {
        for acquire in [redlock.acquire("r"), redlock.acquire_all(["q", "r"])] {
            let (begun, wait) = (Instant::now(), ms(500));
            let (refused, polls) = polled_every(pause, acquire.wait(wait)).await;
            let refused = refused.expect_err("it is held");
            assert!(matches!(refused, AcquireError::Contended { .. }), "{refused:?}");
            assert!(begun.elapsed() < wait + pause + SLACK, "{:?}", begun.elapsed());
            let longest = wait + SLACK;
            let most = usize::try_from(longest.as_nanos() / pause.as_nanos()).expect("few") + 2;
            assert!(polls <= most, "{polls} polls, every {pause:?}");
        }
    }
    held.release().await.expect("nodes are up");
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn what_an_unpolled_acquire_has_won_is_given_up_at_its_deadline_and_that_has_a_name() {
    let cluster = Cluster::start(3);
    let redlock = warm(hasty(&cluster)).await;
    for acquire in [redlock.acquire("r"), redlock.acquire_all(["q", "r"])] {
        let forgotten = polled_once(acquire.ttl(ms(30_000)).wait(ms(400))).await;
        eventually("it has won", || cluster.all_have("r")).await;
        let begun = Instant::now();
        eventually("it is given up", || cluster.is_empty()).await;
        assert!(begun.elapsed() < ms(15_000), "by expiry: {:?}", begun.elapsed());
        let refused = forgotten.await.expect_err("its time is over");
        let AcquireError::NotPolled { report } = &refused else { panic!("{refused:?}") };
        assert!(report.granted() >= 2, "{refused}");
    }
}

#[tokio::test]
async fn what_an_unpolled_acquire_has_won_is_given_up_when_its_validity_is_over() {
    let cluster = Cluster::start(3);
    let redlock = warm(hasty(&cluster)).await;
    let forgotten = polled_once(redlock.acquire("r").ttl(ms(400)).wait(SOON)).await;
    eventually("it has won", || cluster[0].get("r").is_some()).await;
    sleep(ms(1_500)).await;
    let lease = forgotten.await.expect("it tries again");
    assert!(lease.is_valid());
    lease.release().await.expect("nodes are up");

    let once = redlock.acquire("r").max_attempts(1).ttl(ms(400)).wait(SOON);
    let forgotten = polled_once(once).await;
    eventually("it has won", || cluster[0].get("r").is_some()).await;
    sleep(ms(1_500)).await;
    let refused = forgotten.await.expect_err("it has no other attempt");
    assert!(matches!(refused, AcquireError::NotPolled { .. }), "{refused:?}");
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn what_an_unpolled_acquire_has_won_does_not_count_as_under_way_beyond_its_validity() {
    let cluster = Cluster::start(3);
    let redlock = warm(hasty(&cluster)).await;
    let forgotten = polled_once(redlock.acquire("r").ttl(ms(400)).wait(SOON * 9)).await;
    let pending = || quorlock_test::pending_work(&redlock);
    assert_eq!(pending().rounds, 1);
    eventually("no other acquire wants it, and it is released", || pending().is_empty()).await;
    drop(forgotten);
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn others_of_this_process_wait_for_seconds_only_for_any_key_of_an_unpolled_set() {
    let cluster = Cluster::start(3);
    // It has nothing to do with the node timeout.
    let redlock = warm(hasty(&cluster).node_timeout(ms(15_000)).ttl(ms(60_000))).await;
    let forgotten = polled_once(redlock.acquire_all(["p", "q", "r"]).wait(SOON * 3)).await;
    eventually("it has won", || cluster.all_have("q")).await;
    sleep(ms(300)).await;
    assert!(cluster[0].get("q").is_some(), "nobody else wants it");
    let begun = Instant::now();
    let lease = redlock.acquire("q").wait(SOON).await.expect("it is given up");
    assert!(begun.elapsed() > ms(500), "not at once: {:?}", begun.elapsed());
    lease.release().await.expect("nodes are up");
    drop(forgotten.await.expect("it is free again"));
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_is_polled_seldom_has_its_turn_among_others_that_are_quick() {
    let cluster = Cluster::start(3);
    let redlock = warm(hasty(&cluster)).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let busy = (0..4).map(|_| {
        let (redlock, is_over) = (redlock.clone(), is_over.clone());
        tokio::spawn(async move {
            let mut turns = 0;
            while !is_over.load(Ordering::Relaxed) {
                let lease = redlock.acquire("r").wait(SOON).await.expect("its turn comes");
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
        drop(won.expect("it keeps its place in line"));
    }
    is_over.store(true, Ordering::Relaxed);
    for task in busy {
        assert!(task.await.expect("no panic") > 0);
    }
    eventually("no key is left", || cluster.is_empty()).await;
}

/// Each verb of the public API once, polled so seldom. Says which did not end in time.
async fn every_verb(redlock: &Redlock, pause: Duration) -> Vec<String> {
    let mut late = Vec::new();
    let mut note = |verb: &str, begun: Instant, bound: Duration| {
        let took = begun.elapsed();
        if took > bound + pause + SLACK {
            late.push(format!("{verb} took {took:?}, polled every {pause:?}"));
        }
    };
    macro_rules! verb {
        ($name:literal, $bound:expr, $future:expr) => {{
            let begun = Instant::now();
            let (output, _) = polled_every(pause, $future).await;
            note($name, begun, $bound);
            output
        }};
    }
    let once = NODE_TIMEOUT;
    let set = verb!("try_acquire_all", once, redlock.try_acquire_all(["a", "b"]));
    drop(set);
    let held = verb!("try_acquire", once, redlock.try_acquire("r"));
    let waited = verb!("acquire", ms(300), redlock.acquire("r").wait(ms(300)));
    drop(waited);
    drop(verb!("acquire fenced", ms(300), redlock.acquire("f").fenced().wait(ms(300))));
    drop(verb!("status", once, Box::pin(redlock.status("r"))));
    if let Ok(lease) = held {
        let _ = verb!("extend", once, lease.extend(ms(5_000)));
        let heir = verb!("adopt", once, redlock.adopt("r", lease.value()));
        let _ = verb!("release", once, lease.release());
        if let Ok(heir) = heir {
            let _ = verb!("release_after", once, heir.release_after(ms(50)));
        }
    }
    let _ = verb!("force_release", once * 2, redlock.force_release("r"));
    let used = redlock.acquire("u").wait(ms(300)).using(async |_| 7);
    let _ = verb!("using", ms(300) + once, used);
    drop(verb!("release_all", once, redlock.release_all()));
    let _ = verb!("check", ms(1_000) + once * 2, redlock.check());
    late
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_verb_ends_within_its_bound_and_one_pause_between_polls() {
    let cluster = Cluster::start(3);
    let pauses = [ms(20), NODE_TIMEOUT, ms(130), ms(2_300)];
    // On nodes that are well, and on nodes of which a quorum hangs.
    for hung in [0, 2] {
        let clients = pauses.map(|_| hasty(&cluster).ttl(ms(1_000)));
        let mut warmed = Vec::new();
        for builder in clients {
            warmed.push(warm(builder).await);
        }
        cluster.iter().take(hung).for_each(Server::stop);
        for (redlock, pause) in warmed.iter().zip(pauses) {
            let late = every_verb(redlock, pause).await;
            assert!(late.is_empty(), "{hung} hung: {late:#?}");
        }
        cluster.iter().take(hung).for_each(Server::cont);
        for redlock in warmed {
            redlock.close().await.expect("all nodes are well");
        }
    }
    // Only what a cool-down has left, which ends by itself, and fencing counters.
    let locks =
        || cluster.keys_per_node().into_iter().flatten().filter(|key| key.len() <= 1).count();
    eventually("no lock is left", || locks() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_verb_ends_also_while_all_workers_are_busy() {
    let cluster = Cluster::start(3);
    let redlock = warm(hasty(&cluster).ttl(ms(1_000))).await;
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
        let late = every_verb(&redlock, pause).await;
        assert!(late.is_empty(), "{late:#?}");
    }
    is_over.store(true, Ordering::Relaxed);
    for task in load {
        task.await.expect("no panic");
    }
    redlock.close().await.expect("all nodes are well");
}

#[tokio::test]
async fn a_future_that_moves_to_another_task_is_woken_there() {
    let cluster = Cluster::start(3);
    let proxies = cluster.proxies();
    let builder = Redlock::builder().nodes(proxies.iter().map(Proxy::url)).max_ttl(SOON * 20);
    let redlock = warm(builder.node_timeout(SOON * 4).ttl(SOON * 10)).await;
    for proxy in &proxies {
        proxy.delay(Direction::Replies, ms(300));
    }
    for acquire in [redlock.try_acquire("one"), redlock.acquire("two")] {
        let moved = polled_once(acquire).await;
        let lease = timeout(SOON, tokio::spawn(moved)).await.expect("it is woken by the votes");
        drop(lease.expect("no panic").expect("a free lock"));
    }
    proxies.iter().for_each(Proxy::heal);
    eventually("no key is left", || cluster.is_empty()).await;
}

/// The runtime has not looked at its timers in between.
#[tokio::test]
async fn a_wait_that_is_over_ends_with_the_next_poll_also_if_nothing_else_has_run() {
    let cluster = Cluster::start(3);
    let redlock = warm(hasty(&cluster)).await;
    let held = redlock.acquire("r").ttl(ms(50_000)).await.expect("a free lock");
    let first = tokio::spawn(redlock.acquire("r").wait(SOON * 2));
    sleep(ms(300)).await;
    let mut second = polled_once(redlock.acquire("r").wait(ms(200))).await;
    std::thread::sleep(ms(400));
    let polled = poll_fn(|cx| Poll::Ready(Pin::new(&mut second).poll(cx))).await;
    let Poll::Ready(Err(refused)) = polled else { panic!("it goes on waiting") };
    assert!(matches!(refused, AcquireError::Contended { .. }), "{refused}");
    drop(held);
    drop(first.await.expect("no panic").expect("it is free"));
}

#[tokio::test]
async fn of_many_that_are_not_polled_each_is_found() {
    // More queues, and more who stand in none, than are looked at in one go: 512.
    const UNWANTED: usize = 600;
    const ALL: usize = 650;
    const LONG: Duration = Duration::from_hours(1);
    let cluster = Cluster::start(3);
    let redlock = warm(hasty(&cluster).node_timeout(ms(5_000)).ttl(ms(60_000))).await;
    let mut forgotten = Vec::new();
    for number in 0..ALL {
        let name = |kind: &str| format!("{kind}{number:04}");
        let [alone, set, beside] = ["alone", "set", "beside"].map(name);
        forgotten.push(polled_once(redlock.acquire(alone).wait(LONG)).await);
        forgotten.push(polled_once(redlock.acquire_all([set, beside]).wait(LONG)).await);
    }
    // What the attempts of the last have won goes to who wants it.
    let names = |number| ["alone", "set"].map(|kind| format!("{kind}{number:04}"));
    let wanted = (UNWANTED..ALL).flat_map(names);
    let waiting: Vec<_> =
        wanted.map(|key| tokio::spawn(redlock.acquire(key).wait(SOON).into_future())).collect();
    for waiter in waiting {
        let lease = waiter.await.expect("no panic").expect("nobody else is there");
        lease.release().await.expect("nodes are up");
    }
    drop(forgotten);
    eventually("no key is left", || cluster.is_empty()).await;
}
