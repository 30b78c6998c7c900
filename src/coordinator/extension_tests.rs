//! Tests of extensions: their result, the repair of missing keys, and checks after a key has changed. Also tests failed
//! adoptions, cool-downs, and leases that are not taken.

use super::world_calls_tests::{Held, TTL, renewed, request, ttl, waiting};
use super::world_tests::{HostState, NODE_TIMEOUT, World, ms};
use super::{AcquireRequest, Completion, RoundId};
use crate::observe::event::CommandKind;
use crate::protocol::{Extended, Goal, LeaseStatus, Loss};
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn extend(world: &mut World, held: &Held, to: Duration) -> RoundId {
    let (coordinator, now) = world.coordinator(held.process);
    coordinator.handle_extend(held.id, ttl(to), now).expect("held")
}

fn extended(world: &World, process: usize, call: RoundId) -> Vec<Extended> {
    let results = world.processes[process].extended.iter();
    results.filter(|(known, _)| *known == call).map(|(_, extended)| *extended).collect()
}

#[test]
fn extension_completes_if_its_lease_is_released_first() {
    for is_closed in [false, true] {
        let mut world = World::new(3, 1);
        let a = world.connected();
        let held = world.lock(a, request(&["k"]));
        world.run_for(ms(5));
        let call = extend(&mut world, &held, TTL);
        let (coordinator, now) = world.coordinator(a);
        if is_closed {
            coordinator.handle_close(SECOND, now);
        } else {
            coordinator.handle_drop(held.id, now);
        }
        world.run_for(ms(100));
        let end = if is_closed { LeaseStatus::Lost(Loss::Closed) } else { LeaseStatus::Released };
        assert_eq!(extended(&world, a, call), [Extended::Ended(end)]);
        world.assert_idle();
    }
}

#[test]
fn extension_that_is_not_taken_does_not_change_the_validity() {
    let mut world = World::new(3, 3);
    let a = world.connected();
    let held = world.lock(a, request(&["k"]));
    world.run_for(ms(5));
    world.processes[a].drops_extensions = true;
    let call = extend(&mut world, &held, 3 * TTL);
    world.run_for(ms(100));
    let completed =
        |it: &Completion| matches!(it, Completion::Extended { call: known, .. } if *known == call);
    assert!(world.processes[a].completions.iter().any(completed));
    assert!(world.is_valid(&held));
    world.run_for(TTL);
    assert!(!world.is_valid(&held));
    assert_eq!(world.copies("k"), 3, "the nodes have extended it");
    world.release(&held);
    world.run_for(ms(100));
    assert_eq!(world.copies("k"), 0);
    world.assert_idle();
}

#[test]
fn node_that_missed_an_extension_is_extended_on_recovery() {
    let mut world = World::new(3, 2);
    let a = world.connected();
    let held = world.lock(a, request(&["k"]));
    world.set_state(2, HostState::Hung);
    let other = world.lock(a, request(&["other"]));
    world.run_for(8 * SECOND / 100);
    world.release(&other);
    let call = extend(&mut world, &held, 30 * SECOND);
    world.run_for(ms(300));
    assert!(matches!(extended(&world, a, call)[..], [Extended::Until(_)]));
    world.set_state(2, HostState::Up);
    world.run_for(TTL + SECOND);
    assert_eq!(world.copies("k"), 3);
    world.release(&held);
    world.run_for(ms(5));
    world.assert_idle();
}

#[test]
fn keys_are_not_repaired_before_the_extension_is_won() {
    let mut world = World::new(3, 3);
    let a = world.connected();
    let held = world.lock(a, request(&["k"]));
    world.run_for(ms(5));
    world.delete(0, "k");
    world.set_state(1, HostState::Hung);
    world.set_state(2, HostState::Hung);
    let call = extend(&mut world, &held, TTL);
    world.run_for(ms(40));
    assert!(world.keys(0).is_empty());
    world.run_for(ms(20));
    assert!(matches!(extended(&world, a, call)[..], [Extended::Unchanged(_)]));
    assert!(world.keys(0).is_empty() && world.is_valid(&held));
}

