//! Tests of acquired leases that callers take late or never, because they do not poll the acquire.

use super::world_calls_tests::{request, waiting};
use super::world_tests::{World, ms};
use super::{AcquireFailure, AcquireRequest, Completion};
use crate::protocol::LeaseStatus;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn lease_that_is_not_taken_passes_to_another_acquire() {
    let mut world = World::new(3, 14);
    let a = world.connected();
    let now = world.now;
    let slow = world.acquire(a, waiting(&["k"], now, 60 * SECOND));
    world.run_for(ms(5));
    let first = world.take_acquired(a, slow).expect("delivered").expect("acquired");
    let other = world.acquire(a, waiting(&["k"], now, 60 * SECOND));
    world.run_for(ms(1_900));
    assert!(world.take_acquired(a, other).is_none() && world.is_valid(&first));
    let second = world.acquired(a, other).expect("the first lease was revoked");
    assert!(world.now.since(now) < ms(2_100));
    assert!(!first.shared.take(world.now), "revoked");
    let (coordinator, now) = world.coordinator(a);
    coordinator.handle_untaken(slow, now);
    world.release(&second);
    let third = world.acquired(a, slow).expect("the slow acquire tries again");
    world.release(&third);
    world.run_for(ms(10));
    world.assert_idle();
}

#[test]
fn acquire_with_revoked_lease_waits_for_its_next_poll() {
    let mut world = World::new(3, 16);
    let a = world.connected();
    let now = world.now;
    let set = world.acquire(a, waiting(&["j", "k"], now, 60 * SECOND));
    world.run_for(ms(5));
    for _ in 0..3 {
        let other = world.acquire(a, waiting(&["k"], world.now, 9 * SECOND));
        let held = world.acquired(a, other).expect("the lease of the set was revoked");
        world.release(&held);
    }
    assert!(world.now.since(now) < ms(2_100));
    assert!(world.take_acquired(a, set).is_some() && world.take_acquired(a, set).is_none());
    let (coordinator, now) = world.coordinator(a);
    coordinator.handle_untaken(set, now);
    let held = world.acquired(a, set).expect("the lock is free");
    world.release(&held);
    world.run_for(ms(10));
    world.assert_idle();
}

#[test]
fn consecutive_untaken_leases_are_revoked_sooner() {
    let mut world = World::new(3, 20);
    let a = world.connected();
    let now = world.now;
    // Two groups of 30 callers that never take their lease, each followed by a caller that takes its lease at once.
    let ids: Vec<_> =
        (0..62).map(|_| world.acquire(a, waiting(&["k"], now, 60 * SECOND))).collect();
    for id in [ids[30], ids[61]] {
        let began = world.now;
        let is_won =
            |it: &Completion| matches!(it, Completion::Acquired { acquire, .. } if *acquire == id);
        let is_over = |world: &World| world.processes[a].completions.iter().any(is_won);
        assert!(world.run_until(began.after(60 * SECOND), is_over), "its turn comes");
        let held = world.take_acquired(a, id).expect("delivered").expect("acquired");
        assert!(held.shared.take(world.now));
        let waited = world.now.since(began);
        assert!(waited > 3 * SECOND && waited < 6 * SECOND, "{waited:?}");
        world.release(&held);
    }
}

#[test]
fn caller_that_polls_late_restores_the_untaken_lease_limit() {
    let mut world = World::new(3, 21);
    let a = world.connected();
    let now = world.now;
    let ids = [(); 3].map(|()| world.acquire(a, waiting(&["k"], now, 60 * SECOND)));
    world.run_for(ms(2_500));
    // The first lease was revoked, which halved the limit for the second lease.
    assert!(world.take_acquired(a, ids[0]).is_some() && world.take_acquired(a, ids[1]).is_some());
    let (coordinator, late) = world.coordinator(a);
    coordinator.handle_untaken(ids[0], late);
    world.run_for(ms(1_200));
    assert!(world.take_acquired(a, ids[2]).is_none(), "the second lease has the full limit again");
    assert!(world.acquired(a, ids[2]).is_ok());
    assert!(world.now.since(late) < ms(1_600));
}

#[test]
fn untaken_lease_ends_at_the_deadline_of_its_acquire() {
    let mut world = World::new(3, 17);
    let [a, b] = [world.connected(), world.connected()];
    let now = world.now;
    let slow = world.acquire(a, waiting(&["k"], now, 4 * SECOND));
    world.run_for(ms(5));
    let other = world.acquire(b, waiting(&["k"], now, 9 * SECOND));
    let held = world.acquired(b, other).expect("the first lease has ended");
    assert!(world.now.since(now) >= 4 * SECOND && world.now.since(now) < ms(4_100));
    world.release(&held);
    assert!(world.take_acquired(a, slow).expect("delivered").is_ok());
    let failure = world.take_acquired(a, slow).expect("failed").err();
    assert!(matches!(failure, Some(AcquireFailure::NotTaken { .. })), "{failure:?}");
}

#[test]
fn lease_that_is_never_taken_ends_with_its_validity() {
    let mut world = World::new(3, 15);
    let a = world.connected();
    let id = world.acquire(a, request(&["k"]));
    world.run_for(11 * SECOND);
    let held = world.take_acquired(a, id).expect("delivered").expect("acquired");
    assert!(!held.shared.take(world.now) && !world.is_valid(&held));
    let failure = world.take_acquired(a, id).expect("failed").err();
    let Some(AcquireFailure::NotTaken { report }) = failure else { panic!("{failure:?}") };
    assert_eq!(report.granted(), 3);
    world.assert_idle();
}

#[test]
fn untaken_lease_is_kept_while_no_other_acquire_wants_it() {
    let mut world = World::new(3, 11);
    let a = world.connected();
    let id = world.acquire(a, waiting(&["k"], world.now, 60 * SECOND));
    world.run_for(9 * SECOND);
    let held = world.take_acquired(a, id).expect("delivered").expect("acquired");
    assert!(world.is_valid(&held) && held.shared.take(world.now));
}

#[test]
fn untaken_lease_is_revoked_without_its_minimum_hold_time() {
    let mut world = World::new(3, 12);
    let a = world.connected();
    let now = world.now;
    let request = waiting(&["k"], now, 60 * SECOND);
    let slow = world.acquire(a, AcquireRequest { at_least: 20 * SECOND, ..request });
    world.run_for(ms(5));
    let other = world.acquire(a, waiting(&["k"], now, 60 * SECOND));
    let held = world.acquired(a, other).expect("the first lease was revoked");
    assert!(world.is_valid(&held) && world.now.since(now) < ms(2_100));
    assert!(world.take_acquired(a, slow).is_some());
}

#[test]
fn renewed_lease_that_is_about_to_end_is_not_handed_out() {
    let mut world = World::new(3, 18);
    let a = world.connected();
    let renewed =
        AcquireRequest { max_hold: Some(60 * SECOND), ..waiting(&["k"], world.now, 60 * SECOND) };
    let id = world.acquire(a, renewed);
    world.run_for(ms(5));
    let held = world.take_acquired(a, id).expect("delivered").expect("acquired");
    let LeaseStatus::Held { valid_until } = held.shared.status(world.now) else { panic!("held") };
    world.run_for(valid_until.before(ms(1)).since(world.now));
    assert!(!held.shared.take(world.now));
    let (coordinator, now) = world.coordinator(a);
    coordinator.handle_untaken(id, now);
    let held = world.acquired(a, id).expect("the acquire tries again");
    assert!(world.is_valid(&held));
}
