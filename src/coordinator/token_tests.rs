//! Tests of fencing tokens: counters that differ between nodes, and the minimum that a client requests from the
//! counters.

use super::AcquireRequest;
use super::world_calls_tests::{Held, keys, request, ttl};
use super::world_tests::{HostState, World, ms};
use crate::observe::event::Event;
use crate::wire::{CounterKeys, Counters};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

pub(super) fn fenced(names: &[&str]) -> AcquireRequest {
    let keys = keys(names);
    let counters = CounterKeys::for_keys(&keys, ttl(600 * SECOND));
    AcquireRequest { counters: Some(Arc::new(counters.expect("plain keys"))), ..request(names) }
}

fn token(held: &Held) -> u64 {
    held.shared.claim().fence().and_then(Counters::token).expect("a token")
}

/// Acquires and releases the lock, then sets the fencing counter of each host to the returned token plus the host's
/// number in `ahead`.
fn set_counters(world: &mut World, process: usize, ahead: &[u64]) -> u64 {
    let held = world.lock(process, fenced(&["k"]));
    world.release(&held);
    world.run_for(ms(5));
    for (host, ahead) in ahead.iter().enumerate() {
        let keys = world.keys(host);
        let [counter] = &keys[..] else { panic!("{keys:?}") };
        world.put(host, counter, &(token(&held) + ahead).to_string(), 600 * SECOND);
    }
    token(&held)
}

fn confirmations(world: &World, process: usize) -> usize {
    let is_confirmed =
        |event: &&Event| matches!(event, Event::AttemptFinished { confirmation: Some(_), .. });
    world.processes[process].events.iter().filter(is_confirmed).count()
}

#[test]
fn highest_known_number_lets_all_counters_agree() {
    const AHEAD: u64 = 1_000_000_000_000;
    let mut world = World::new(5, 1);
    let a = world.connected();
    let first = set_counters(&mut world, a, &[50, 40, 30, 20, 10].map(|it| AHEAD + it));
    let set_states = |world: &mut World, hosts: Range<usize>, state| {
        hosts.for_each(|host| world.set_state(host, state));
        world.run_for(8 * SECOND);
    };
    set_states(&mut world, 3..5, HostState::Down);
    let held = world.lock(a, fenced(&["k"]));
    world.run_for(ms(5));
    assert!(token(&held) > first + AHEAD);
    assert_eq!(confirmations(&world, a), 1, "the counters differ");
    world.release(&held);
    // The counters of the nodes 3 and 4 are still different.
    set_states(&mut world, 3..5, HostState::Up);
    set_states(&mut world, 0..2, HostState::Down);
    let held = world.lock(a, fenced(&["k"]));
    assert_eq!(confirmations(&world, a), 1, "all nodes draw a higher number");
    assert!(token(&held) > first + AHEAD + 50);
}

#[test]
fn disagreement_of_the_first_quorum_is_confirmed_at_once() {
    const AHEAD: u64 = 1_000_000_000;
    let mut world = World::new(3, 3);
    let a = world.connected();
    let first = set_counters(&mut world, a, &[AHEAD + 9, AHEAD, AHEAD]);
    let id = world.acquire(a, fenced(&["k"]));
    world.turn();
    world.delay_commands(2, ms(20));
    let began = world.now;
    let held = world.acquired(a, id).expect("acquired");
    assert!(world.now.since(began) < ms(2));
    assert_eq!((confirmations(&world, a), token(&held)), (1, first + AHEAD + 10));
}
