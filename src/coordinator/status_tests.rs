//! Tests of status requests and forced releases.

use super::world_calls_tests::{keys, request};
use super::world_tests::{HostState, World, ms};
use super::{ChangeId, Completion};
use crate::protocol::Ttl;
use crate::wire::CounterKeys;
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// The number of nodes that granted the forced release, once it has ended.
fn force_released(world: &World, process: usize) -> Option<usize> {
    world.processes[process].completions.iter().find_map(|it| match it {
        Completion::ForceReleased { report, .. } => Some(report.granted()),
        _ => None,
    })
}

fn has_changed(world: &World, process: usize, id: ChangeId) -> bool {
    let completions = &world.processes[process].completions;
    completions.iter().any(|it| matches!(it, Completion::Changed { request } if *request == id))
}

/// Reads the key with a subscription, after a request for its next change.
fn observe(world: &mut World, process: usize) -> ChangeId {
    let keys = keys(&["k"]);
    let counters = CounterKeys::for_keys(&keys, Ttl::SHORTEST).expect("a plain key");
    let (coordinator, now) = world.coordinator(process);
    let request = coordinator.handle_await_change(&keys);
    coordinator.handle_status(keys, Some(Arc::new(counters)), now);
    world.run_for(ms(5));
    request
}

#[test]
fn change_of_an_observed_key_is_reported_once() {
    let mut world = World::new(3, 5);
    let (a, b) = (world.connected(), world.connected());
    let (first, second) = (observe(&mut world, a), observe(&mut world, a));
    assert!(!has_changed(&world, a, first), "a read is no change");
    let held = world.lock(b, request(&["k"]));
    world.run_for(ms(5));
    assert!(has_changed(&world, a, first) && has_changed(&world, a, second));
    world.release(&held);
    world.run_for(ms(50));
    world.assert_idle();
}

#[test]
fn cancelled_request_for_a_change_leaves_nothing() {
    let mut world = World::new(3, 6);
    let a = world.connected();
    let request = observe(&mut world, a);
    let (coordinator, _) = world.coordinator(a);
    coordinator.handle_cancel_change(request);
    world.assert_idle();
    world.put(0, "k", "value", SECOND);
    world.run_for(ms(5));
    assert!(!has_changed(&world, a, request));
}

#[test]
fn closed_client_completes_requests_for_a_change() {
    let mut world = World::new(3, 8);
    let a = world.connected();
    let before = observe(&mut world, a);
    let (coordinator, now) = world.coordinator(a);
    coordinator.handle_close(SECOND, now);
    let after = coordinator.handle_await_change(&keys(&["k"]));
    world.run_for(ms(5));
    assert!(has_changed(&world, a, before) && has_changed(&world, a, after));
}

#[test]
fn forced_release_deletes_the_value_of_each_node() {
    let mut world = World::new(3, 1);
    let a = world.connected();
    for host in 0..3 {
        world.put(host, "k", &format!("value-{host}"), SECOND);
    }
    let (coordinator, now) = world.coordinator(a);
    coordinator.handle_force_release(keys(&["k"]), now);
    world.run_for(ms(5));
    assert_eq!((force_released(&world, a), world.copies("k")), (Some(3), 0));
    world.assert_idle();
}

#[test]
fn forced_release_does_not_delete_a_value_that_it_has_not_read() {
    let mut world = World::new(3, 2);
    let a = world.connected();
    for host in 0..3 {
        world.put(host, "k", "old", SECOND);
    }
    let (coordinator, now) = world.coordinator(a);
    coordinator.handle_force_release(keys(&["k"]), now);
    world.run_for(Duration::from_micros(150));
    world.put(0, "k", "new", SECOND);
    world.run_for(ms(5));
    assert_eq!((force_released(&world, a), world.copies("k")), (Some(2), 1));
    world.assert_idle();
}

#[test]
fn forced_release_can_be_cancelled_while_it_deletes() {
    let mut world = World::new(3, 4);
    let a = world.connected();
    for host in 0..3 {
        world.put(host, "k", "old", SECOND);
    }
    let (coordinator, now) = world.coordinator(a);
    let call = coordinator.handle_force_release(keys(&["k"]), now);
    world.run_for(Duration::from_micros(250));
    let (coordinator, now) = world.coordinator(a);
    coordinator.handle_cancel_call(call, now);
    world.run_for(ms(5));
    assert_eq!((force_released(&world, a), world.copies("k")), (None, 0));
    world.assert_idle();
}

#[test]
fn forced_release_that_has_ended_deletes_nothing() {
    let mut world = World::new(3, 3);
    let a = world.connected();
    world.run_for(2 * SECOND);
    world.lock(a, request(&["k"]));
    world.run_for(ms(5));
    let (coordinator, now) = world.coordinator(a);
    coordinator.handle_force_release(keys(&["k"]), now);
    world.run_for(Duration::from_micros(150));
    // The client reads the replies. The connection breaks before the client writes the next commands.
    world.now = world.now.after(Duration::from_micros(50));
    for (_, delivery) in std::mem::take(&mut world.deliveries) {
        world.handle(delivery);
    }
    world.set_state(0, HostState::Hung);
    world.cut(0);
    world.run_for(ms(100));
    assert_eq!(force_released(&world, a), Some(2));
    world.set_state(0, HostState::Up);
    world.run_for(ms(500));
    assert_eq!(world.copies("k"), 1);
}
