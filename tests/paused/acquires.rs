//! Acquires that are dropped wherever they wait.

use crate::dropping::dropped_everywhere;
use crate::nodes::R;
use crate::scene::Scene;
use crate::stage::eventually;
use crate::{LONG, STEP};
use quorlock::{Acquire, AcquireError, Lease, RetryPolicy};
use quorlock_test::pending_work;

async fn won(acquire: Acquire) -> Lease {
    acquire.await.expect("free, or free in time")
}

async fn contended(acquire: Acquire) {
    let refused = acquire.await.expect_err("it is held");
    assert!(matches!(refused, AcquireError::Contended { .. }), "{refused:?}");
}

async fn unreachable(acquire: Acquire) {
    let refused = acquire.await.expect_err("too few nodes answer");
    assert!(matches!(refused, AcquireError::NoQuorum { .. }), "{refused:?}");
}

/// An acquire that others are ahead of or behind.
fn patient(scene: &Scene) -> Acquire {
    scene.redlock.acquire(R).wait(LONG)
}

/// Others hold the lock, and somebody in this process asks for it.
async fn line_up(scene: &Scene) {
    scene.warm_up().await;
    scene.nodes.hold_elsewhere();
    scene.wait_too();
    let nobody = || (pending_work(&scene.redlock).waiters == 0).then(|| "nobody waits".into());
    eventually(&scene.nodes, nobody).await;
}

#[test]
fn a_first_try_leaves_nothing() {
    dropped_everywhere(7, async |scene| won(scene.redlock.try_acquire(R)));
}

#[test]
fn a_try_on_connected_nodes_leaves_nothing() {
    dropped_everywhere(3, async |scene| {
        scene.warm_up().await;
        won(scene.redlock.try_acquire(R))
    });
}

#[test]
fn a_fenced_try_leaves_nothing() {
    dropped_everywhere(3, async |scene| {
        scene.warm_up().await;
        won(scene.redlock.try_acquire(R).fenced())
    });
}

#[test]
fn a_fenced_try_whose_token_takes_a_second_round_leaves_nothing() {
    dropped_everywhere(4, async |scene| {
        scene.warm_up().await;
        scene.nodes.disagree();
        won(scene.redlock.try_acquire(R).fenced())
    });
}

#[test]
fn a_fenced_wait_whose_token_takes_a_second_round_leaves_nothing() {
    dropped_everywhere(12, async |scene| {
        scene.nodes.hold_elsewhere();
        scene.nodes.disagree();
        scene.at(3, |scene| scene.nodes.release_elsewhere());
        won(patient(scene).fenced())
    });
}

#[test]
fn a_try_that_is_refused_leaves_nothing() {
    dropped_everywhere(7, async |scene| {
        scene.nodes.hold_elsewhere();
        contended(scene.redlock.try_acquire(R))
    });
}

#[test]
fn a_first_try_leaves_nothing_when_a_node_hangs() {
    dropped_everywhere(10, async |scene| {
        scene.nodes.stop(1);
        won(scene.redlock.try_acquire(R))
    });
}

#[test]
fn a_try_leaves_nothing_when_a_node_begins_to_hang() {
    dropped_everywhere(3, async |scene| {
        scene.warm_up().await;
        scene.nodes.stop(1);
        won(scene.redlock.try_acquire(R))
    });
}

#[test]
fn a_try_leaves_nothing_when_a_majority_hangs() {
    dropped_everywhere(6, async |scene| {
        scene.warm_up().await;
        scene.nodes.stop(0);
        scene.nodes.stop(2);
        unreachable(scene.redlock.try_acquire(R))
    });
}

#[test]
fn a_first_try_leaves_nothing_when_a_node_is_dead() {
    dropped_everywhere(7, async |scene| {
        scene.nodes.kill(1);
        won(scene.redlock.try_acquire(R))
    });
}

#[test]
fn a_try_leaves_nothing_when_a_node_dies() {
    dropped_everywhere(3, async |scene| {
        scene.warm_up().await;
        scene.nodes.kill(1);
        won(scene.redlock.try_acquire(R))
    });
}

#[test]
fn a_wait_for_a_lock_that_others_release_leaves_nothing() {
    dropped_everywhere(12, async |scene| {
        scene.nodes.hold_elsewhere();
        scene.at(3, |scene| scene.nodes.release_elsewhere());
        won(patient(scene))
    });
}

#[test]
fn a_wait_for_a_lock_that_expires_leaves_nothing() {
    dropped_everywhere(6, async |scene| {
        scene.warm_up().await;
        scene.nodes.hold_elsewhere();
        scene.at(3, |scene| scene.nodes.expire_elsewhere());
        won(patient(scene))
    });
}

#[test]
fn a_wait_that_ends_without_the_lock_leaves_nothing() {
    dropped_everywhere(8, async |scene| {
        scene.warm_up().await;
        scene.nodes.hold_elsewhere();
        let retry = RetryPolicy::fixed(4 * STEP);
        contended(scene.redlock.acquire(R).wait(10 * STEP).retry(retry))
    });
}

#[test]
fn a_wait_leaves_nothing_when_a_node_hangs() {
    dropped_everywhere(6, async |scene| {
        scene.warm_up().await;
        scene.nodes.hold_elsewhere();
        scene.nodes.stop(1);
        scene.at(3, |scene| scene.nodes.release_elsewhere());
        won(patient(scene))
    });
}

#[test]
fn a_wait_in_line_leaves_nothing() {
    dropped_everywhere(4, async |scene| {
        line_up(scene).await;
        scene.at(0, |scene| scene.nodes.release_elsewhere());
        won(patient(scene))
    });
}

#[test]
fn a_wait_in_line_that_ends_there_leaves_nothing() {
    dropped_everywhere(9, async |scene| {
        line_up(scene).await;
        contended(scene.redlock.acquire(R).wait(10 * STEP))
    });
}

#[test]
fn a_wait_that_others_stand_behind_lets_them_pass() {
    dropped_everywhere(7, async |scene| {
        scene.warm_up().await;
        scene.nodes.hold_elsewhere();
        scene.at(0, Scene::wait_too);
        scene.at(3, |scene| scene.nodes.release_elsewhere());
        won(patient(scene))
    });
}

#[test]
fn an_acquire_of_a_lease_that_is_kept_up_leaves_nothing() {
    dropped_everywhere(7, async |scene| won(scene.redlock.acquire(R).auto_extend(LONG)));
}
