//! Tests of the queues of waiting acquires, and of fairness between processes.

use super::world_calls_tests::{Held, request, waiting};
use super::world_tests::{World, ms};
use super::{AcquireId, AcquireRequest, Completion};
use crate::observe::event::CommandKind;
use crate::protocol::RetryPolicy;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn waiters(world: &mut World, process: usize, names: &[&str], count: usize) -> Vec<AcquireId> {
    let now = world.now;
    (0..count).map(|_| world.acquire(process, waiting(names, now, 60 * SECOND))).collect()
}

/// Runs the world until one of the acquires in `ids` has a lease, and takes the lease. Returns the index of the acquire
/// in `ids`, and the lease.
fn next(world: &mut World, process: usize, ids: &[AcquireId]) -> (usize, Held) {
    let limit = world.now.after(5 * SECOND);
    let is_acquired = |world: &World| {
        let mut completions = world.processes[process].completions.iter();
        completions.any(|completion| matches!(completion, Completion::Acquired { .. }))
    };
    assert!(world.run_until(limit, is_acquired), "no acquire has won");
    let won = ids.iter().enumerate().find_map(|(place, id)| {
        Some((place, world.take_acquired(process, *id)?.expect("acquired")))
    });
    let (place, held) = won.expect("one of them");
    assert!(held.shared.take(world.now));
    let (coordinator, now) = world.coordinator(process);
    coordinator.handle_taken(held.id, now);
    (place, held)
}

#[test]
fn waiters_of_a_process_are_served_in_order() {
    let mut world = World::new(3, 1);
    let a = world.connected();
    let mut held = world.lock(a, request(&["k"]));
    let ids = waiters(&mut world, a, &["k"], 8);
    world.run_for(ms(5));
    for expected in 0..8 {
        let released = world.now;
        world.release(&held);
        let place;
        (place, held) = next(&mut world, a, &ids);
        assert_eq!(place, expected);
        let took = world.now.since(released);
        // After four turns, the process waits so that other processes can go first.
        assert!(took < ms(1) || expected == 3 && took < ms(8), "turn {expected}: {took:?}");
    }
    world.release(&held);
    world.run_for(ms(5));
    world.assert_idle();
}

#[test]
fn only_the_head_of_a_queue_contacts_the_nodes() {
    let mut world = World::new(3, 2);
    let [a, b] = [world.connected(), world.connected()];
    let held = world.lock(a, request(&["k"]));
    let ids = waiters(&mut world, b, &["k"], 50);
    world.run_for(SECOND);
    let sent = world.finished(b, CommandKind::Acquire);
    assert!(sent <= 9, "{sent} commands");
    world.release(&held);
    let (place, held) = next(&mut world, b, &ids);
    assert_eq!(place, 0);
    let sent = world.finished(b, CommandKind::Acquire) - sent;
    assert!(sent <= 9, "{sent} commands");
    world.release(&held);
}

#[test]
fn process_with_many_waiters_lets_others_go_first() {
    let mut world = World::new(3, 3);
    let [a, b] = [world.connected(), world.connected()];
    let mut held = world.lock(a, request(&["k"]));
    let ids = waiters(&mut world, a, &["k"], 40);
    let other = world.acquire(b, waiting(&["k"], world.now, 60 * SECOND));
    let mut turns = 0;
    let is_over = |world: &World, turns: usize| {
        let is_won = |it: &Completion| matches!(it, Completion::Acquired { acquire, .. } if *acquire == other);
        world.processes[b].completions.iter().any(is_won) || turns == 40
    };
    while !is_over(&world, turns) {
        world.run_for(ms(1));
        world.release(&held);
        let limit = world.now.after(SECOND);
        let is_acquired = |world: &World| {
            let mut completions = world.processes.iter().flat_map(|it| &it.completions);
            completions.any(|completion| matches!(completion, Completion::Acquired { .. }))
        };
        assert!(world.run_until(limit, is_acquired));
        if !is_over(&world, turns) {
            (_, held) = next(&mut world, a, &ids);
            turns += 1;
        }
    }
    assert!(turns <= 10, "{turns} turns of the other process");
}

