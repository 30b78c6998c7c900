//! Tests of clock steps on the nodes, with idle clients and with clients that send other requests.

use crate::{ms, secs};
use quorlock::{Lease, Redlock, ReleaseOutcome};
use quorlock_test::Nodes;
use std::time::Duration;
use tokio::time::{Instant, sleep};

fn client(nodes: &Nodes) -> Redlock {
    nodes.client().ttl(secs(30)).build().expect("valid settings")
}

/// Acquires and releases another lock, so that `client` receives the nodes' current times with the replies.
async fn observe_clocks(client: &Redlock) {
    let lease = client.acquire("other").await.expect("the lock is free");
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
}

/// Returns how long the leases of two clients overlap after the nodes' clocks step by `step`. The first client acquires
/// the lock after `hours`, just before the step. The result is the remaining validity of the first lease at the time at
/// which the second client acquires the lock. If `queries` is true, both clients regularly query the status of another
/// lock.
async fn overlap(hours: u64, step: Duration, queries: bool) -> Duration {
    let nodes = Nodes::start(3);
    let (first_client, second_client) = (client(&nodes), client(&nodes));
    observe_clocks(&first_client).await;
    observe_clocks(&second_client).await;
    let wait_and_query = async |times: u64, pause: Duration| {
        for _ in 0..times {
            for client in [&first_client, &second_client].into_iter().filter(|_| queries) {
                client.status("another").await.expect("nodes are up");
            }
            sleep(pause).await;
        }
    };
    // The client reads the clock of a node when the connection was idle for longer than this pause.
    wait_and_query(hours * 900, secs(4)).await;
    let first = first_client.acquire("r").await.expect("the lock is free");
    nodes.step_ahead(step);
    for _ in 0..300 {
        wait_and_query(1, ms(200)).await;
        if let Ok(second) = second_client.try_acquire("r").await {
            return if second.is_valid() { first.validity() } else { Duration::ZERO };
        }
    }
    panic!("the second client did not acquire the lock in a minute");
}

#[tokio::test(start_paused = true)]
async fn status_queries_detect_a_step_like_an_idle_client() {
    // Clock drift explains at most 1.44 s in two hours.
    for queries in [false, true] {
        assert_eq!(overlap(2, ms(1_300), queries).await, Duration::ZERO, "queries: {queries}");
    }
}

/// Sleeps until `lease` is valid for only 20 ms more. Returns the number of nodes on which the key still exists.
async fn holders_before_expiry(nodes: &Nodes, lease: &Lease) -> usize {
    sleep(lease.validity().saturating_sub(ms(20))).await;
    assert!(lease.is_valid());
    nodes.count("r")
}

#[tokio::test(start_paused = true)]
async fn small_steps_that_add_up_are_corrected() {
    for steps in [&[][..], &[180], &[90, 90], &[40; 5]] {
        let nodes = Nodes::start(3);
        let redlock = client(&nodes);
        observe_clocks(&redlock).await;
        sleep(secs(20)).await;
        // The drift allowance of this lease is 102 ms.
        let lease = redlock.acquire("r").ttl(secs(10)).await.expect("the lock is free");
        for step in steps {
            sleep(ms(500)).await;
            nodes.step_ahead(ms(*step));
            observe_clocks(&redlock).await;
        }
        assert_eq!(holders_before_expiry(&nodes, &lease).await, 3, "{steps:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn step_is_compared_with_the_allowance_of_the_last_extension() {
    for (ttl, pause) in [(10, 0), (30, 25)] {
        let nodes = Nodes::start(3);
        let redlock = client(&nodes);
        observe_clocks(&redlock).await;
        let lease = redlock.acquire("r").ttl(secs(ttl)).await.expect("the lock is free");
        sleep(secs(pause)).await;
        lease.extend(secs(10)).await.expect("nodes are up");
        nodes.step_ahead(ms(250));
        observe_clocks(&redlock).await;
        assert_eq!(holders_before_expiry(&nodes, &lease).await, 3, "acquired for {ttl} s");
    }
}

#[tokio::test(start_paused = true)]
async fn lease_shorter_than_a_step_is_never_returned_expired() {
    let nodes = Nodes::start(3);
    let redlock = client(&nodes);
    observe_clocks(&redlock).await;
    sleep(secs(10)).await;
    nodes.step_ahead(ms(600));
    // After the step, the vote of a node counts about 500 ms later.
    let refused = redlock.try_acquire("r").auto_extend(ms(300)).await;
    assert!(refused.is_err(), "{refused:?}");
    let lease = redlock.acquire("r").auto_extend(secs(3)).await.expect("the lock is free");
    assert!(lease.is_valid());
}

#[tokio::test(start_paused = true)]
async fn node_whose_clock_was_far_ahead_is_excluded_for_a_max_ttl() {
    let nodes = Nodes::start(3);
    let redlock = client(&nodes);
    observe_clocks(&redlock).await;
    sleep(secs(20)).await;
    nodes.step_ahead(24 * secs(3_600));
    // The idle client reads the stepped clock during this time.
    sleep(secs(20)).await;
    nodes.step_back(24 * secs(3_600));
    sleep(secs(20)).await;
    let started = Instant::now();
    redlock.try_acquire("r").await.expect_err("the nodes may have dropped keys early");
    // The nodes count again after the longest TTL, one minute, and a small margin.
    redlock.acquire("r").wait(secs(70)).await.map(drop).expect("the nodes count again");
    assert!(started.elapsed() > secs(30), "{:?}", started.elapsed());
}
