//! Tests of the restart guard: the vote of a restarted node counts for no kind of acquire, and for no request for a
//! job's counter.

use super::reader_tests::{reader, writer};
use super::token_tests::fenced;
use super::world_calls_tests::{request, ttl};
use super::world_tests::{HostState, World, ms};
use super::{AcquireFailure, AcquireRequest, Completion, PeriodRequest};
use crate::protocol::PeriodState;
use crate::random::Random;
use crate::wire::{Key, PeriodRecord, PeriodStep, PeriodUpdate, Value, period_keys};
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// Creates a world of three nodes with two connected processes.
fn two_processes(seed: u64) -> (World, [usize; 2]) {
    let mut world = World::new(3, seed);
    let processes = [world.connected(), world.connected()];
    (world, processes)
}

/// Restarts node 1 without its data, after node 2 has lost its keys. Only node 0 has kept what both had stored.
fn forget(world: &mut World) {
    world.run_for(ms(5));
    world.set_state(2, HostState::Down);
    for key in world.keys(2) {
        world.delete(2, &key);
    }
    world.restart(1);
    world.set_state(2, HostState::Up);
    world.run_for(SECOND);
}

fn permit() -> AcquireRequest {
    AcquireRequest { any_of: Some(Key::from(&b"s"[..])), permits: Some(1), ..request(&["s:1"]) }
}

#[test]
fn restarted_node_counts_for_no_kind_of_acquire() {
    let cases = [
        ("lock", request(&["k"]), request(&["k"])),
        ("fenced lock", fenced(&["k"]), fenced(&["k"])),
        ("reader", writer(), reader()),
        ("writer", reader(), writer()),
        ("permit", permit(), permit()),
    ];
    for (kind, first, second) in cases {
        let (mut world, [a, b]) = two_processes(21);
        let held = world.lock(a, first);
        forget(&mut world);
        let id = world.acquire(b, second);
        let failure = world.acquired(b, id).err();
        assert!(matches!(failure, Some(AcquireFailure::Refused { .. })), "{kind}: {failure:?}");
        assert!(world.is_valid(&held), "{kind}");
    }
}

fn period(world: &mut World, process: usize, step: PeriodStep) -> PeriodState {
    const PERIOD: Duration = Duration::from_secs(5);
    let record = (step != PeriodStep::Check)
        .then(|| PeriodRecord::new(7, false, PERIOD, 0, Value::fresh(&Random::Machine)));
    let update = PeriodUpdate { number: 7, begins_us: 0, ttl: ttl(70 * SECOND), step, record };
    let keys = period_keys(&Key::from(&b"job"[..])).expect("a name for a job");
    let (coordinator, now) = world.coordinator(process);
    let request = PeriodRequest { keys, update: Arc::new(update), timeout: ms(50) };
    let call = coordinator.handle_period(request, now);
    world.run_for(ms(100));
    let state = |it: &Completion| match it {
        Completion::Period { call: ended, state, .. } if *ended == call => Some(*state),
        _ => None,
    };
    world.processes[process].completions.iter().find_map(state).expect("ended")
}

/// A job checks and commits its period under its lock. A restarted node does not count for the lock, but the node that
/// has kept the period's number can stall between the acquire and the commit.
#[test]
fn restarted_node_does_not_count_for_the_period_of_a_job() {
    for step in [PeriodStep::Check, PeriodStep::Begin] {
        let (mut world, [a, b]) = two_processes(22);
        assert_eq!(period(&mut world, a, PeriodStep::Begin), PeriodState::Open);
        forget(&mut world);
        world.lock(b, request(&["job"]));
        world.set_state(0, HostState::Hung);
        assert_eq!(period(&mut world, b, step), PeriodState::Unknown, "{step:?}");
    }
}
