//! Clocks of nodes that step, as clients see them that do other things, or nothing.

use crate::{ms, secs};
use quorlock::{Lease, Redlock};
use quorlock_test::Nodes;
use std::time::Duration;
use tokio::time::{Instant, sleep};

fn client(nodes: &Nodes) -> Redlock {
    nodes.client().ttl(secs(30)).build().expect("good settings")
}

/// The client has something granted, with which it reads the clocks.
async fn look(client: &Redlock) {
    let lease = client.acquire("other").await.expect("a free lock");
    lease.release().await.expect("all are well");
}

/// Lets `hours` pass, and then a client gets a lock while the nodes' clocks step by so much. How long that lock was
/// valid together with another client's. Both ask for a status all the time, if they are to.
async fn overlap(hours: u64, step: Duration, asks: bool) -> Duration {
    let nodes = Nodes::start(3);
    let (ours, theirs) = (client(&nodes), client(&nodes));
    look(&ours).await;
    look(&theirs).await;
    let pass = async |times: u64, pause: Duration| {
        for _ in 0..times {
            for client in [&ours, &theirs].into_iter().filter(|_| asks) {
                client.status("another").await.expect("all are well");
            }
            sleep(pause).await;
        }
    };
    // An idle connection is asked for the time when it was silent for longer.
    pass(hours * 900, secs(4)).await;
    let first = ours.acquire("r").await.expect("a free lock");
    nodes.step_ahead(step);
    for _ in 0..300 {
        pass(1, ms(200)).await;
        if let Ok(second) = theirs.try_acquire("r").await {
            return if second.is_valid() { first.validity() } else { Duration::ZERO };
        }
    }
    panic!("it was not to be had in a minute");
}

#[tokio::test(start_paused = true)]
async fn who_only_asks_sees_a_step_as_soon_as_who_does_nothing() {
    // In two hours clocks wander by 1.44 s at most.
    for asks in [false, true] {
        assert_eq!(overlap(2, ms(1_300), asks).await, Duration::ZERO, "asks: {asks}");
    }
}

/// How many nodes hold the keys of `lease` when it is valid for 20 ms more.
async fn at_the_end(nodes: &Nodes, lease: &Lease) -> usize {
    sleep(lease.validity().saturating_sub(ms(20))).await;
    assert!(lease.is_valid());
    nodes.count("r")
}

#[tokio::test(start_paused = true)]
async fn steps_that_do_no_harm_alone_are_mended_together() {
    for steps in [&[][..], &[180], &[90, 90], &[40; 5]] {
        let nodes = Nodes::start(3);
        let ours = client(&nodes);
        look(&ours).await;
        sleep(secs(20)).await;
        // The allowance is 102 ms.
        let lease = ours.acquire("r").ttl(secs(10)).await.expect("a free lock");
        for step in steps {
            sleep(ms(500)).await;
            nodes.step_ahead(ms(*step));
            look(&ours).await;
        }
        assert_eq!(at_the_end(&nodes, &lease).await, 3, "{steps:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_is_compared_with_what_the_latest_extension_has_set_aside() {
    for (ttl, rest) in [(10, 0), (30, 25)] {
        let nodes = Nodes::start(3);
        let ours = client(&nodes);
        look(&ours).await;
        let lease = ours.acquire("r").ttl(secs(ttl)).await.expect("a free lock");
        sleep(secs(rest)).await;
        lease.extend(secs(10)).await.expect("all are well");
        nodes.step_ahead(ms(250));
        look(&ours).await;
        assert_eq!(at_the_end(&nodes, &lease).await, 3, "acquired for {ttl} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_may_be_held_for_less_than_a_step_is_not_handed_out_when_it_has_ended() {
    let nodes = Nodes::start(3);
    let ours = client(&nodes);
    look(&ours).await;
    sleep(secs(10)).await;
    nodes.step_ahead(ms(600));
    // What is granted counts some 500 ms later.
    let refused = ours.try_acquire("r").auto_extend(ms(300)).await;
    assert!(refused.is_err(), "{refused:?}");
    let lease = ours.acquire("r").auto_extend(secs(3)).await.expect("a free lock");
    assert!(lease.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_was_far_ahead_for_a_moment_is_left_out_for_a_term() {
    let nodes = Nodes::start(3);
    let ours = client(&nodes);
    look(&ours).await;
    sleep(secs(20)).await;
    nodes.step_ahead(24 * secs(3_600));
    // It is read when nothing else is said.
    sleep(secs(20)).await;
    nodes.step_back(24 * secs(3_600));
    sleep(secs(20)).await;
    let begun = Instant::now();
    ours.try_acquire("r").await.expect_err("locks may have been dropped early");
    // The longest ttl is a minute, and a term is little more.
    ours.acquire("r").wait(secs(70)).await.map(drop).expect("a term has passed");
    assert!(begun.elapsed() > secs(30), "{:?}", begun.elapsed());
}
