//! Regression tests. Each test checks a rule that the first version of the coordinator did not follow.

use super::world_calls_tests::{TTL, renewed, request, ttl, waiting};
use super::world_tests::{HostState, World, ms};
use super::{AcquireRequest, Completion};
use crate::observe::VoteEligibility;
use crate::observe::event::{AttemptOutcome, Event};
use crate::protocol::{Extended, LeaseStatus, Loss};
use crate::wire::NodeFailure;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn extended(world: &World, process: usize) -> Vec<Extended> {
    world.processes[process].extended.iter().map(|(_, extended)| *extended).collect()
}

#[test]
fn extension_ends_with_the_close_of_its_client() {
    let mut world = World::new(3, 2);
    let a = world.connected();
    let held = world.lock(a, request(&["k"]));
    world.run_for(ms(5));
    let (coordinator, now) = world.coordinator(a);
    coordinator.handle_extend(held.id, ttl(TTL), now).expect("held");
    coordinator.handle_close(SECOND, now);
    world.run_for(2 * SECOND);
    assert_eq!(extended(&world, a), [Extended::Ended(LeaseStatus::Lost(Loss::Closed))]);
}

#[test]
fn untaken_lease_passes_to_a_later_acquire() {
    let mut world = World::new(3, 9);
    let a = world.connected();
    let now = world.now;
    let slow = world.acquire(a, waiting(&["k"], now, 60 * SECOND));
    world.run_for(ms(2_100));
    assert!(matches!(world.take_acquired(a, slow), Some(Ok(_))));
    let began = world.now;
    let other = world.acquire(a, waiting(&["k"], began, SECOND));
    let held = world.acquired(a, other);
    assert!(held.is_ok(), "{:?}", held.err());
    assert!(world.now.since(began) < ms(200));
}

#[test]
fn lease_that_was_never_taken_is_not_reported_as_lost() {
    let mut world = World::new(3, 10);
    let a = world.connected();
    let id = world.acquire(a, request(&["k"]));
    world.run_for(11 * SECOND);
    assert!(world.take_acquired(a, id).is_some_and(|it| it.is_ok()));
    assert!(world.take_acquired(a, id).is_some_and(|it| it.is_err()));
    let lost = |event: &&Event| matches!(event, Event::LeaseLost { .. });
    assert_eq!(world.processes[a].events.iter().filter(lost).count(), 0);
}

#[test]
fn flush_before_malformed_bytes_is_noticed() {
    let mut world = World::new(3, 11);
    let a = world.connected();
    let held = world.lock(a, renewed(&["k"]));
    world.run_for(2 * SECOND);
    let wall_us = world.wall_us(0);
    // The push is read together with bytes that end the connection.
    let _not_sent = world.hosts[0].server.flush(wall_us);
    let connection = world.connections(a)[0];
    assert_eq!(connection.node, World::node(0));
    let (coordinator, now) = world.coordinator(a);
    let bytes = b">2\r\n$10\r\ninvalidate\r\n_\r\n+unsolicited\r\n";
    coordinator.handle_bytes(connection, bytes, now);
    world.run_for(ms(200));
    let (coordinator, now) = world.coordinator(a);
    coordinator.handle_extend(held.id, ttl(TTL), now).expect("held");
    world.run_for(3 * SECOND);
    let (coordinator, now) = world.coordinator(a);
    let eligibility = coordinator.eligibility(World::node(0), now);
    let flushed = matches!(eligibility, VoteEligibility::Excluded(NodeFailure::Flushed { .. }));
    assert!(flushed, "{eligibility:?}");
}

#[test]
fn attempt_that_a_close_ends_is_reported() {
    let mut world = World::new(3, 12);
    let a = world.connected();
    for host in 0..3 {
        world.set_state(host, HostState::Hung);
    }
    world.acquire(a, waiting(&["k"], world.now, 9 * SECOND));
    world.run_for(ms(5));
    let (coordinator, now) = world.coordinator(a);
    coordinator.handle_close(SECOND, now);
    world.run_for(ms(5));
    let abandoned = |event: &&Event| {
        matches!(event, Event::AttemptFinished { outcome: AttemptOutcome::Abandoned, .. })
    };
    assert_eq!(world.processes[a].events.iter().filter(abandoned).count(), 1);
}

#[test]
fn lease_that_has_ended_is_not_released_afterwards() {
    let mut world = World::new(3, 14);
    let a = world.connected();
    let held = world.lock(a, request(&["k"]));
    world.run_for(11 * SECOND);
    let expired = LeaseStatus::Lost(Loss::Expired);
    assert_eq!(held.shared.status(world.now), expired);
    // The holder releases the lease, and another task reads the lease's state.
    world.release(&held);
    assert_eq!(held.shared.status(world.now), expired, "a lost lease stays lost");
}

#[test]
fn reason_of_a_loss_does_not_change() {
    let mut world = World::new(3, 15);
    let a = world.connected();
    let request = AcquireRequest { max_hold: Some(5 * SECOND), ..request(&["k"]) };
    let held = world.lock(a, request);
    // The driver is late.
    world.now = world.now.after(6 * SECOND);
    let before = held.shared.status(world.now);
    world.run_for(ms(10));
    let after = held.shared.status(world.now);
    assert_eq!(
        (before, after),
        (LeaseStatus::Lost(Loss::MaxHold), LeaseStatus::Lost(Loss::MaxHold))
    );
}

