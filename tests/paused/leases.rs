//! The futures of a lease, and the end of a client, dropped wherever they wait.

use crate::dropping::dropped_everywhere;
use crate::nodes::R;
use crate::{LONG, STEP};
use quorlock::{ExtendError, Lease, Loss, ReleaseError, ReleaseOutcome, UsingError};
use std::future::pending;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::sleep;

/// Its end is within the reach of a test.
const SHORT: Duration = Duration::from_mins(1);

async fn extended(lease: Rc<Lease>) {
    lease.extend(2 * LONG).await.expect("a quorum is well");
    assert!(lease.validity() > LONG);
}

async fn released(lease: Lease) {
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
}

#[test]
fn an_extension_leaves_the_lease_as_it_was() {
    dropped_everywhere(3, async |scene| extended(scene.keep(scene.held().await)));
}

#[test]
fn an_extension_leaves_the_lease_as_it_was_when_a_node_hangs() {
    dropped_everywhere(3, async |scene| {
        let lease = scene.keep(scene.held().await);
        scene.nodes.stop(1);
        extended(lease)
    });
}

#[test]
fn an_extension_leaves_the_lease_as_it_was_when_a_majority_hangs() {
    dropped_everywhere(6, async |scene| {
        let lease = scene.keep(scene.held().await);
        scene.nodes.stop(0);
        scene.nodes.stop(2);
        async move {
            let failed = lease.extend(2 * LONG).await.expect_err("too few nodes answer");
            assert!(matches!(failed, ExtendError::NoQuorum { .. }), "{failed:?}");
            assert!(lease.is_valid());
        }
    });
}

#[test]
fn a_release_goes_on() {
    dropped_everywhere(3, async |scene| released(scene.held().await));
}

#[test]
fn a_release_goes_on_when_a_node_hangs() {
    dropped_everywhere(3, async |scene| {
        let lease = scene.held().await;
        scene.nodes.stop(1);
        released(lease)
    });
}

#[test]
fn a_release_goes_on_when_a_majority_hangs() {
    dropped_everywhere(6, async |scene| {
        let lease = scene.held().await;
        scene.nodes.stop(0);
        scene.nodes.stop(2);
        async move {
            let failed = lease.release().await.expect_err("too few nodes answer");
            assert!(matches!(failed, ReleaseError::NoQuorum { .. }), "{failed:?}");
        }
    });
}

#[test]
fn a_release_goes_on_and_lets_others_pass() {
    dropped_everywhere(3, async |scene| {
        let lease = scene.held().await;
        scene.wait_too();
        released(lease)
    });
}

#[test]
fn a_watch_for_the_loss_leaves_the_lease_as_it_was() {
    dropped_everywhere(16, async |scene| {
        scene.warm_up().await;
        let lease = scene.lease(scene.redlock.try_acquire(R).ttl(SHORT)).await;
        let lease = scene.keep(lease);
        async move { assert_eq!(lease.lost().await, Loss::Expired) }
    });
}

#[test]
fn a_watch_for_the_loss_of_a_lease_that_is_kept_up_leaves_it_as_it_was() {
    dropped_everywhere(28, async |scene| {
        scene.warm_up().await;
        let acquire = scene.redlock.try_acquire(R).ttl(SHORT).auto_extend(2 * SHORT);
        let lease = scene.keep(scene.lease(acquire).await);
        async move { lease.lost().await }
    });
}

#[test]
fn work_under_a_lock_leaves_nothing() {
    dropped_everywhere(18, async |scene| {
        scene.nodes.hold_elsewhere();
        scene.at(1, |scene| scene.nodes.release_elsewhere());
        let acquire = scene.redlock.acquire(R).wait(LONG);
        let work = async |lease: &Lease| {
            sleep(2 * STEP).await;
            lease.extend(2 * LONG).await.expect("all nodes are well");
            sleep(2 * STEP).await;
        };
        async move { acquire.using(work).await.expect("held to the end") }
    });
}

#[test]
fn work_under_a_lock_leaves_nothing_when_a_node_hangs() {
    dropped_everywhere(6, async |scene| {
        scene.warm_up().await;
        scene.at(1, |scene| scene.nodes.stop(1));
        let redlock = scene.redlock.clone();
        async move { redlock.using(R, async |_| sleep(2 * STEP).await).await.expect("held") }
    });
}

#[test]
fn work_under_a_lock_leaves_nothing_when_it_is_lost() {
    dropped_everywhere(25, async |scene| {
        scene.warm_up().await;
        // Renewed to the limit of its hold, or not even so far where time goes by in long steps.
        let acquire = scene.redlock.acquire(R).ttl(SHORT).auto_extend(SHORT);
        async move {
            let lost = acquire.using(async |_| pending::<()>().await).await;
            let lost = lost.expect_err("its time ends");
            let has_ended =
                matches!(lost, UsingError::Lost { reason: Loss::MaxHold | Loss::Expired });
            assert!(has_ended, "{lost:?}");
        }
    });
}

#[test]
fn a_close_goes_on() {
    dropped_everywhere(3, async |scene| {
        drop(scene.held().await);
        let redlock = scene.redlock.clone();
        async move { redlock.close().await.expect("all nodes are well") }
    });
}

#[test]
fn a_close_goes_on_when_a_node_hangs() {
    dropped_everywhere(5, async |scene| {
        let lease = scene.held().await;
        scene.nodes.stop(1);
        drop(lease);
        let redlock = scene.redlock.clone();
        async move { redlock.close().await.expect_err("a node does not answer") }
    });
}

#[test]
fn a_close_goes_on_when_a_node_resumes() {
    dropped_everywhere(6, async |scene| {
        let lease = scene.held().await;
        scene.nodes.stop(1);
        drop(lease);
        scene.at(3, |scene| scene.nodes.heal());
        let redlock = scene.redlock.clone();
        async move { redlock.close().await.expect("it resumes in time") }
    });
}