#[test]
fn acquire_behind_a_departed_head_contacts_the_nodes() {
    let mut world = World::new(3, 4);
    let [a, b] = [world.connected(), world.connected()];
    let held = world.lock(a, request(&["k"]));
    let ids = waiters(&mut world, b, &["k"], 2);
    world.run_for(ms(100));
    let sent = world.finished(b, CommandKind::Acquire);
    let (coordinator, now) = world.coordinator(b);
    coordinator.handle_cancel(ids[0], now);
    world.run_for(ms(5));
    assert_eq!(world.finished(b, CommandKind::Acquire), sent + 3);
    world.release(&held);
}

#[test]
fn processes_that_lost_a_race_ask_one_node_first() {
    let mut world = World::new(5, 5);
    let processes: Vec<_> = (0..30).map(|_| world.connected()).collect();
    let now = world.now;
    let ids: Vec<_> = processes
        .iter()
        .map(|process| world.acquire(*process, waiting(&["k"], now, 60 * SECOND)))
        .collect();
    for _ in 0..30 {
        let limit = world.now.after(5 * SECOND);
        let is_acquired = |world: &World| {
            let mut completions = world.processes.iter().flat_map(|it| &it.completions);
            completions.any(|completion| matches!(completion, Completion::Acquired { .. }))
        };
        assert!(world.run_until(limit, is_acquired));
        let held =
            processes.iter().zip(&ids).find_map(|(process, id)| world.take_acquired(*process, *id));
        let held = held.expect("a lease").expect("acquired");
        assert!(held.shared.take(world.now));
        world.run_for(ms(20));
        world.release(&held);
    }
    let sent = processes.iter().map(|process| world.finished(*process, CommandKind::Acquire));
    let sent = sent.sum::<usize>();
    assert!(sent < 1_000, "{sent} commands for 30 turns");
}

#[test]
fn refused_sets_wait_in_the_queue_of_the_conflicting_key() {
    let mut world = World::new(3, 6);
    let [a, b] = [world.connected(), world.connected()];
    let held = world.lock(a, request(&["y"]));
    let ids = waiters(&mut world, b, &["x", "y"], 10);
    world.run_for(ms(400));
    let sent = world.finished(b, CommandKind::Acquire);
    world.run_for(SECOND);
    let later = world.finished(b, CommandKind::Acquire) - sent;
    assert!(later <= 12, "{later} commands in a second");
    world.release(&held);
    let (_, held) = next(&mut world, b, &ids);
    let released = world.finished(b, CommandKind::Acquire) - sent - later;
    assert!(released <= 6, "{released} commands after the release");
    world.release(&held);
}

/// Starts five acquires of two keys each: a key that only this acquire wants, and the key `y`. Each acquire waits in
/// the queue of the first key. Once `y` is deleted on node 1, a quorum is free for every acquire.
fn watchers(world: &mut World, process: usize) -> Vec<AcquireId> {
    world.put(1, "y", "other", 50 * SECOND);
    let ids = (0..5).map(|place| {
        let name = format!("x{place}");
        world.put(0, &name, "other", 50 * SECOND);
        let schedule = RetryPolicy::fixed(40 * SECOND).schedule();
        let request = waiting(&[&name, "y"], world.now, 60 * SECOND);
        let id = world.acquire(process, AcquireRequest { schedule, ..request });
        world.run_for(ms(5));
        id
    });
    let ids = ids.collect();
    world.run_for(ms(100));
    ids
}

#[test]
fn deleted_key_notifies_one_of_its_watchers() {
    let mut world = World::new(3, 7);
    let a = world.connected();
    let ids = watchers(&mut world, a);
    let sent = world.finished(a, CommandKind::Acquire);
    world.delete(1, "y");
    let (place, held) = next(&mut world, a, &ids);
    world.run_for(ms(200));
    assert_eq!(place, 0);
    assert_eq!(world.finished(a, CommandKind::Acquire) - sent, 3);
    world.release(&held);
    let (place, held) = next(&mut world, a, &ids);
    assert_eq!(place, 1);
    world.release(&held);
}