#[test]
fn set_of_a_silent_connection_arrives_after_the_second_one() {
    for seconds in 1..8 {
        let mut world = World::new(3, 18);
        let [a, b] = [world.connected(), world.connected()];
        for connection in world.connections(a) {
            world.hold_up(a, connection, seconds * SECOND);
        }
        let id = world.acquire(a, request(&["k"]));
        assert!(world.acquired(a, id).is_err());
        world.run_for(ms(300));
        let own = world.lock(a, request(&["k"]));
        assert!(world.is_valid(&own));
        world.release(&own);
        world.run_for(ms(5));
        let held = world.lock(b, request(&["k"]));
        world.release(&held);
        world.run_for(20 * SECOND);
        assert_eq!(world.copies("k"), 0, "{seconds} s");
        world.assert_idle();
    }
}

#[test]
fn lease_that_was_released_in_time_is_not_reported_as_lost() {
    for is_watched in [false, true] {
        let mut world = World::new(3, 19);
        let a = world.connected();
        let held = world.lock(a, request(&["k"]));
        if is_watched {
            let (coordinator, now) = world.coordinator(a);
            coordinator.handle_watch(held.id, now);
        }
        world.run_for(9 * SECOND);
        assert!(world.is_valid(&held) && held.shared.end(world.now));
        // The driver is late, so it handles the end of the validity before the release.
        world.now = world.now.after(2 * SECOND);
        let (coordinator, now) = world.coordinator(a);
        coordinator.handle_timeout(now, true);
        coordinator.handle_drop(held.id, now);
        world.run_for(ms(10));
        let lost = |event: &&Event| matches!(event, Event::LeaseLost { .. });
        assert_eq!(world.processes[a].events.iter().filter(lost).count(), 0, "{is_watched}");
    }
}

/// Runs 24 acquires of four processes, which compete for the locks `names` without faults. Returns the longest time
/// during which all locks were free before an acquire succeeded.
fn longest_pause(seed: u64, names: &[&[&str]]) -> Duration {
    let mut world = World::new(5, seed);
    world.jitter = ms(1);
    let processes = [(); 4].map(|()| world.connected());
    let now = world.now;
    let mut under_way: Vec<_> = (0..24)
        .map(|number| {
            let process = processes[number % 4];
            let request = waiting(names[number % names.len()], now, 120 * SECOND);
            (process, world.acquire(process, request))
        })
        .collect();
    let (mut longest, mut free_since) = (Duration::ZERO, world.now);
    while !under_way.is_empty() {
        let limit = world.now.after(100 * SECOND);
        let is_held = |world: &World| {
            let mut completions = world.processes.iter().flat_map(|it| &it.completions);
            completions.any(|completion| matches!(completion, Completion::Acquired { .. }))
        };
        assert!(world.run_until(limit, is_held), "{} acquires wait", under_way.len());
        longest = longest.max(world.now.since(free_since));
        let mut held = Vec::new();
        under_way.retain(|(process, id)| match world.take_acquired(*process, *id) {
            Some(result) => {
                held.push(result.expect("acquired"));
                false
            }
            None => true,
        });
        for held in &held {
            assert!(held.shared.take(world.now));
        }
        world.run_for(ms(2));
        for held in &held {
            world.release(held);
        }
        free_since = world.now;
    }
    longest
}

#[test]
fn free_locks_are_acquired_soon() {
    let sets: [&[&str]; 6] = [&["a"], &["a", "b"], &["b", "c"], &["a", "b", "c"], &["c"], &["b"]];
    for seed in 0..40 {
        let one = longest_pause(seed, &[&["k"]]);
        let several = longest_pause(seed, &sets);
        assert!(one < ms(700) && several < ms(700), "seed {seed}: {one:?}, {several:?}");
    }
}

#[test]
fn nothing_is_remembered_for_long() {
    let mut world = World::new(3, 20);
    let [a, b] = [world.connected(), world.connected()];
    for round in 0..300 {
        let name = format!("k{round}");
        let now = world.now;
        let ids =
            [a, b].map(|process| (process, world.acquire(process, waiting(&[&name], now, SECOND))));
        for (process, id) in ids {
            if let Ok(held) = world.acquired(process, id) {
                world.release(&held);
            }
        }
    }
    world.run_for(2 * SECOND);
    for process in [a, b] {
        let held = world.lock(process, waiting(&["last"], world.now, SECOND));
        world.release(&held);
        world.run_for(ms(5));
        let remembered = world.processes[process].coordinator.queues.queues.len();
        assert!(remembered <= 1, "{remembered} queues");
    }
    world.assert_idle();
}

#[test]
fn replies_that_arrive_just_after_a_pause_count() {
    let mut world = World::new(3, 21);
    let a = world.connected();
    let id = world.acquire(a, request(&["k"]));
    world.turn();
    // The process is stopped after it has sent the commands. The replies arrive shortly after the process runs again.
    for connection in world.connections(a) {
        world.hold_up(a, connection, ms(503));
    }
    world.processes[a].frozen_until = world.now.after(ms(500));
    let held = world.acquired(a, id);
    assert!(held.is_ok(), "{:?}", held.err());
}

#[test]
fn release_that_is_repeated_stays_pending() {
    let mut world = World::new(3, 22);
    let a = world.connected();
    let held = world.lock(a, request(&["k"]));
    world.run_for(ms(5));
    world.set_trouble(0, Some(quorlock_test::Trouble::Busy));
    world.release(&held);
    world.run_for(2 * SECOND);
    world.set_trouble(0, None);
    world.run_for(SECOND);
    let pending = world.processes[a].events.iter().filter_map(|event| match event {
        Event::PendingReleasesChanged { before, pending, .. } => Some((*before, *pending)),
        _ => None,
    });
    assert_eq!(pending.collect::<Vec<_>>(), [(0, 1), (1, 0)]);
}
