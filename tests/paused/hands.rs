//! What changes hands, or is several: dropped wherever it waits.

use crate::dropping::dropped_everywhere;
use crate::nodes::R;
use crate::{LONG, STEP};
use quorlock::{AcquireError, LeaseRef, ReleaseOutcome};
use std::time::Duration;
use tokio::time::sleep;

#[test]
fn a_look_leaves_nothing() {
    dropped_everywhere(3, async |scene| {
        scene.warm_up().await;
        scene.nodes.hold_elsewhere();
        let redlock = scene.redlock.clone();
        async move { assert!(redlock.status(R).await.expect("nodes are well").is_held()) }
    });
}

#[test]
fn a_look_leaves_nothing_when_a_node_hangs() {
    dropped_everywhere(5, async |scene| {
        scene.warm_up().await;
        scene.nodes.hold_elsewhere();
        scene.nodes.stop(1);
        let redlock = scene.redlock.clone();
        async move { assert!(redlock.status(R).await.expect("a client that works").is_held()) }
    });
}

#[test]
fn an_adoption_leaves_nothing() {
    dropped_everywhere(4, async |scene| {
        let given = scene.held().await;
        let redlock = scene.redlock.clone();
        async move {
            let adopted = redlock.adopt(R, given.value()).await.expect("it stands there");
            assert_eq!(given.release().await, Ok(ReleaseOutcome::TakenOver));
            assert!(adopted.is_valid());
        }
    });
}

#[test]
fn an_adoption_leaves_nothing_when_a_node_hangs() {
    dropped_everywhere(3, async |scene| {
        let given = scene.held().await;
        scene.nodes.stop(1);
        let redlock = scene.redlock.clone();
        async move { drop(redlock.adopt(R, given.value()).await.expect("a quorum swaps it")) }
    });
}

#[test]
fn an_adoption_in_vain_touches_nothing() {
    dropped_everywhere(3, async |scene| {
        scene.warm_up().await;
        scene.nodes.hold_elsewhere();
        let adopt = scene.redlock.adopt(R, "not theirs");
        async move {
            let refused = adopt.await.expect_err("another value stands there");
            assert!(matches!(refused, AcquireError::NotHeld { .. }), "{refused:?}");
        }
    });
}

#[test]
fn a_forced_release_is_not_owed() {
    dropped_everywhere(7, async |scene| {
        let lease = scene.held().await;
        scene.nodes.stop(1);
        let redlock = scene.redlock.clone();
        async move {
            let report = redlock.force_release(R).await.expect("a client that works");
            assert_eq!(report.granted(), 2);
            drop(lease);
        }
    });
}

#[test]
fn a_set_that_waits_leaves_nothing() {
    dropped_everywhere(12, async |scene| {
        scene.nodes.hold_elsewhere();
        scene.at(3, |scene| scene.nodes.release_elsewhere());
        let acquire = scene.redlock.acquire_all(["a", R, "z"]).wait(LONG);
        async move { drop(acquire.await.expect("free in time")) }
    });
}

#[test]
fn a_set_leaves_nothing_when_a_node_hangs() {
    dropped_everywhere(3, async |scene| {
        scene.warm_up().await;
        scene.nodes.stop(1);
        let acquire = scene.redlock.try_acquire_all(["a", R, "z"]);
        async move { drop(acquire.await.expect("a quorum is well")) }
    });
}

#[test]
fn a_release_with_a_cool_down_goes_on() {
    dropped_everywhere(3, async |scene| {
        let lease = scene.held().await;
        // The nodes' time is real.
        let short = Duration::from_millis(5);
        async move { assert_eq!(lease.release_after(short).await, Ok(ReleaseOutcome::Released)) }
    });
}

#[test]
fn a_release_of_all_goes_on() {
    dropped_everywhere(5, async |scene| {
        let (one, all) = (scene.held().await, scene.redlock.try_acquire_all(["a", "z"]));
        let both = (one, scene.lease(all).await);
        scene.nodes.stop(0);
        scene.nodes.stop(1);
        let redlock = scene.redlock.clone();
        async move {
            let released = redlock.release_all().await;
            assert!(released.len() == 2 && released.iter().all(|(_, outcome)| outcome.is_err()));
            assert!(!both.0.is_valid() && !both.1.is_valid());
        }
    });
}

#[test]
fn a_close_ends_what_is_held() {
    dropped_everywhere(3, async |scene| {
        let lease = scene.held().await;
        let redlock = scene.redlock.clone();
        async move {
            redlock.close().await.expect("all nodes are well");
            assert!(!lease.is_valid());
        }
    });
}

#[test]
fn work_with_a_view_leaves_nothing() {
    dropped_everywhere(7, async |scene| {
        scene.warm_up().await;
        let acquire = scene.redlock.acquire(R).wait(LONG);
        let work = async |lease: LeaseRef| {
            lease.extend(2 * LONG).await.expect("all nodes are well");
            sleep(2 * STEP).await;
        };
        async move { acquire.using_fut(work).await.expect("held to the end") }
    });
}
