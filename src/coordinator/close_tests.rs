//! Tests of closing a client: leases are released, acquires fail, and undelivered releases are reported.

use super::world_calls_tests::{keys, renewed, request, waiting};
use super::world_tests::{HostState, World, ms};
use super::{AcquireFailure, AcquireRequest, Completion, PeriodRequest};
use crate::protocol::{LeaseStatus, Loss, Outcome, Time, Ttl};
use crate::wire::{PeriodStep, PeriodUpdate};
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn close_releases_leases_and_fails_acquires() {
    let mut world = World::new(3, 16);
    let [a, b] = [world.connected(), world.connected()];
    let blocking = world.lock(b, request(&["other"]));
    let held = world.lock(a, renewed(&["k"]));
    let id = world.acquire(a, waiting(&["other"], world.now, 60 * SECOND));
    world.run_for(ms(10));
    let (coordinator, now) = world.coordinator(a);
    coordinator.handle_close(SECOND, now);
    let failure = world.acquired(a, id).err();
    assert!(matches!(failure, Some(AcquireFailure::Closed)), "{failure:?}");
    assert_eq!(world.now, now, "at once");
    world.run_for(ms(10));
    let is_closed = |it: &Completion| matches!(it, Completion::Closed(Ok(())));
    assert!(world.processes[a].completions.iter().any(is_closed));
    assert_eq!((world.copies("k"), world.is_valid(&held)), (0, false));
    assert_eq!(world.losses(a), [LeaseStatus::Lost(Loss::Closed)]);
    assert!(world.connections(a).is_empty(), "its connections are closed");
    let id = world.acquire(a, request(&["k"]));
    assert!(matches!(world.acquired(a, id), Err(AcquireFailure::Closed)));
    world.release(&blocking);
    world.run_for(ms(10));
    world.assert_idle();
}

#[test]
fn close_reports_releases_that_are_not_delivered_in_time() {
    let mut world = World::new(3, 17);
    let a = world.connected();
    let held = world.lock(a, request(&["k"]));
    world.run_for(ms(5));
    world.set_state(2, HostState::Hung);
    held.shared.end(world.now);
    let (coordinator, now) = world.coordinator(a);
    coordinator.handle_drop(held.id, now);
    world.run_for(ms(1));
    let (coordinator, now) = world.coordinator(a);
    coordinator.handle_close(ms(200), now);
    world.run_for(ms(300));
    let remains = world.processes[a].completions.iter().find_map(|it| match it {
        Completion::Closed(Err(remains)) => Some(remains.pending_releases.to_vec()),
        _ => None,
    });
    assert_eq!(remains, Some(vec![0, 0, 1]));
    world.set_state(2, HostState::Up);
    world.run_for(20 * SECOND);
    assert_eq!(world.copies("k"), 0);
    world.assert_idle();
}

#[test]
fn release_all_releases_every_lease_once() {
    let mut world = World::new(3, 18);
    let a = world.connected();
    let held = [world.lock(a, request(&["k"])), world.lock(a, request(&["l", "m"]))];
    let (coordinator, now) = world.coordinator(a);
    assert_eq!(coordinator.leases().count(), 2);
    let released = coordinator.handle_release_all(now);
    assert_eq!(released.iter().map(|(key, _)| &**key).collect::<Vec<_>>(), [b"k", b"l"]);
    world.run_for(ms(10));
    for (_, released) in released {
        let is_released = |it: &&Completion| {
            matches!(it, Completion::Released { call, outcome: Outcome::Won, replies }
                if *call == released && replies.report(Time::default()).granted() >= 2)
        };
        assert_eq!(world.processes[a].completions.iter().filter(is_released).count(), 1);
    }
    assert!(held.iter().all(|held| !world.is_valid(held)));
    let (coordinator, now) = world.coordinator(a);
    assert_eq!(coordinator.handle_release(held[0].id, None, now), None, "released before");
    world.assert_idle();
}

#[test]
fn close_waits_for_the_releases_of_a_stalled_node() {
    let mut world = World::new(3, 19);
    let a = world.connected();
    let held = world.lock(a, request(&["k"]));
    world.run_for(ms(5));
    world.set_state(2, HostState::Hung);
    world.lock(a, request(&["l"]));
    world.run_for(ms(100));
    held.shared.end(world.now);
    let (coordinator, now) = world.coordinator(a);
    coordinator.handle_drop(held.id, now);
    coordinator.handle_close(5 * SECOND, now);
    world.run_for(ms(300));
    let is_closed = |world: &World| {
        let mut completions = world.processes[a].completions.iter();
        completions.any(|it| matches!(it, Completion::Closed(Ok(()))))
    };
    assert!(!is_closed(&world));
    world.set_state(2, HostState::Up);
    world.run_for(ms(100));
    assert!(is_closed(&world));
    assert_eq!((world.copies("k"), world.copies("l")), (0, 0));
    world.assert_idle();
}

