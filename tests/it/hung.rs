//! Nodes that hang: they accept everything and answer nothing, and later answer it all.

use crate::{SOON, all_up, builder_of, eventually, is_down, is_up, ms, state, warm_up};
use futures::future::{join_all, try_join_all};
use kit::{Cluster, Direction, Proxy, Server};
use quorlock::{
    AcquireError, Builder, ExtendError, Loss, NodeFailure, NodeState, NodeVote, Redlock,
    ReleaseOutcome, RetryPolicy,
};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Barrier;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Longer than any wait of these tests, so that no key goes by expiring.
const LONG: Duration = Duration::from_mins(2);

const TASKS: usize = 64;

/// A client with the node timeout of production, which a busy machine may well break now and then.
pub(crate) fn hasty(urls: impl IntoIterator<Item = String>) -> Builder {
    builder_of(urls).node_timeout(ms(50)).ttl(LONG).connect_timeout(ms(1_000))
}

/// Each task acquires and releases its own key so many times. Returns how long each operation took.
async fn cycles(redlock: &Redlock, ttl: Duration, count: usize) -> Vec<Duration> {
    let tasks = (0..TASKS).map(|task| {
        let redlock = redlock.clone();
        tokio::spawn(async move {
            let mut operations = Vec::new();
            for _ in 0..count {
                let begun = Instant::now();
                let acquire = redlock.acquire(format!("task/{task}")).ttl(ttl).wait(SOON);
                let lease = acquire.await.expect("four nodes are well");
                operations.push(begun.elapsed());
                let begun = Instant::now();
                let released = lease.release().await;
                // A busy machine may use up 50 ms, or even 300 ms.
                assert_ne!(released, Ok(ReleaseOutcome::TakenOver));
                operations.push(begun.elapsed());
            }
            operations
        })
    });
    let operations = try_join_all(tasks).await.expect("no task fails");
    operations.into_iter().flatten().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_hung_node_of_five_delays_and_fails_nobody_and_nothing_piles_up_for_it() {
    const COUNT: usize = 16;
    let cluster = Cluster::start(5);
    let hung = &cluster[3];
    for (ttl, node_timeout) in [(300, 50), (10_000, 50), (10_000, 1_000)] {
        for is_warm in [false, true] {
            let case = format!("ttl {ttl} ms, timeout {node_timeout} ms, warm {is_warm}");
            let redlock = hasty(cluster.urls()).node_timeout(ms(node_timeout)).build();
            let redlock = redlock.expect("good settings");
            if is_warm {
                warm_up(&redlock).await;
            }
            let before = hung.calls("set");
            hung.stop();
            let begun = Instant::now();
            let mut operations = cycles(&redlock, ms(ttl), COUNT).await;
            let elapsed = begun.elapsed();
            operations.sort_unstable();
            let (median, longest) = (operations[operations.len() / 2], operations.last());
            // If each operation waited for the hung node, this would be 32 times the timeout.
            let seen = format!("{case}: {elapsed:?}, median {median:?}, longest {longest:?}");
            // A busy machine may take 50 ms for it, but not a second.
            let is_delayed = node_timeout == 1_000 && median >= ms(800);
            assert!(elapsed < ms(15_000) && !is_delayed, "{seen}");
            hung.cont();
            let resumed = Instant::now();
            eventually("no key is left", || cluster.is_empty()).await;
            assert!(resumed.elapsed() < ms(8_000), "{case}: released, not expired");
            redlock.close().await.expect("all nodes are well");
            // Of so many cycles, what was written before the stall was noticed: a few pipelines.
            let sets = hung.calls("set") - before;
            assert!(
                sets <= (TASKS * COUNT / 2) as u64,
                "{case}: {sets} SET were kept for the hung node"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn not_a_byte_is_sent_to_a_node_that_is_known_to_hang() {
    let cluster = Cluster::start(5);
    let proxy = Proxy::start(cluster[3].addr());
    let mut urls = cluster.urls();
    urls[3] = proxy.url();
    // It is asked for a sign of life after 10 timeouts: not before the cycles end.
    let redlock = hasty(urls).node_timeout(ms(2_000)).build().expect("good settings");
    warm_up(&redlock).await;
    proxy.hold(Direction::Replies);
    let lease = redlock.acquire("first").wait(SOON).await.expect("four nodes are well");
    eventually("it is noticed", || state(&redlock, 3) == NodeState::Stalled).await;
    let before = proxy.bytes(Direction::Requests);
    cycles(&redlock, LONG, 10).await;
    lease.release().await.expect("four nodes are well");
    assert_eq!(state(&redlock, 3), NodeState::Stalled);
    assert_eq!(proxy.bytes(Direction::Requests), before);
    assert!(cluster[3].get("first").is_some(), "its release is owed");
    proxy.heal();
    eventually("it is up again", || is_up(&redlock, 3)).await;
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hung_node_is_reported_as_stalled_then_down_and_up_again_when_it_resumes() {
    let cluster = Cluster::start(5);
    let redlock = hasty(cluster.urls()).node_timeout(ms(400)).build().expect("good settings");
    warm_up(&redlock).await;
    for hung in &cluster[..3] {
        hung.stop();
    }
    let refused = redlock.try_acquire("r").await.expect_err("two nodes are left");
    let AcquireError::NoQuorum { report } = &refused else { panic!("{refused:?}") };
    assert_eq!(report.granted(), 2);
    for node in &report.nodes()[..3] {
        let NodeVote::Failed(failure) = node.vote() else { panic!("{report}") };
        let NodeFailure::Timeout(after) = failure else { panic!("{report}") };
        assert!((ms(400)..SOON).contains(after));
        assert!(refused.to_string().contains(&format!("{} timeout ", node.name())), "{refused}");
    }
    eventually("the hang is noticed", || (0..3).all(|n| state(&redlock, n) == NodeState::Stalled))
        .await;
    let refused = redlock.try_acquire("r").await.expect_err("two nodes are left");
    let AcquireError::NoQuorum { report } = &refused else { panic!("{refused:?}") };
    for node in &report.nodes()[..3] {
        let is_stalled = matches!(node.vote(), NodeVote::Failed(NodeFailure::Stalled(_)));
        assert!(is_stalled, "{report}");
    }
    assert!(refused.to_string().contains(" stalled for "), "{refused}");

    cluster[0].cont();
    let lease = redlock.acquire("r").wait(SOON).await.expect("three nodes are well");
    eventually("late answers are in the report", || {
        let report = lease.report();
        report.granted() == 3 && report.to_string().matches(" stalled for ").count() == 2
    })
    .await;
    let are_down = || is_down(&redlock, 1) && is_down(&redlock, 2);
    eventually("their connections are given up", are_down).await;
    cluster[1].cont();
    cluster[2].cont();
    eventually("all are up", || all_up(&redlock)).await;
    lease.release().await.expect("all nodes are well");
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_all_nodes_hung_a_lease_ends_on_time_by_itself() {
    let cluster = Cluster::start(5);
    let redlock = hasty(cluster.urls()).build().expect("good settings");
    warm_up(&redlock).await;
    let (ttl, validity) = (ms(1_500), ms(1_500 - 17));
    let before = Instant::now();
    let lease = redlock.acquire("r").ttl(ttl).wait(SOON).await.expect("a free lock");
    let after = Instant::now();
    cluster.servers().iter().for_each(Server::stop);
    let until = lease.valid_until();
    let slack = ms(1); // `valid_until` reads two clocks.
    assert!(before + validity <= until + slack && until <= after + validity + slack);
    while lease.is_valid() {
        assert!(Instant::now() < until + ms(5_000), "it must end by itself");
        tokio::time::sleep(ms(1)).await;
    }
    assert!(Instant::now() + slack >= until, "not before its time");
    assert_eq!((lease.validity(), lease.loss()), (ms(0), Some(Loss::Expired)));
    let lost = lease.extend(LONG).await.expect_err("it has ended");
    assert!(matches!(lost, ExtendError::Lost { reason: Loss::Expired, .. }), "{lost:?}");
    cluster.servers().iter().for_each(Server::cont);
    drop(lease);
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_extension_refused_by_five_hung_nodes_changes_nothing_and_deletes_nothing() {
    let cluster = Cluster::start(5);
    let redlock = hasty(cluster.urls()).build().expect("good settings");
    warm_up(&redlock).await;
    let lease = redlock.acquire("r").wait(SOON).await.expect("a free lock");
    let is_there = |server: &Server| server.get("r").as_deref() == Some(lease.value().as_bytes());
    eventually("the key is on all nodes", || cluster.iter().all(is_there)).await;
    cluster.servers().iter().for_each(Server::stop);
    let until = lease.valid_until();
    // At first each node times out, then it is stalled, then its connection is given up.
    for _ in 0..30 {
        let refused = lease.extend(2 * LONG).await.expect_err("nobody answers");
        let ExtendError::NoQuorum { still_valid_for, report } = &refused else {
            panic!("{refused:?}")
        };
        assert!(*still_valid_for > LONG / 2 && *still_valid_for < LONG);
        assert_eq!(report.granted(), 0);
        assert!(lease.is_valid());
        let moved = lease.valid_until().max(until) - lease.valid_until().min(until);
        assert!(moved < ms(100), "the end stays where it was: {moved:?}");
        tokio::time::sleep(ms(50)).await;
    }
    cluster.servers().iter().for_each(Server::cont);
    assert!(cluster.iter().all(is_there), "nothing was deleted");
    let long = i64::try_from(LONG.as_millis()).expect("small");
    eventually("all hear of the last one", || cluster.iter().all(|node| node.pttl("r") > long))
        .await;
    assert!(lease.validity() < LONG, "it did not count, and does not later");
    eventually("all are up", || all_up(&redlock)).await;
    lease.extend(2 * LONG).await.expect("all nodes are well");
    assert!(lease.validity() > LONG);
    lease.release().await.expect("all nodes are well");
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_longest_extension_that_a_hung_node_missed_is_made_up_for_when_it_resumes() {
    let cluster = Cluster::start(3);
    let redlock = hasty(cluster.urls()).node_timeout(ms(500)).build().expect("good settings");
    warm_up(&redlock).await;
    let lease = redlock.acquire("r").wait(SOON).await.expect("a free lock");
    eventually("the key is on all nodes", || cluster.iter().all(|node| node.pttl("r") > 0)).await;
    cluster[0].stop();
    drop(redlock.try_acquire("other").await.expect("two nodes are well"));
    eventually("it is noticed", || state(&redlock, 0) == NodeState::Stalled).await;
    lease.extend(2 * LONG).await.expect("two nodes are well");
    lease.extend(ms(5_000)).await.expect("two nodes are well, and nothing is shortened");
    assert!(lease.validity() > LONG);
    cluster[0].cont();
    let long = i64::try_from(LONG.as_millis()).expect("small");
    eventually("it is as long there as elsewhere", || cluster[0].pttl("r") > long).await;
}

/// One resource of the next test: the holder fails to extend, and the rival never stops trying.
/// Returns the rival, who checks that the lock is never held by both.
async fn contest(
    (holder, rival): (Redlock, Redlock),
    resource: String,
    hang: Arc<Barrier>,
) -> JoinHandle<()> {
    let lease = holder.acquire(&resource).ttl(ms(3_000)).wait(SOON).await.expect("a free lock");
    let lease = Arc::new(lease);
    let rivalry = tokio::spawn({
        let (lease, retry) = (lease.clone(), RetryPolicy::jittered(ms(20)..ms(100)));
        async move {
            let won = rival.acquire(&resource).wait(SOON).retry(retry).await;
            // One clock: the holder's lease must have ended before the rival is told that it won.
            let (is_shared, until, now) = (lease.is_valid(), lease.valid_until(), Instant::now());
            assert!(!is_shared && until <= now, "{resource} is held by two");
            drop(won.expect("free in the end"));
        }
    });
    hang.wait().await; // All are held.
    hang.wait().await; // Three nodes hang.
    let refused = lease.extend(ms(3_000)).await.expect_err("two nodes are left");
    let ExtendError::NoQuorum { still_valid_for, .. } = refused else { panic!("{refused:?}") };
    assert!(still_valid_for > ms(0) && still_valid_for < ms(3_000));
    rivalry
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_extension_lets_nobody_in_before_the_validity_has_ended() {
    const CONTESTS: usize = 50;
    let cluster = Cluster::start(5);
    let client = || hasty(cluster.urls()).build().expect("good settings");
    let clients = (client(), client());
    warm_up(&clients.0).await;
    warm_up(&clients.1).await;
    let hang = Arc::new(Barrier::new(CONTESTS + 1));
    let contests = (0..CONTESTS)
        .map(|n| tokio::spawn(contest(clients.clone(), format!("contest/{n}"), hang.clone())));
    let contests: Vec<_> = contests.collect();
    hang.wait().await;
    for server in &cluster[..3] {
        server.stop();
    }
    let stopped = tokio::time::sleep(ms(600));
    hang.wait().await;
    let rivalries = try_join_all(contests).await.expect("each extension fails");
    stopped.await;
    for server in &cluster[..3] {
        server.cont();
    }
    try_join_all(rivalries).await.expect("no lock is held by two");
    eventually("no key is left", || cluster.is_empty()).await;
}

/// Acquires of 24 resources that are begun and given up in every way.
async fn give_up(redlock: &Redlock) {
    let each = (0..24_u64).map(|n| async move {
        let acquire = redlock.acquire(format!("given up/{n}")).wait(ms(10 * (n % 12)));
        if n.is_multiple_of(2) {
            let patience = ms(n % 8);
            let dropped_or_lease = timeout(patience, acquire).await;
            drop(dropped_or_lease);
        } else {
            drop(acquire.await); // Refused, or a lease.
        }
    });
    join_all(each).await;
}

/// Gives acquires up while so many nodes hang for so long; true if one of them was set when its node went on.
async fn give_up_while(cluster: &Cluster, hung: usize, lasting: Duration) -> bool {
    let case = format!("{hung} nodes for {lasting:?}");
    let redlock = hasty(cluster.urls()).build().expect("good settings");
    warm_up(&redlock).await;
    let sets = cluster[0].calls("set");
    cluster[..hung].iter().for_each(Server::stop);
    let over = tokio::time::sleep(lasting);
    give_up(&redlock).await;
    over.await;
    if lasting > ms(2_000) {
        eventually("its connection is given up", || is_down(&redlock, 0)).await;
    }
    cluster[..hung].iter().for_each(Server::cont);
    let runs_late = || cluster[0].calls("set") > sets;
    for _ in 0..100 {
        if runs_late() {
            break;
        }
        tokio::time::sleep(ms(2)).await;
    }
    eventually(&case, || cluster.is_empty()).await;
    redlock.close().await.expect("all nodes are well");
    assert!(cluster.is_empty(), "{case}: nothing came late");
    runs_late()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_given_up_while_nodes_hang_is_released_when_they_resume() {
    let cluster = Cluster::start(5);
    for hung in [1, 3] {
        // On a busy machine it can be that nothing was sent before it was given up.
        let mut runs_late = false;
        for _ in 0..10 {
            runs_late = runs_late || give_up_while(&cluster, hung, ms(200)).await;
        }
        assert!(runs_late, "{hung} nodes: what was sent runs late");
    }
    // That is longer than the client waits before it replaces a connection.
    for hung in [1, 3, 5] {
        give_up_while(&cluster, hung, ms(2_500)).await;
    }
}
