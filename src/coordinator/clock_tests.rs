//! Tests of nodes whose clocks step forward or run fast: their grants count later, or do not count at all.

use super::AcquireRequest;
use super::world_calls_tests::{TTL, keys, request, waiting};
use super::world_tests::{HostState, World, ms};
use crate::observe::VoteEligibility;
use crate::protocol::RetryPolicy;
use crate::wire::NodeFailure;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn clock_step_just_before_a_grant_is_noticed() {
    let mut world = World::new(3, 1);
    let [a, b] = [world.connected(), world.connected()];
    world.set_state(2, HostState::Down);
    let held = world.lock(a, request(&["k"]));
    world.set_state(2, HostState::Up);
    world.run_for(3 * SECOND);
    assert_eq!(world.copies("k"), 2);
    // The first pipeline of a connection always reads the clock, so the connection is used once before the clock steps.
    world.lock(b, request(&["other"]));
    world.run_for(ms(5));
    world.hosts[1].ahead_us += 9_500_000;
    let id = world.acquire(b, request(&["k"]));
    let failure = world.acquired(b, id).err();
    assert!(failure.is_some() && world.is_valid(&held), "two clients held the lock");
}

#[test]
fn client_that_only_reads_locks_notices_a_clock_step() {
    let mut world = World::new(3, 2);
    let a = world.connected();
    world.run_for(SECOND);
    world.hosts[0].ahead_us += 20_000_000;
    for _ in 0..7 {
        world.run_for(SECOND);
        let (coordinator, now) = world.coordinator(a);
        coordinator.handle_status(keys(&["k"]), None, now);
    }
    let (coordinator, now) = world.coordinator(a);
    let eligibility = coordinator.eligibility(World::node(0), now);
    assert!(matches!(eligibility, VoteEligibility::Deferred { .. }), "{eligibility:?}");
}

#[test]
fn node_with_a_fast_clock_does_not_count() {
    let mut world = World::new(3, 3);
    let a = world.connected();
    for _ in 0..12 {
        world.hosts[0].ahead_us += 30_000;
        let held = world.lock(a, request(&["k"]));
        world.release(&held);
        world.run_for(SECOND);
    }
    let (coordinator, now) = world.coordinator(a);
    let eligibility = coordinator.eligibility(World::node(0), now);
    let is_suspect = matches!(eligibility, VoteEligibility::Excluded(NodeFailure::Suspect { .. }));
    assert!(is_suspect, "{eligibility:?}");
    world.set_state(1, HostState::Down);
    let id = world.acquire(a, request(&["k"]));
    assert!(world.acquired(a, id).is_err());
}

#[test]
fn attempt_waits_for_deferred_grants_beyond_the_node_timeout() {
    let mut world = World::new(3, 4);
    let a = world.connected();
    world.run_for(SECOND);
    for host in 0..2 {
        world.hosts[host].ahead_us += 400_000;
    }
    let began = world.now;
    let held = world.lock(a, request(&["k"]));
    let took = world.now.since(began);
    assert!(took >= ms(300) && took < ms(500), "{took:?}");
    assert!(world.is_valid(&held));
}

#[test]
fn acquire_tries_again_when_an_excluded_node_counts_again() {
    let mut world = World::new(3, 5);
    let a = world.connected();
    let schedule = RetryPolicy::fixed(30 * SECOND).schedule();
    world.restart(1);
    world.set_state(2, HostState::Down);
    world.run_for(2 * SECOND);
    let began = world.now;
    let request = waiting(&["k"], began, 600 * SECOND);
    let id = world.acquire(a, AcquireRequest { schedule, ..request });
    let held = world.acquired(a, id).expect("node 1 counts again");
    let (took, period) = (world.now.since(began), Duration::from_millis(62_200));
    assert!(took + 3 * SECOND > period && took < period, "{took:?}");
    assert!(world.is_valid(&held) && took > TTL);
}

/// The drift allowance of a TTL of 10 s is about 102 ms.
#[test]
fn keys_outlive_the_validity_after_steps_beyond_the_drift_allowance() {
    for (seed, step_ms) in [(6, 130), (7, 190), (8, 2_000)] {
        let mut world = World::new(3, seed);
        let a = world.connected();
        let held = world.lock(a, request(&["k"]));
        world.run_for(ms(5));
        for host in 0..2 {
            world.hosts[host].ahead_us += step_ms * 1_000;
        }
        world.run_until(world.now.after(TTL), |world| world.copies("k") < 2);
        assert!(!world.is_valid(&held), "after a step of {step_ms} ms");
    }
}