#[test]
fn close_waits_for_releases_on_a_broken_connection() {
    let mut world = World::new(3, 20);
    let a = world.connected();
    let held = world.lock(a, request(&["k"]));
    world.run_for(ms(5));
    world.set_state(2, HostState::Hung);
    held.shared.end(world.now);
    let (coordinator, now) = world.coordinator(a);
    coordinator.handle_drop(held.id, now);
    world.run_for(ms(5));
    world.set_state(2, HostState::Down);
    world.run_for(ms(5));
    let (coordinator, now) = world.coordinator(a);
    coordinator.handle_close(10 * SECOND, now);
    world.run_for(ms(300));
    assert_eq!(closed(&world, a), [false; 0]);
    world.set_state(2, HostState::Up);
    world.run_for(8 * SECOND);
    assert_eq!((closed(&world, a), world.copies("k")), (vec![true], 0));
    world.assert_idle();
}

fn closed(world: &World, process: usize) -> Vec<bool> {
    let closed = |it: &Completion| match it {
        Completion::Closed(result) => Some(result.is_ok()),
        _ => None,
    };
    world.processes[process].completions.iter().filter_map(closed).collect()
}

#[test]
fn untaken_lease_has_no_minimum_hold_time_at_close() {
    let mut world = World::new(3, 3);
    let a = world.connected();
    let request = AcquireRequest { at_least: 30 * SECOND, ..request(&["k"]) };
    let id = world.acquire(a, request);
    world.run_for(ms(5));
    assert!(matches!(world.take_acquired(a, id), Some(Ok(_))));
    let (coordinator, now) = world.coordinator(a);
    coordinator.handle_close(SECOND, now);
    world.run_for(ms(10));
    assert!(matches!(world.take_acquired(a, id), Some(Err(AcquireFailure::Closed))));
    assert_eq!(world.copies("k"), 0);
}

#[test]
fn close_does_not_wait_for_commands_that_are_not_releases() {
    let mut world = World::new(3, 4);
    world.set_state(2, HostState::Hung);
    let a = world.process();
    let held = world.lock(a, request(&["k"]));
    world.release(&held);
    world.run_for(ms(10));
    // The cancelled acquire command still waits for the connection to the third node.
    let (coordinator, now) = world.coordinator(a);
    assert_eq!(coordinator.pending_releases(World::node(2)), 0);
    coordinator.handle_close(ms(200), now);
    world.run_for(ms(1));
    assert_eq!(closed(&world, a), [true]);
}

#[test]
fn close_does_not_wait_for_a_status_request() {
    let mut world = World::new(3, 5);
    let a = world.connected();
    world.set_state(2, HostState::Hung);
    let (coordinator, now) = world.coordinator(a);
    coordinator.handle_status(keys(&["k"]), None, now);
    world.run_for(ms(10));
    let (coordinator, now) = world.coordinator(a);
    coordinator.handle_close(ms(200), now);
    world.run_for(ms(300));
    assert_eq!(closed(&world, a), [true], "no release is pending");
}

#[test]
fn each_close_is_answered() {
    let mut world = World::new(3, 6);
    let a = world.connected();
    let (coordinator, now) = world.coordinator(a);
    coordinator.handle_close(SECOND, now);
    world.run_for(ms(10));
    assert_eq!(closed(&world, a), [true]);
    let (coordinator, now) = world.coordinator(a);
    coordinator.handle_acquire(request(&["k"]), now);
    coordinator.handle_close(SECOND, now);
    world.run_for(ms(10));
    assert_eq!(closed(&world, a), [true, true]);
}

#[test]
fn ready_ends_with_the_close_of_the_client() {
    let mut world = World::new(3, 7);
    for host in 0..3 {
        world.set_state(host, HostState::Down);
    }
    let a = world.process();
    let (coordinator, now) = world.coordinator(a);
    coordinator.handle_ready(now);
    world.run_for(ms(10));
    let (coordinator, now) = world.coordinator(a);
    coordinator.handle_close(SECOND, now);
    world.run_for(ms(10));
    assert_eq!(closed(&world, a), [true]);
    // A call to `handle_ready` after the close must complete as well.
    world.processes[a].completions.clear();
    let (coordinator, now) = world.coordinator(a);
    coordinator.handle_ready(now);
    world.run_for(ms(200));
    assert!(!world.processes[a].completions.is_empty(), "ready never ends");
}

#[test]
fn close_ends_requests_without_a_lease() {
    let mut world = World::new(3, 90);
    let a = world.connected();
    (0..3).for_each(|node| world.set_state(node, HostState::Hung));
    let mut calls = Vec::new();
    let (coordinator, now) = world.coordinator(a);
    // The second requests begin when the client is closed already.
    for _ in 0..2 {
        calls.push(coordinator.handle_status(keys(&["k"]), None, now));
        calls.push(coordinator.handle_force_release(keys(&["k"]), now));
        let update = PeriodUpdate {
            number: 7,
            begins_us: 0,
            ttl: Ttl::SHORTEST,
            step: PeriodStep::Begin,
            record: None,
        };
        let (keys, update, timeout) = (keys(&["k"]), Arc::new(update), SECOND);
        calls.push(coordinator.handle_period(PeriodRequest { keys, update, timeout }, now));
        coordinator.handle_close(SECOND, now);
    }
    assert_eq!(calls.len(), 6);
    world.run_for(ms(1));
    let is_cut_off = |call| {
        let mut completions = world.processes[a].completions.iter();
        completions.any(|it| matches!(it, Completion::CutOff { call: ended } if *ended == call))
    };
    assert!(calls.into_iter().all(is_cut_off));
    (0..3).for_each(|node| world.set_state(node, HostState::Up));
    world.run_for(SECOND);
    world.assert_idle();
}
