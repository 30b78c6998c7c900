//! Tests with unresponsive nodes. They accept connections and bytes without replying, and later execute everything that
//! they received.

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

/// A TTL longer than any wait in these tests, so that no key expires.
const LONG: Duration = Duration::from_mins(2);

const TASKS: usize = 64;

/// Returns settings with a node timeout as short as in production. On a busy machine, replies can exceed this timeout.
pub(crate) fn short_timeout(urls: impl IntoIterator<Item = String>) -> Builder {
    builder_of(urls).node_timeout(ms(50)).ttl(LONG).connect_timeout(ms(1_000))
}

/// Acquires and releases a lock `count` times in each of `TASKS` concurrent tasks. Returns the duration of each
/// operation.
async fn cycles(redlock: &Redlock, ttl: Duration, count: usize) -> Vec<Duration> {
    let tasks = (0..TASKS).map(|task| {
        let redlock = redlock.clone();
        tokio::spawn(async move {
            let mut operations = Vec::new();
            for _ in 0..count {
                let started = Instant::now();
                let acquire = redlock.acquire(format!("task/{task}")).ttl(ttl).wait(SOON);
                let lease = acquire.await.expect("four nodes are up");
                operations.push(started.elapsed());
                let started = Instant::now();
                let released = lease.release().await;
                // A busy machine may take longer than the node timeout of 50 ms or the ttl of 300 ms.
                assert_ne!(released, Ok(ReleaseOutcome::TakenOver));
                operations.push(started.elapsed());
            }
            operations
        })
    });
    let operations = try_join_all(tasks).await.expect("no task fails");
    operations.into_iter().flatten().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_stopped_node_neither_delays_nor_queues_commands() {
    const COUNT: usize = 16;
    let cluster = Cluster::start(5);
    let hung = &cluster[3];
    for (ttl, node_timeout) in [(300, 50), (10_000, 50), (10_000, 1_000)] {
        for is_warm in [false, true] {
            let case = format!("ttl {ttl} ms, timeout {node_timeout} ms, warm {is_warm}");
            let redlock = short_timeout(cluster.urls()).node_timeout(ms(node_timeout)).build();
            let redlock = redlock.expect("valid settings");
            if is_warm {
                warm_up(&redlock).await;
            }
            let before = hung.calls("set");
            hung.stop();
            let started = Instant::now();
            let mut operations = cycles(&redlock, ms(ttl), COUNT).await;
            let elapsed = started.elapsed();
            operations.sort_unstable();
            let (median, longest) = (operations[operations.len() / 2], operations.last());
            // If each operation waited for the stopped node, the total would be 32 node timeouts.
            let measured = format!("{case}: {elapsed:?}, median {median:?}, longest {longest:?}");
            // A busy machine may delay an operation by 50 ms, but not by 1 s.
            let is_delayed = node_timeout == 1_000 && median >= ms(800);
            assert!(elapsed < ms(15_000) && !is_delayed, "{measured}");
            hung.cont();
            let resumed = Instant::now();
            eventually("no key is left", || cluster.is_empty()).await;
            assert!(resumed.elapsed() < ms(8_000), "{case}: the keys must be released, not expire");
            redlock.close().await.expect("nodes are up");
            // The stopped node receives only the pipelines that were written before the stall was detected.
            let sets = hung.calls("set") - before;
            assert!(
                sets <= (TASKS * COUNT / 2) as u64,
                "{case}: {sets} SET were kept for the hung node"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_sent_to_a_stalled_node() {
    let cluster = Cluster::start(5);
    let proxy = Proxy::start(cluster[3].addr());
    let mut urls = cluster.urls();
    urls[3] = proxy.url();
    // The client probes an idle or stalled node after ten node timeouts, which end later than the cycles.
    let redlock = short_timeout(urls).node_timeout(ms(2_000)).build().expect("valid settings");
    warm_up(&redlock).await;
    proxy.hold(Direction::Replies);
    let lease = redlock.acquire("first").wait(SOON).await.expect("four nodes are up");
    eventually("the node is stalled", || state(&redlock, 3) == NodeState::Stalled).await;
    let before = proxy.bytes(Direction::Requests);
    cycles(&redlock, LONG, 10).await;
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released), "four nodes are up");
    assert_eq!(state(&redlock, 3), NodeState::Stalled);
    assert_eq!(proxy.bytes(Direction::Requests), before);
    assert!(cluster[3].get("first").is_some(), "the release is pending");
    proxy.heal();
    eventually("the node is up", || is_up(&redlock, 3)).await;
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_node_is_reported_stalled_then_down_then_up() {
    let cluster = Cluster::start(5);
    let redlock =
        short_timeout(cluster.urls()).node_timeout(ms(400)).build().expect("valid settings");
    warm_up(&redlock).await;
    for hung in &cluster[..3] {
        hung.stop();
    }
    let refused = redlock.try_acquire("r").await.expect_err("two nodes are up");
    let AcquireError::NoQuorum { report } = &refused else { panic!("{refused:?}") };
    assert_eq!(report.granted(), 2);
    for node in &report.nodes()[..3] {
        let NodeVote::Failed(failure) = node.vote() else { panic!("{report}") };
        let NodeFailure::Timeout(after) = failure else { panic!("{report}") };
        assert!((ms(400)..SOON).contains(after));
        assert!(refused.to_string().contains(&format!("{} timeout ", node.name())), "{refused}");
    }
    eventually("three nodes are stalled", || {
        (0..3).all(|n| state(&redlock, n) == NodeState::Stalled)
    })
    .await;
    let refused = redlock.try_acquire("r").await.expect_err("two nodes are up");
    let AcquireError::NoQuorum { report } = &refused else { panic!("{refused:?}") };
    for node in &report.nodes()[..3] {
        let is_stalled = matches!(node.vote(), NodeVote::Failed(NodeFailure::Stalled(_)));
        assert!(is_stalled, "{report}");
    }
    assert!(refused.to_string().contains(" stalled for "), "{refused}");

    cluster[0].cont();
    let lease = redlock.acquire("r").wait(SOON).await.expect("three nodes are up");
    eventually("the report contains the late replies", || {
        let report = lease.report();
        report.granted() == 3 && report.to_string().matches(" stalled for ").count() == 2
    })
    .await;
    let are_down = || is_down(&redlock, 1) && is_down(&redlock, 2);
    eventually("the silent connections are closed", are_down).await;
    cluster[1].cont();
    cluster[2].cont();
    eventually("all nodes are up", || all_up(&redlock)).await;
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lease_expires_on_time_with_all_nodes_stopped() {
    let cluster = Cluster::start(5);
    let redlock = short_timeout(cluster.urls()).build().expect("valid settings");
    warm_up(&redlock).await;
    let (ttl, validity) = (ms(1_500), ms(1_500 - 17));
    let before = Instant::now();
    let lease = redlock.acquire("r").ttl(ttl).wait(SOON).await.expect("the lock is free");
    let after = Instant::now();
    cluster.servers().iter().for_each(Server::stop);
    let until = lease.valid_until();
    let slack = ms(1); // `valid_until` reads two clocks.
    assert!(before + validity <= until + slack && until <= after + validity + slack);
    while lease.is_valid() {
        assert!(Instant::now() < until + ms(5_000), "the lease did not expire");
        tokio::time::sleep(ms(1)).await;
    }
    assert!(Instant::now() + slack >= until, "the lease expired early");
    assert_eq!((lease.validity(), lease.loss()), (ms(0), Some(Loss::Expired)));
    let lost = lease.extend(LONG).await.expect_err("the lease has expired");
    assert!(matches!(lost, ExtendError::Lost { reason: Loss::Expired, .. }), "{lost:?}");
    cluster.servers().iter().for_each(Server::cont);
    drop(lease);
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_extension_keeps_the_lease_and_its_keys() {
    let cluster = Cluster::start(5);
    let redlock = short_timeout(cluster.urls()).build().expect("valid settings");
    warm_up(&redlock).await;
    let lease = redlock.acquire("r").wait(SOON).await.expect("the lock is free");
    let is_there = |server: &Server| server.get("r").as_deref() == Some(lease.value().as_bytes());
    eventually("the key is on all nodes", || cluster.iter().all(is_there)).await;
    cluster.servers().iter().for_each(Server::stop);
    let until = lease.valid_until();
    // First the nodes time out, then they are stalled, and finally the client closes their connections.
    for _ in 0..30 {
        let refused = lease.extend(2 * LONG).await.expect_err("no node replies");
        let ExtendError::NoQuorum { still_valid_for, report } = &refused else {
            panic!("{refused:?}")
        };
        assert!(*still_valid_for > LONG / 2 && *still_valid_for < LONG);
        assert_eq!(report.granted(), 0);
        assert!(lease.is_valid());
        let moved = lease.valid_until().max(until) - lease.valid_until().min(until);
        assert!(moved < ms(100), "valid_until must not change: {moved:?}");
        tokio::time::sleep(ms(50)).await;
    }
    cluster.servers().iter().for_each(Server::cont);
    assert!(cluster.iter().all(is_there), "no key was deleted");
    let long = i64::try_from(LONG.as_millis()).expect("small");
    eventually("all nodes receive the last extension", || {
        cluster.iter().all(|node| node.pttl("r") > long)
    })
    .await;
    assert!(lease.validity() < LONG, "the refused extension does not count");
    eventually("all nodes are up", || all_up(&redlock)).await;
    lease.extend(2 * LONG).await.expect("nodes are up");
    assert!(lease.validity() > LONG);
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resumed_node_receives_the_longest_missed_extension() {
    let cluster = Cluster::start(3);
    let redlock =
        short_timeout(cluster.urls()).node_timeout(ms(500)).build().expect("valid settings");
    warm_up(&redlock).await;
    let lease = redlock.acquire("r").wait(SOON).await.expect("the lock is free");
    eventually("the key is on all nodes", || cluster.iter().all(|node| node.pttl("r") > 0)).await;
    cluster[0].stop();
    drop(redlock.try_acquire("other").await.expect("two nodes are up"));
    eventually("the node is stalled", || state(&redlock, 0) == NodeState::Stalled).await;
    lease.extend(2 * LONG).await.expect("two nodes are up");
    lease.extend(ms(5_000)).await.expect("an extension never shortens");
    assert!(lease.validity() > LONG);
    cluster[0].cont();
    let long = i64::try_from(LONG.as_millis()).expect("small");
    eventually("the resumed node has the longer expiry", || cluster[0].pttl("r") > long).await;
}

/// Checks mutual exclusion when an extension fails. The holder's extension fails because three nodes are stopped, and
/// the rival retries until it acquires the lock. Returns the rival's task, which panics if the holder's lease has not
/// ended first.
async fn compete(
    (holder, rival): (Redlock, Redlock),
    resource: String,
    hang: Arc<Barrier>,
) -> JoinHandle<()> {
    let lease =
        holder.acquire(&resource).ttl(ms(3_000)).wait(SOON).await.expect("the lock is free");
    let lease = Arc::new(lease);
    let rivalry = tokio::spawn({
        let (lease, retry) = (lease.clone(), RetryPolicy::jittered(ms(20)..ms(100)));
        async move {
            let won = rival.acquire(&resource).wait(SOON).retry(retry).await;
            // Both clients use one clock, so the holder's lease must have ended before the rival's acquire returns.
            let (is_shared, until, now) = (lease.is_valid(), lease.valid_until(), Instant::now());
            assert!(!is_shared && until <= now, "{resource} is held by two");
            drop(won.expect("the lock expires"));
        }
    });
    hang.wait().await; // All locks are held.
    hang.wait().await; // Three nodes are stopped.
    let refused = lease.extend(ms(3_000)).await.expect_err("two nodes are up");
    let ExtendError::NoQuorum { still_valid_for, .. } = refused else { panic!("{refused:?}") };
    assert!(still_valid_for > ms(0) && still_valid_for < ms(3_000));
    rivalry
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_extension_excludes_others_until_validity_ends() {
    const CONTESTS: usize = 50;
    let cluster = Cluster::start(5);
    let client = || short_timeout(cluster.urls()).build().expect("valid settings");
    let clients = (client(), client());
    warm_up(&clients.0).await;
    warm_up(&clients.1).await;
    let hang = Arc::new(Barrier::new(CONTESTS + 1));
    let contests = (0..CONTESTS)
        .map(|n| tokio::spawn(compete(clients.clone(), format!("contest/{n}"), hang.clone())));
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

/// Starts acquires of 24 resources. Half of the acquires are dropped after 0 to 6 ms unless they have completed. The
/// other half run until they succeed, or until their wait limit ends. Their leases are dropped immediately.
async fn abandon_acquires(redlock: &Redlock) {
    let each = (0..24_u64).map(|n| async move {
        let acquire = redlock.acquire(format!("abandoned/{n}")).wait(ms(10 * (n % 12)));
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

/// Checks that abandoned acquires leave no key. `hung` nodes are stopped for `lasting`, and all acquires start during
/// this time. Returns true if the first node executed a `SET` after it resumed.
async fn abandon_acquires_while(cluster: &Cluster, hung: usize, lasting: Duration) -> bool {
    let case = format!("{hung} nodes for {lasting:?}");
    let redlock = short_timeout(cluster.urls()).build().expect("valid settings");
    warm_up(&redlock).await;
    let sets = cluster[0].calls("set");
    cluster[..hung].iter().for_each(Server::stop);
    let over = tokio::time::sleep(lasting);
    abandon_acquires(&redlock).await;
    over.await;
    if lasting > ms(2_000) {
        eventually("the silent connection is closed", || is_down(&redlock, 0)).await;
    }
    cluster[..hung].iter().for_each(Server::cont);
    let ran_late = || cluster[0].calls("set") > sets;
    for _ in 0..100 {
        if ran_late() {
            break;
        }
        tokio::time::sleep(ms(2)).await;
    }
    eventually(&case, || cluster.is_empty()).await;
    redlock.close().await.expect("nodes are up");
    assert!(cluster.is_empty(), "{case}: a late command left a key");
    ran_late()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquires_abandoned_on_stopped_nodes_are_released() {
    let cluster = Cluster::start(5);
    for hung in [1, 3] {
        // On a busy machine, an acquire may be abandoned before its command is written.
        let mut ran_late = false;
        for _ in 0..10 {
            ran_late = ran_late || abandon_acquires_while(&cluster, hung, ms(200)).await;
        }
        assert!(ran_late, "{hung} nodes: no SET ran after a node resumed");
    }
    // The nodes are stopped for longer than a client waits before it replaces a silent connection.
    for hung in [1, 3, 5] {
        abandon_acquires_while(&cluster, hung, ms(2_500)).await;
    }
}
