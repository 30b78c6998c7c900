//! Tests of acquires and releases that are in progress when the client's runtime shuts down.

use super::completion::{AcquireFailure, Completion};
use super::slots::RoundId;
use super::world_calls_tests::{Held, keys, request, ttl};
use super::world_tests::{HostState, NODE_TIMEOUT, World, ms};
use crate::protocol::{Extended, Outcome, Refusal, Ttl};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn end_runtime(world: &mut World, process: usize, is_next: bool) {
    let (coordinator, now) = world.coordinator(process);
    coordinator.handle_runtime_end(is_next, now);
}

#[test]
fn attempt_starts_again_on_the_next_runtime() {
    let mut world = World::new(3, 21);
    let a = world.connected();
    let id = world.acquire(a, request(&["k"]));
    world.turn();
    end_runtime(&mut world, a, true);
    let held = world.acquired(a, id).expect("the lock is free");
    world.release(&held);
    world.run_for(ms(100));
    assert_eq!(world.copies("k"), 0);
    world.assert_idle();
}

#[test]
fn acquire_fails_when_no_other_runtime_follows() {
    let mut world = World::new(3, 22);
    let a = world.connected();
    let id = world.acquire(a, request(&["k"]));
    world.turn();
    end_runtime(&mut world, a, false);
    world.turn();
    let failure = world.take_acquired(a, id).expect("it has ended").err();
    let Some(AcquireFailure::Refused { refusal, report, .. }) = failure else {
        panic!("{failure:?}")
    };
    assert_eq!(refusal, Refusal::NoQuorum);
    assert!(report.to_string().contains("the runtime has shut down"), "{report}");
}

#[test]
fn release_under_way_is_confirmed_on_the_next_runtime() {
    for is_executed in [false, true] {
        let mut world = World::new(3, 23);
        let a = world.connected();
        let held = world.lock(a, request(&["k"]));
        let (coordinator, now) = world.coordinator(a);
        held.shared.end(now);
        let call = coordinator.handle_release(held.id, None, now).expect("it was not released");
        world.turn();
        if is_executed {
            world.run_until(now.after(ms(10)), |world| world.copies("k") == 0);
        }
        end_runtime(&mut world, a, true);
        world.run_for(ms(100));
        let is_released = |it: &Completion| matches!(it, Completion::Released { call: known, outcome: Outcome::Won, .. } if *known == call);
        assert!(world.processes[a].completions.iter().any(is_released), "{is_executed}");
        assert_eq!(world.copies("k"), 0);
        world.assert_idle();
    }
}

/// Releases the lock, and loses the replies to the release after all nodes have executed it: either the runtime ends, or
/// all connections break. `next` is the value that another client then sets.
fn lose_release_replies(
    world: &mut World,
    held: &Held,
    cool_down: Option<Ttl>,
    next: Option<&str>,
    is_cut: bool,
) -> RoundId {
    let process = held.process;
    held.shared.end(world.now);
    let (coordinator, now) = world.coordinator(process);
    let call = coordinator.handle_release(held.id, cool_down, now).expect("it was not released");
    world.turn();
    // The nodes execute the release, and the replies are delayed.
    for connection in world.connections(process) {
        world.hold_up(process, connection, SECOND);
    }
    world.run_for(ms(1));
    for host in 0..3 {
        if let Some(value) = next {
            world.put(host, "k", value, 60 * SECOND);
        }
        if is_cut {
            world.cut(host);
        }
    }
    if !is_cut {
        end_runtime(world, process, true);
    }
    world.run_for(ms(40));
    call
}

fn outcome(world: &World, process: usize, call: RoundId) -> Option<Outcome> {
    world.processes[process].completions.iter().find_map(|completion| match completion {
        Completion::Released { call: known, outcome, .. } if *known == call => Some(*outcome),
        _ => None,
    })
}