#[test]
fn node_that_reports_a_missing_key_is_repaired() {
    for delay in [Duration::ZERO, ms(20)] {
        let mut world = World::new(5, 4);
        let a = world.connected();
        let held = world.lock(a, request(&["k"]));
        world.run_for(ms(5));
        world.delete(0, "k");
        extend(&mut world, &held, TTL);
        world.turn();
        world.delay_commands(0, delay);
        world.run_for(ms(10));
        assert_eq!(world.copies("k"), if delay.is_zero() { 5 } else { 4 });
        world.run_for(ms(20));
        assert_eq!(world.copies("k"), 5, "{delay:?}");
    }
}

/// The node timeout is almost as long as the remaining validity.
#[test]
fn renewal_round_closes_before_the_validity_ends() {
    let mut world = World::new(3, 18);
    let a = world.connected();
    let held = world.lock(a, AcquireRequest { ttl: ttl(ms(84)), ..renewed(&["k"]) });
    let (coordinator, now) = world.coordinator(a);
    coordinator.handle_taken(held.id, now);
    (0..3).for_each(|host| world.set_state(host, HostState::Hung));
    world.run_for(ms(32));
    let (coordinator, _) = world.coordinator(a);
    let rounds = coordinator.rounds.ids();
    let mut rounds = rounds.into_iter().filter_map(|round| coordinator.rounds.get(round));
    let renewal = rounds.find_map(|votes| match votes.round().goal() {
        Goal::Extend { current, .. } => Some((votes.t1(), votes.close_at, current)),
        _ => None,
    });
    let (t1, close_at, current) = renewal.expect("a renewal");
    let left = current.since(t1);
    assert!(left > NODE_TIMEOUT && left < NODE_TIMEOUT * 8 / 7, "{left:?}");
    assert!(current.since(close_at) >= left / 8, "{:?}", current.since(close_at));
}

#[test]
fn lease_is_not_renewed_before_it_is_taken() {
    let mut world = World::new(3, 5);
    let a = world.connected();
    let id = world.acquire(a, renewed(&["k"]));
    world.run_for(TTL + SECOND);
    let held = world.take_acquired(a, id).expect("delivered").expect("acquired");
    assert!(!world.is_valid(&held) && !held.shared.take(world.now));
    assert_eq!((world.finished(a, CommandKind::Extend), world.copies("k")), (0, 0));
    world.assert_idle();
}

#[test]
fn push_of_a_minority_causes_no_check() {
    let mut world = World::new(5, 6);
    let a = world.connected();
    world.lock(a, renewed(&["k"]));
    world.run_for(ms(5));
    for host in 0..2 {
        world.delete(host, "k");
        world.run_for(ms(200));
        assert_eq!(world.finished(a, CommandKind::Extend), 0);
    }
    world.delete(2, "k");
    world.run_for(ms(200));
    assert_eq!(world.finished(a, CommandKind::Extend), 5);
}

#[test]
fn checks_of_a_lease_are_at_least_100_ms_apart() {
    let mut world = World::new(3, 7);
    let a = world.connected();
    let held = world.lock(a, renewed(&["k"]));
    world.run_for(ms(5));
    let value = held.shared.claim().value().as_str().to_owned();
    for _ in 0..45 {
        for host in 0..3 {
            world.put(host, "k", &value, TTL);
        }
        world.run_for(ms(10));
    }
    let checks = world.finished(a, CommandKind::Extend) / 3;
    assert!((4..=5).contains(&checks), "{checks} checks in 450 ms");
    assert!(world.is_valid(&held));
}

#[test]
fn loss_soon_after_a_check_is_noticed_after_the_pause() {
    let mut world = World::new(3, 8);
    let a = world.connected();
    let held = world.lock(a, renewed(&["k"]));
    world.run_for(ms(5));
    let value = held.shared.claim().value().as_str().to_owned();
    for host in 0..3 {
        world.put(host, "k", &value, TTL);
    }
    world.run_for(ms(10));
    assert!(world.losses(a).is_empty());
    for host in 0..3 {
        world.delete(host, "k");
    }
    world.run_for(ms(120));
    assert_eq!(world.losses(a), [LeaseStatus::Lost(Loss::QuorumLost)]);
}

