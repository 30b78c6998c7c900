//! Tests in which a lease's future, or the close of a client, is dropped at every await point.

use crate::dropping::drop_at_every_point;
use crate::nodes::R;
use crate::{LONG, STEP};
use quorlock::{ExtendError, Lease, Loss, ReleaseError, ReleaseOutcome, UsingError};
use std::future::pending;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::sleep;

/// A TTL that is short enough for a test to reach the end of the lease.
const SHORT: Duration = Duration::from_mins(1);

async fn extended(lease: Rc<Lease>) {
    lease.extend(2 * LONG).await.expect("a quorum is up");
    assert!(lease.validity() > LONG);
}

async fn released(lease: Lease) {
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
}

#[test]
fn dropped_extension_keeps_the_lease() {
    drop_at_every_point(3, async |scenario| extended(scenario.keep(scenario.held().await)));
}

#[test]
fn dropped_extension_keeps_the_lease_when_a_node_hangs() {
    drop_at_every_point(3, async |scenario| {
        let lease = scenario.keep(scenario.held().await);
        scenario.nodes.stop(1);
        extended(lease)
    });
}

#[test]
fn dropped_extension_keeps_the_lease_when_a_majority_hangs() {
    drop_at_every_point(6, async |scenario| {
        let lease = scenario.keep(scenario.held().await);
        scenario.nodes.stop(0);
        scenario.nodes.stop(2);
        async move {
            let failed = lease.extend(2 * LONG).await.expect_err("no quorum of nodes answers");
            assert!(matches!(failed, ExtendError::NoQuorum { .. }), "{failed:?}");
            assert!(lease.is_valid());
        }
    });
}

#[test]
fn dropped_release_continues() {
    drop_at_every_point(3, async |scenario| released(scenario.held().await));
}

#[test]
fn dropped_release_continues_when_a_node_hangs() {
    drop_at_every_point(3, async |scenario| {
        let lease = scenario.held().await;
        scenario.nodes.stop(1);
        released(lease)
    });
}

#[test]
fn dropped_release_continues_when_a_majority_hangs() {
    drop_at_every_point(6, async |scenario| {
        let lease = scenario.held().await;
        scenario.nodes.stop(0);
        scenario.nodes.stop(2);
        async move {
            let failed = lease.release().await.expect_err("no quorum of nodes answers");
            assert!(matches!(failed, ReleaseError::NoQuorum { .. }), "{failed:?}");
        }
    });
}

#[test]
fn dropped_release_lets_waiting_acquires_pass() {
    drop_at_every_point(3, async |scenario| {
        let lease = scenario.held().await;
        scenario.spawn_waiter();
        released(lease)
    });
}

#[test]
fn dropped_lost_future_keeps_the_lease() {
    drop_at_every_point(16, async |scenario| {
        scenario.warm_up().await;
        let lease = scenario.lease(scenario.redlock.try_acquire(R).ttl(SHORT)).await;
        let lease = scenario.keep(lease);
        async move { assert_eq!(lease.lost().await, Loss::Expired) }
    });
}

#[test]
fn dropped_lost_future_keeps_a_renewed_lease() {
    drop_at_every_point(28, async |scenario| {
        scenario.warm_up().await;
        let acquire = scenario.redlock.try_acquire(R).ttl(SHORT).auto_extend(2 * SHORT);
        let lease = scenario.keep(scenario.lease(acquire).await);
        async move { lease.lost().await }
    });
}

#[test]
fn dropped_work_leaves_nothing() {
    drop_at_every_point(18, async |scenario| {
        scenario.nodes.hold_by_other();
        scenario.schedule(1, |scenario| scenario.nodes.release_by_other());
        let acquire = scenario.redlock.acquire(R).wait(LONG);
        let work = async |lease: &Lease| {
            sleep(2 * STEP).await;
            lease.extend(2 * LONG).await.expect("nodes are up");
            sleep(2 * STEP).await;
        };
        async move { acquire.using(work).await.expect("the lease is valid to the end") }
    });
}

#[test]
fn dropped_work_leaves_nothing_when_a_node_hangs() {
    drop_at_every_point(6, async |scenario| {
        scenario.warm_up().await;
        scenario.schedule(1, |scenario| scenario.nodes.stop(1));
        let redlock = scenario.redlock.clone();
        async move {
            redlock.using(R, async |_| sleep(2 * STEP).await).await.expect("the lease stays valid");
        }
    });
}

#[test]
fn dropped_work_leaves_nothing_when_its_lease_is_lost() {
    drop_at_every_point(25, async |scenario| {
        scenario.warm_up().await;
        // The lease is renewed until its maximum hold time. If the clocks advance in long steps, it can expire
        // earlier.
        let acquire = scenario.redlock.acquire(R).ttl(SHORT).auto_extend(SHORT);
        async move {
            let lost = acquire.using(async |_| pending::<()>().await).await;
            let lost = lost.expect_err("the lease ends");
            let has_ended =
                matches!(lost, UsingError::Lost { reason: Loss::MaxHold | Loss::Expired });
            assert!(has_ended, "{lost:?}");
        }
    });
}

#[test]
fn dropped_close_continues() {
    drop_at_every_point(3, async |scenario| {
        drop(scenario.held().await);
        let redlock = scenario.redlock.clone();
        async move { redlock.close().await.expect("nodes are up") }
    });
}

#[test]
fn dropped_close_continues_when_a_node_hangs() {
    drop_at_every_point(5, async |scenario| {
        let lease = scenario.held().await;
        scenario.nodes.stop(1);
        drop(lease);
        let redlock = scenario.redlock.clone();
        async move { redlock.close().await.expect_err("one node hangs") }
    });
}

#[test]
fn dropped_close_continues_when_a_node_resumes() {
    drop_at_every_point(6, async |scenario| {
        let lease = scenario.held().await;
        scenario.nodes.stop(1);
        drop(lease);
        scenario.schedule(3, |scenario| scenario.nodes.heal());
        let redlock = scenario.redlock.clone();
        async move { redlock.close().await.expect("the node resumes in time") }
    });
}
