//! Tests of acquires that are dropped at every await point.

use crate::dropping::drop_at_every_point;
use crate::fixture::eventually;
use crate::nodes::R;
use crate::scenario::Scenario;
use crate::{LONG, STEP};
use quorlock::{Acquire, AcquireError, Lease, RetryPolicy};
use quorlock_test::pending_work;

async fn expect_acquired(acquire: Acquire) -> Lease {
    acquire.await.expect("the lock is or becomes free")
}

async fn expect_contended(acquire: Acquire) {
    let refused = acquire.await.expect_err("the lock is held");
    assert!(matches!(refused, AcquireError::Contended { .. }), "{refused:?}");
}

async fn expect_no_quorum(acquire: Acquire) {
    let refused = acquire.await.expect_err("no quorum of nodes answers");
    assert!(matches!(refused, AcquireError::NoQuorum { .. }), "{refused:?}");
}

fn long_wait(scenario: &Scenario) -> Acquire {
    scenario.redlock.acquire(R).wait(LONG)
}

/// Lets another client hold the lock, and starts an acquire of the client under test that waits for the lock.
async fn queue_up(scenario: &Scenario) {
    scenario.warm_up().await;
    scenario.nodes.hold_by_other();
    scenario.spawn_waiter();
    let no_waiter =
        || (pending_work(&scenario.redlock).waiters == 0).then(|| "no acquire waits".into());
    eventually(&scenario.nodes, no_waiter).await;
}

#[test]
fn dropped_first_try_leaves_nothing() {
    drop_at_every_point(7, async |scenario| expect_acquired(scenario.redlock.try_acquire(R)));
}

#[test]
fn dropped_try_on_connected_nodes_leaves_nothing() {
    drop_at_every_point(3, async |scenario| {
        scenario.warm_up().await;
        expect_acquired(scenario.redlock.try_acquire(R))
    });
}

#[test]
fn dropped_fenced_try_leaves_nothing() {
    drop_at_every_point(3, async |scenario| {
        scenario.warm_up().await;
        expect_acquired(scenario.redlock.try_acquire(R).fenced())
    });
}

#[test]
fn dropped_fenced_try_with_a_second_round_leaves_nothing() {
    drop_at_every_point(4, async |scenario| {
        scenario.warm_up().await;
        scenario.nodes.spread_counters();
        expect_acquired(scenario.redlock.try_acquire(R).fenced())
    });
}

#[test]
fn dropped_fenced_wait_with_a_second_round_leaves_nothing() {
    drop_at_every_point(12, async |scenario| {
        scenario.nodes.hold_by_other();
        scenario.nodes.spread_counters();
        scenario.schedule(3, |scenario| scenario.nodes.release_by_other());
        expect_acquired(long_wait(scenario).fenced())
    });
}

#[test]
fn dropped_try_of_a_held_lock_leaves_nothing() {
    drop_at_every_point(7, async |scenario| {
        scenario.nodes.hold_by_other();
        expect_contended(scenario.redlock.try_acquire(R))
    });
}

#[test]
fn dropped_first_try_leaves_nothing_when_a_node_hangs() {
    drop_at_every_point(10, async |scenario| {
        scenario.nodes.stop(1);
        expect_acquired(scenario.redlock.try_acquire(R))
    });
}

#[test]
fn dropped_try_leaves_nothing_when_a_node_starts_to_hang() {
    drop_at_every_point(3, async |scenario| {
        scenario.warm_up().await;
        scenario.nodes.stop(1);
        expect_acquired(scenario.redlock.try_acquire(R))
    });
}

#[test]
fn dropped_try_leaves_nothing_when_a_majority_hangs() {
    drop_at_every_point(6, async |scenario| {
        scenario.warm_up().await;
        scenario.nodes.stop(0);
        scenario.nodes.stop(2);
        expect_no_quorum(scenario.redlock.try_acquire(R))
    });
}

#[test]
fn dropped_first_try_leaves_nothing_when_a_node_is_dead() {
    drop_at_every_point(7, async |scenario| {
        scenario.nodes.kill(1);
        expect_acquired(scenario.redlock.try_acquire(R))
    });
}

#[test]
fn dropped_try_leaves_nothing_when_a_node_dies() {
    drop_at_every_point(3, async |scenario| {
        scenario.warm_up().await;
        scenario.nodes.kill(1);
        expect_acquired(scenario.redlock.try_acquire(R))
    });
}

#[test]
fn dropped_wait_for_a_release_leaves_nothing() {
    drop_at_every_point(12, async |scenario| {
        scenario.nodes.hold_by_other();
        scenario.schedule(3, |scenario| scenario.nodes.release_by_other());
        expect_acquired(long_wait(scenario))
    });
}

#[test]
fn dropped_wait_for_an_expiry_leaves_nothing() {
    drop_at_every_point(6, async |scenario| {
        scenario.warm_up().await;
        scenario.nodes.hold_by_other();
        scenario.schedule(3, |scenario| scenario.nodes.expire_by_other());
        expect_acquired(long_wait(scenario))
    });
}

#[test]
fn dropped_wait_that_times_out_leaves_nothing() {
    drop_at_every_point(8, async |scenario| {
        scenario.warm_up().await;
        scenario.nodes.hold_by_other();
        let retry = RetryPolicy::fixed(4 * STEP);
        expect_contended(scenario.redlock.acquire(R).wait(10 * STEP).retry(retry))
    });
}

#[test]
fn dropped_wait_leaves_nothing_when_a_node_hangs() {
    drop_at_every_point(6, async |scenario| {
        scenario.warm_up().await;
        scenario.nodes.hold_by_other();
        scenario.nodes.stop(1);
        scenario.schedule(3, |scenario| scenario.nodes.release_by_other());
        expect_acquired(long_wait(scenario))
    });
}

#[test]
fn dropped_queued_wait_leaves_nothing() {
    drop_at_every_point(4, async |scenario| {
        queue_up(scenario).await;
        scenario.schedule(0, |scenario| scenario.nodes.release_by_other());
        expect_acquired(long_wait(scenario))
    });
}

#[test]
fn dropped_queued_wait_that_times_out_leaves_nothing() {
    drop_at_every_point(9, async |scenario| {
        queue_up(scenario).await;
        expect_contended(scenario.redlock.acquire(R).wait(10 * STEP))
    });
}

#[test]
fn dropped_wait_lets_queued_acquires_pass() {
    drop_at_every_point(7, async |scenario| {
        scenario.warm_up().await;
        scenario.nodes.hold_by_other();
        scenario.schedule(0, Scenario::spawn_waiter);
        scenario.schedule(3, |scenario| scenario.nodes.release_by_other());
        expect_acquired(long_wait(scenario))
    });
}

#[test]
fn dropped_acquire_of_a_renewed_lease_leaves_nothing() {
    drop_at_every_point(7, async |scenario| {
        expect_acquired(scenario.redlock.acquire(R).auto_extend(LONG))
    });
}
