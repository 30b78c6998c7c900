//! The end of the runtime that served the connections.

use super::completion::AcquireFailure;
use super::world_calls_tests::request;
use super::world_tests::World;
use crate::protocol::Refusal;

/// Ends the runtime of all connections of `process`.
fn end_runtime(world: &mut World, process: usize, is_next: bool) {
    for node in 0..3 {
        let (coordinator, now) = world.coordinator(process);
        coordinator.handle_runtime_end(World::node(node), is_next, now);
    }
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
    world.run_for(super::world_tests::ms(100));
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
