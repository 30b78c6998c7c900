//! Tests of operations that are dropped at every await point: status queries, adoptions, forced releases, acquires of
//! several keys, and `release_all`.

use crate::dropping::drop_at_every_point;
use crate::nodes::R;
use crate::{LONG, STEP};
use quorlock::{AcquireError, LeaseRef, ReleaseOutcome};
use std::time::Duration;
use tokio::time::sleep;

#[test]
fn dropped_status_leaves_nothing() {
    drop_at_every_point(3, async |scenario| {
        scenario.warm_up().await;
        scenario.nodes.hold_by_other();
        let redlock = scenario.redlock.clone();
        async move { assert!(redlock.status(R).await.expect("nodes are well").is_held()) }
    });
}

#[test]
fn dropped_status_leaves_nothing_when_a_node_hangs() {
    drop_at_every_point(5, async |scenario| {
        scenario.warm_up().await;
        scenario.nodes.hold_by_other();
        scenario.nodes.stop(1);
        let redlock = scenario.redlock.clone();
        async move { assert!(redlock.status(R).await.expect("the client is open").is_held()) }
    });
}

#[test]
fn dropped_adoption_leaves_nothing() {
    drop_at_every_point(4, async |scenario| {
        let original = scenario.held().await;
        let redlock = scenario.redlock.clone();
        async move {
            let adopted =
                redlock.adopt(R, original.value()).await.expect("the nodes hold this value");
            assert_eq!(original.release().await, Ok(ReleaseOutcome::TakenOver));
            assert!(adopted.is_valid());
        }
    });
}

#[test]
fn dropped_adoption_leaves_nothing_when_a_node_hangs() {
    drop_at_every_point(3, async |scenario| {
        let original = scenario.held().await;
        scenario.nodes.stop(1);
        let redlock = scenario.redlock.clone();
        async move {
            drop(redlock.adopt(R, original.value()).await.expect("a quorum replaces the value"));
        }
    });
}

#[test]
fn dropped_refused_adoption_changes_nothing() {
    drop_at_every_point(3, async |scenario| {
        scenario.warm_up().await;
        scenario.nodes.hold_by_other();
        let adopt = scenario.redlock.adopt(R, "another value");
        async move {
            let refused = adopt.await.expect_err("the nodes hold another value");
            assert!(matches!(refused, AcquireError::NotHeld { .. }), "{refused:?}");
        }
    });
}

#[test]
fn dropped_forced_release_is_not_retried() {
    drop_at_every_point(7, async |scenario| {
        let lease = scenario.held().await;
        scenario.nodes.stop(1);
        let redlock = scenario.redlock.clone();
        async move {
            let report = redlock.force_release(R).await.expect("the client is open");
            assert_eq!(report.granted(), 2);
            drop(lease);
        }
    });
}

#[test]
fn dropped_wait_for_a_set_leaves_nothing() {
    drop_at_every_point(12, async |scenario| {
        scenario.nodes.hold_by_other();
        scenario.schedule(3, |scenario| scenario.nodes.release_by_other());
        let acquire = scenario.redlock.acquire_all(["a", R, "z"]).wait(LONG);
        async move { drop(acquire.await.expect("the lock becomes free")) }
    });
}

#[test]
fn dropped_set_leaves_nothing_when_a_node_hangs() {
    drop_at_every_point(3, async |scenario| {
        scenario.warm_up().await;
        scenario.nodes.stop(1);
        let acquire = scenario.redlock.try_acquire_all(["a", R, "z"]);
        async move { drop(acquire.await.expect("a quorum is up")) }
    });
}

#[test]
fn dropped_release_with_a_cooldown_continues() {
    drop_at_every_point(3, async |scenario| {
        let lease = scenario.held().await;
        // A cooldown runs on the nodes' clocks, in real time.
        let short = Duration::from_millis(5);
        async move { assert_eq!(lease.release_after(short).await, Ok(ReleaseOutcome::Released)) }
    });
}

#[test]
fn dropped_release_of_all_continues() {
    drop_at_every_point(5, async |scenario| {
        let (one, all) = (scenario.held().await, scenario.redlock.try_acquire_all(["a", "z"]));
        let both = (one, scenario.lease(all).await);
        scenario.nodes.stop(0);
        scenario.nodes.stop(1);
        let redlock = scenario.redlock.clone();
        async move {
            let released = redlock.release_all().await;
            assert!(released.len() == 2 && released.iter().all(|(_, outcome)| outcome.is_err()));
            assert!(!both.0.is_valid() && !both.1.is_valid());
        }
    });
}

#[test]
fn dropped_close_ends_held_leases() {
    drop_at_every_point(3, async |scenario| {
        let lease = scenario.held().await;
        let redlock = scenario.redlock.clone();
        async move {
            redlock.close().await.expect("nodes are up");
            assert!(!lease.is_valid());
        }
    });
}

#[test]
fn dropped_work_with_a_lease_ref_leaves_nothing() {
    drop_at_every_point(7, async |scenario| {
        scenario.warm_up().await;
        let acquire = scenario.redlock.acquire(R).wait(LONG);
        let work = async |lease: LeaseRef| {
            lease.extend(2 * LONG).await.expect("nodes are up");
            sleep(2 * STEP).await;
        };
        async move { acquire.using_fut(work).await.expect("the lease is valid to the end") }
    });
}
