//! Tests of acquired leases that callers take late or never, because they do not poll the acquire.

use super::world_calls_tests::{request, ttl, waiting};
use super::world_tests::{World, ms};
use super::{AcquireFailure, AcquireRequest};
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
fn lease_that_is_not_taken_passes_to_another_client() {
    let mut world = World::new(3, 17);
    let [a, b] = [world.connected(), world.connected()];
    let now = world.now;
    let request = AcquireRequest { ttl: ttl(30 * SECOND), ..waiting(&["k"], now, 4 * SECOND) };
    let slow = world.acquire(a, request);
    world.run_for(ms(5));
    let other = world.acquire(b, waiting(&["k"], now, 9 * SECOND));
    let held = world.acquired(b, other).expect("the first lease was revoked");
    assert!(world.now.since(now) >= 2 * SECOND && world.now.since(now) < ms(2_100));
    assert!(world.take_acquired(a, slow).expect("delivered").is_ok());
    // The caller is polled, and the acquire continues.
    let (coordinator, late) = world.coordinator(a);
    coordinator.handle_untaken(slow, late);
    world.release(&held);
    let held = world.acquired(a, slow).expect("the slow acquire tries again");
    world.release(&held);
    world.run_for(ms(10));
    world.assert_idle();
}

#[test]
fn acquire_whose_lease_was_not_taken_fails_at_its_deadline() {
    let mut world = World::new(3, 19);
    let a = world.connected();
    let slow = world.acquire(a, waiting(&["k"], world.now, 3 * SECOND));
    world.run_for(ms(2_100));
    assert!(world.take_acquired(a, slow).expect("delivered").is_ok());
    assert!(world.copies("k") == 0 && world.take_acquired(a, slow).is_none());
    world.run_for(SECOND);
    let failure = world.take_acquired(a, slow).expect("failed").err();
    assert!(matches!(failure, Some(AcquireFailure::NotTaken { .. })), "{failure:?}");
}

#[test]
fn single_attempt_whose_lease_is_not_taken_fails() {
    // The lease is revoked after two seconds, or when its validity ends.
    for (lasts, until_ms) in [(10 * SECOND, 2_000), (SECOND, 988)] {
        let mut world = World::new(3, 15);
        let a = world.connected();
        let id = world.acquire(a, AcquireRequest { ttl: ttl(lasts), ..request(&["k"]) });
        world.run_for(ms(until_ms - 10));
        let held = world.take_acquired(a, id).expect("delivered").expect("acquired");
        assert!(world.is_valid(&held) && world.take_acquired(a, id).is_none());
        world.run_for(ms(20));
        assert!(!held.shared.take(world.now) && world.copies("k") == 0);
        let failure = world.take_acquired(a, id).expect("failed").err();
        let Some(AcquireFailure::NotTaken { report }) = failure else { panic!("{failure:?}") };
        assert_eq!(report.granted(), 3);
        world.assert_idle();
    }
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
    let id = world.acquire(a, AcquireRequest { ttl: ttl(ms(1_500)), ..renewed });
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