#[test]
fn failed_adoption_ends_the_former_lease_of_the_client() {
    let mut world = World::new(3, 9);
    let [a, b] = [world.connected(), world.connected()];
    let held = world.lock(a, request(&["k"]));
    world.run_for(ms(5));
    world.set_state(1, HostState::Hung);
    world.set_state(2, HostState::Hung);
    let value = Arc::new(held.shared.claim().value().clone());
    let id = world.acquire(a, AcquireRequest { adopts: Some(value), ..request(&["k"]) });
    assert!(world.acquired(a, id).is_err());
    assert!(!world.is_valid(&held), "node 0 has replaced its value");
    assert_eq!(world.losses(a), [LeaseStatus::Lost(Loss::TakenOver)]);
    for host in 1..3 {
        world.set_state(host, HostState::Up);
    }
    world.run_for(ms(20));
    let id = world.acquire(b, request(&["k"]));
    assert!(world.acquired(b, id).is_ok());
}

#[test]
fn second_lease_on_the_same_key_ends_the_first() {
    let mut world = World::new(3, 10);
    let a = world.connected();
    let first = world.lock(a, request(&["k", "l"]));
    for host in 0..3 {
        world.delete(host, "k");
    }
    let second = world.lock(a, request(&["k"]));
    assert!(!world.is_valid(&first) && world.is_valid(&second));
    assert_eq!(world.losses(a), [LeaseStatus::Lost(Loss::TakenOver)]);
    world.release(&second);
    world.release(&first);
    world.run_for(ms(5));
    world.assert_idle();
}

#[test]
fn shorter_cool_down_does_not_replace_the_minimum_hold_time() {
    let mut world = World::new(3, 13);
    let [a, b] = [world.connected(), world.connected()];
    let began = world.now;
    let held = world.lock(a, AcquireRequest { at_least: 3 * SECOND, ..request(&["k"]) });
    held.shared.end(world.now);
    let (coordinator, now) = world.coordinator(a);
    coordinator.handle_release(held.id, Some(ttl(SECOND)), now);
    let id = world.acquire(b, waiting(&["k"], world.now, 9 * SECOND));
    assert!(world.acquired(b, id).is_ok());
    assert!(world.now.since(began) >= 3 * SECOND && world.now.since(began) < 4 * SECOND);
}

#[test]
fn extension_is_not_repeated_after_the_loss_of_the_lease() {
    let mut world = World::new(3, 14);
    let a = world.connected();
    let held = world.lock(a, renewed(&["k"]));
    world.run_for(ms(5));
    world.set_state(2, HostState::Down);
    extend(&mut world, &held, 3 * TTL);
    world.run_for(ms(100));
    (0..2).for_each(|host| world.delete(host, "k"));
    world.run_for(SECOND);
    assert_eq!(world.losses(a), [LeaseStatus::Lost(Loss::QuorumLost)]);
    world.set_state(2, HostState::Up);
    world.run_for(TTL.saturating_sub(2 * SECOND));
    assert_eq!(world.copies("k"), 1, "set by the acquire");
    world.run_for(2 * SECOND);
    assert_eq!(world.copies("k"), 0, "extended after the loss");
}

/// The reply of the node without the key arrives after the loss.
#[test]
fn keys_are_not_repaired_after_the_loss_of_the_lease() {
    for is_adopted in [false, true] {
        let mut world = World::new(3, 15);
        let a = world.connected();
        let held = world.lock(a, request(&["k"]));
        world.run_for(if is_adopted { ms(5) } else { ms(9_890) });
        world.delete(0, "k");
        // The extension is won, but its caller has not taken it.
        world.processes[a].drops_extensions = true;
        extend(&mut world, &held, TTL);
        world.turn();
        world.delay_commands(0, ms(30));
        if is_adopted {
            let value = Arc::new(held.shared.claim().value().clone());
            world.lock(a, AcquireRequest { adopts: Some(value), ..request(&["k"]) });
        }
        world.run_for(ms(20));
        assert!(!world.is_valid(&held), "{:?}", held.shared.status(world.now));
        world.run_for(ms(100));
        assert_eq!(world.copies("k"), 2, "repaired after the loss; adopted: {is_adopted}");
    }
}
