//! Tests of acquires and releases that are in progress when the client's runtime shuts down.

use super::completion::{AcquireFailure, Completion};
use super::world_calls_tests::request;
use super::world_tests::{World, ms};
use crate::protocol::{Outcome, Refusal};

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