#[test]
fn notified_set_that_is_refused_passes_the_turn_on() {
    let mut world = World::new(3, 8);
    let a = world.connected();
    let ids = watchers(&mut world, a);
    for host in 1..3 {
        world.put(host, "x0", "other", 50 * SECOND);
    }
    world.delete(1, "y");
    let deleted = world.now;
    let (place, held) = next(&mut world, a, &ids);
    assert_eq!(place, 1);
    assert!(world.now.since(deleted) < ms(20));
    world.release(&held);
}

#[test]
fn notified_set_that_is_cancelled_passes_the_turn_on() {
    let mut world = World::new(3, 9);
    let a = world.connected();
    let ids = watchers(&mut world, a);
    world.delete(1, "y");
    let deleted = world.now;
    world.run_for(Duration::from_micros(150));
    let (coordinator, now) = world.coordinator(a);
    coordinator.handle_cancel(ids[0], now);
    let (place, held) = next(&mut world, a, &ids);
    assert_eq!(place, 1);
    assert!(world.now.since(deleted) < ms(20));
    world.release(&held);
}

#[test]
fn acquire_tries_again_after_an_outage() {
    let mut world = World::new(3, 10);
    let [a, b] = [world.connected(), world.connected()];
    world.run_for(2 * SECOND);
    world.lock(a, request(&["k"]));
    let schedule = RetryPolicy::fixed(40 * SECOND).schedule();
    let request = waiting(&["k"], world.now, 60 * SECOND);
    let id = world.acquire(b, AcquireRequest { schedule, ..request });
    world.run_for(ms(100));
    for host in 0..3 {
        world.cut(host);
        world.delete(host, "k");
    }
    let deleted = world.now;
    let held = world.acquired(b, id).expect("free");
    let took = world.now.since(deleted);
    assert!(took < ms(100), "{took:?}");
    world.release(&held);
}

#[test]
fn late_grant_of_a_refused_attempt_notifies_waiters() {
    let mut world = World::new(3, 11);
    let a = world.connected();
    for host in 0..2 {
        world.put(host, "k", "other", 50 * SECOND);
    }
    let schedule = RetryPolicy::fixed(40 * SECOND).schedule();
    let request = waiting(&["k"], world.now, 60 * SECOND);
    let id = world.acquire(a, AcquireRequest { schedule, ..request });
    world.turn();
    world.delay_commands(2, ms(5));
    world.run_for(ms(1));
    // Only node 1 becomes free here. A quorum also needs the late grant of node 2.
    world.delete(1, "k");
    let deleted = world.now;
    let held = world.acquired(a, id).expect("a quorum is free");
    assert!(world.now.since(deleted) < ms(20));
    world.release(&held);
}

#[test]
fn handover_of_a_short_hold_costs_one_attempt() {
    let mut world = World::new(3, 11);
    let a = world.connected();
    let mut held = world.lock(a, request(&["k"]));
    let ids = waiters(&mut world, a, &["k"], 3);
    world.run_for(ms(5));
    for turn in 0..3 {
        let sent = world.finished(a, CommandKind::Acquire);
        // The first waiter has already tried and was refused. The others contact the nodes only after the release.
        let released = world.now;
        world.release(&held);
        (_, held) = next(&mut world, a, &ids);
        assert_eq!(world.finished(a, CommandKind::Acquire), sent + 3, "turn {turn}");
        assert!(world.now.since(released) < ms(1), "turn {turn}");
    }
    world.release(&held);
}

#[test]
fn waiter_behind_a_long_hold_still_contacts_the_nodes() {
    let mut world = World::new(3, 12);
    let a = world.connected();
    let held = world.lock(a, request(&["k"]));
    let ids = waiters(&mut world, a, &["k"], 2);
    world.run_for(ms(5));
    world.release(&held);
    let (_, held) = next(&mut world, a, &ids);
    let sent = world.finished(a, CommandKind::Acquire);
    world.run_for(ms(5));
    assert_eq!(world.finished(a, CommandKind::Acquire), sent + 3);
    world.release(&held);
}