#[test]
fn repeated_release_of_a_valid_lease_is_no_loss() {
    for is_cut in [false, true] {
        for cool_down in [None, Some(ttl(20 * SECOND))] {
            for next in [None, Some("another client's value")] {
                let mut world = World::new(3, 24);
                let a = world.connected();
                world.run_for(2 * SECOND);
                let held = world.lock(a, request(&["k"]));
                world.run_for(ms(5));
                let call = lose_release_replies(&mut world, &held, cool_down, next, is_cut);
                let case = format!("cut: {is_cut}, cool-down: {cool_down:?}, next: {next:?}");
                assert_eq!(outcome(&world, a, call), Some(Outcome::Won), "{case}");
            }
        }
    }
}

#[test]
fn repeated_release_of_an_expired_lease_is_a_loss() {
    for (next, expected) in [(None, Outcome::Missing), (Some("other"), Outcome::Denied)] {
        for is_cut in [false, true] {
            let mut world = World::new(3, 25);
            let a = world.connected();
            let held = world.lock(a, request(&["k"]));
            world.run_for(11 * SECOND);
            let call = lose_release_replies(&mut world, &held, None, next, is_cut);
            assert_eq!(outcome(&world, a, call), Some(expected), "cut: {is_cut}");
        }
    }
}

#[test]
fn extension_under_way_succeeds_on_the_next_runtime() {
    let mut world = World::new(3, 26);
    let a = world.connected();
    let held = world.lock(a, request(&["k"]));
    let (coordinator, now) = world.coordinator(a);
    let call = coordinator.handle_extend(held.id, ttl(20 * SECOND), now).expect("it is held");
    world.turn();
    end_runtime(&mut world, a, true);
    world.run_for(ms(40));
    let [(known, extended)] = world.processes[a].extended[..] else { panic!("one extension") };
    assert!(known == call && matches!(extended, Extended::Until(_)), "{extended:?}");
}

#[test]
fn extension_has_a_new_timeout_on_a_new_runtime() {
    let mut world = World::new(3, 29);
    let a = world.connected();
    let held = world.lock(a, request(&["k"]));
    for host in 0..3 {
        world.set_state(host, HostState::Hung);
    }
    let (coordinator, now) = world.coordinator(a);
    coordinator.handle_extend(held.id, ttl(20 * SECOND), now).expect("it is held");
    world.run_for(NODE_TIMEOUT / 2);
    let (coordinator, now) = world.coordinator(a);
    coordinator.handle_new_runtime(now);
    world.run_for(ms(49));
    assert!(world.processes[a].extended.is_empty());
    world.run_for(ms(2));
    assert_eq!(world.processes[a].extended.len(), 1);
}

#[test]
fn status_under_way_is_answered_on_the_next_runtime() {
    let mut world = World::new(3, 27);
    let a = world.connected();
    let (coordinator, now) = world.coordinator(a);
    let call = coordinator.handle_status(keys(&["k"]), None, now);
    world.turn();
    end_runtime(&mut world, a, true);
    world.run_for(ms(40));
    let report = world.processes[a].completions.iter().find_map(|completion| match completion {
        Completion::Status { call: known, report, .. } if *known == call => Some(report),
        _ => None,
    });
    let report = report.expect("it is answered").to_string();
    assert!(!report.contains("shut down"), "{report}");
}

#[test]
fn shutdowns_do_not_delay_pending_releases() {
    let mut world = World::new(3, 28);
    let a = world.connected();
    let held = world.lock(a, request(&["k"]));
    world.run_for(ms(5));
    held.shared.end(world.now);
    let (coordinator, now) = world.coordinator(a);
    coordinator.handle_drop(held.id, now);
    for _ in 0..4 {
        world.turn();
        for host in 0..3 {
            world.lose_commands(host);
        }
        end_runtime(&mut world, a, true);
        let is_written = |world: &World| world.processes[a].coordinator.is_ready(world.now);
        assert!(world.run_until(world.now.after(SECOND), is_written));
    }
    world.run_for(ms(50));
    assert_eq!(world.copies("k"), 0);
    world.assert_idle();
}
