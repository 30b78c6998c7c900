//! Tests of acquires that wait for any one of several keys.

use super::AcquireRequest;
use super::any_of_tests::{ABC, SECOND, acquired, hold, key_of, try_any, wait_for_any};
use super::world_calls_tests::{renewed, request, waiting};
use super::world_tests::{World, ms};
use crate::observe::event::CommandKind;
use crate::protocol::{RetryPolicy, Time};
use std::time::Duration;

/// The delay is longer than each test allows, so only notifications cause attempts.
const RETRY_DELAY: Duration = Duration::from_secs(40);

fn notified_only(world: &World, names: &[&str]) -> AcquireRequest {
    let schedule = RetryPolicy::fixed(RETRY_DELAY).schedule();
    AcquireRequest { schedule, ..wait_for_any(world, names) }
}

/// Returns a world in which another client holds the keys, and a connected process.
fn world_without_free_key(names: &[&str], seed: u64) -> (World, usize) {
    let mut world = World::new(3, seed);
    let process = world.connected();
    hold(&mut world, 0..3, names.iter().copied());
    (world, process)
}

#[test]
fn waiter_is_woken_by_the_release_of_another_process() {
    for (seed, key) in (0..).zip(ABC) {
        let mut world = World::new(3, seed);
        let [a, b] = [world.connected(), world.connected()];
        let leases = ABC.map(|key| world.lock(a, request(&[key])));
        let id = world.acquire(b, wait_for_any(&world, &ABC));
        world.run_for(SECOND);
        let released = world.now;
        let lease = leases.iter().find(|held| key_of(held) == key).expect("a lease");
        world.release(lease);
        let held = acquired(&mut world, b, id);
        assert_eq!(key_of(&held), key);
        assert!(world.now.since(released) < ms(20), "{:?}", world.now.since(released));
        world.release(&held);
    }
}

#[test]
fn waiters_of_a_process_take_turns_in_order() {
    let mut world = World::new(3, 5);
    let a = world.connected();
    let mut leases: Vec<_> = (0..3)
        .map(|_| {
            let id = world.acquire(a, try_any(&ABC));
            acquired(&mut world, a, id)
        })
        .collect();
    let ids: Vec<_> = (0..6).map(|_| world.acquire(a, wait_for_any(&world, &ABC))).collect();
    world.run_for(ms(20));
    let sent = world.finished(a, CommandKind::Acquire);
    for id in ids {
        let released = world.now;
        world.release(&leases.remove(0));
        let held = acquired(&mut world, a, id);
        // After four turns, the process waits so that other processes can go first.
        assert!(world.now.since(released) < ms(8), "{:?}", world.now.since(released));
        leases.push(held);
    }
    let sent = world.finished(a, CommandKind::Acquire) - sent;
    assert!(sent <= 6 * 2 * 3, "{sent} commands for 6 turns");
    for held in &leases {
        world.release(held);
    }
    world.run_for(ms(20));
    world.assert_idle();
}

/// Lets callers hold one of `names` for 10 ms, again and again, for five seconds. Each caller has the index of its
/// process and the time of its first acquire. Returns the number of leases of each process in the last three seconds,
/// and the longest wait.
fn take_turns(
    world: &mut World,
    processes: &[usize],
    names: &[&str],
    mut callers: Vec<(usize, Time)>,
) -> (Vec<usize>, Duration) {
    let (mut waiting, mut held) = (Vec::new(), Vec::new());
    let (mut turns, mut longest) = (vec![0; processes.len()], Duration::ZERO);
    let (counts_from, end) = (world.now.after(2 * SECOND), world.now.after(5 * SECOND));
    while world.now < end {
        let now = world.now;
        for (place, _) in callers.extract_if(.., |(_, from)| *from <= now) {
            let id = world.acquire(processes[place], wait_for_any(world, names));
            waiting.push((place, id, now));
        }
        world.run_for(ms(1));
        let now = world.now;
        for (place, id, since) in std::mem::take(&mut waiting) {
            match world.take_acquired(processes[place], id) {
                Some(result) => {
                    held.push((place, result.expect("acquired"), now));
                    turns[place] += usize::from(now >= counts_from);
                    longest = longest.max(now.since(since));
                }
                None => waiting.push((place, id, since)),
            }
        }
        for (place, lease, _) in held.extract_if(.., |(_, _, since)| now.since(*since) >= ms(10)) {
            world.release(&lease);
            callers.push((place, now));
        }
    }
    println!("{turns:?}, longest wait {longest:?}");
    (turns, longest)
}

/// Each of four processes has four callers, which compete for four keys.
#[test]
fn competing_processes_get_similar_numbers_of_turns() {
    for seed in 0..2 {
        let mut world = World::new(3, seed);
        world.jitter = world.delay;
        let processes = [(); 4].map(|()| world.connected());
        let callers = (0..16).map(|caller| (caller % 4, world.now)).collect();
        let names = ["a", "b", "c", "d"];
        let (turns, longest) = take_turns(&mut world, &processes, &names, callers);
        let all: usize = turns.iter().sum();
        assert!(all > 840, "{all} turns of at most 1,200");
        assert!(turns.iter().all(|turns| 8 * turns > all), "{turns:?}");
        assert!(longest < ms(400), "{longest:?}");
    }
}

/// The first process holds all keys when the second one starts.
#[test]
fn process_that_starts_late_gets_a_similar_number_of_turns() {
    let names: Vec<_> = (0..8).map(|name| name.to_string()).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    for seed in 0..2 {
        let mut world = World::new(3, seed);
        world.jitter = world.delay;
        let processes = [(); 2].map(|()| world.connected());
        let start = |place| world.now.after(if place == 0 { Duration::ZERO } else { SECOND });
        let callers = (0..32).map(|caller| (caller % 2, start(caller % 2))).collect();
        let (turns, _) = take_turns(&mut world, &processes, &names, callers);
        let all: usize = turns.iter().sum();
        assert!(turns.iter().all(|turns| 5 * turns > 2 * all), "{turns:?}");
    }
}

#[test]
fn plain_release_wakes_a_waiter_for_any_key() {
    let mut world = World::new(3, 6);
    let a = world.connected();
    let leases = ABC.map(|key| world.lock(a, request(&[key])));
    let id = world.acquire(a, wait_for_any(&world, &ABC));
    world.run_for(SECOND);
    let released = world.now;
    world.release(&leases[1]);
    let held = acquired(&mut world, a, id);
    assert_eq!(key_of(&held), "b");
    assert!(world.now.since(released) < ms(5));
}

/// A waiter delays its first attempt after a lease that has refused other clients. In this time, another lease ends
/// with a cool-down.
#[test]
fn cool_down_of_one_key_does_not_delay_waiters_for_the_others() {
    let mut world = World::new(3, 9);
    let a = world.connected();
    hold(&mut world, 2..3, ABC);
    let [first, second] = [ms(0), ms(20_000)].map(|at_least| {
        let id = world.acquire(a, AcquireRequest { at_least, ..try_any(&ABC) });
        acquired(&mut world, a, id)
    });
    world.release(&first);
    world.run_for(ms(1));
    let id = world.acquire(a, notified_only(&world, &ABC));
    let begun = world.now;
    world.release(&second);
    let held = acquired(&mut world, a, id);
    assert_ne!(key_of(&held), key_of(&second));
    assert!(world.now.since(begun) < ms(20), "{:?}", world.now.since(begun));
}

#[test]
fn untaken_lease_is_revoked_for_an_acquire_of_its_key() {
    let mut world = World::new(3, 10);
    let a = world.connected();
    let untaken = world.acquire(a, wait_for_any(&world, &ABC));
    world.run_for(ms(5));
    let untaken = world.take_acquired(a, untaken).expect("delivered").expect("acquired");
    let (key, begun) = (key_of(&untaken), world.now);
    let other = world.acquire(a, waiting(&[&key], begun, 60 * SECOND));
    acquired(&mut world, a, other);
    assert!(world.now.since(begun) < 3 * SECOND, "{:?}", world.now.since(begun));
}

/// Another client releases and acquires the first keys all the time, and then releases the last one.
#[test]
fn pushes_for_some_keys_hide_no_push_for_another() {
    let names: Vec<_> = (0..40).map(|name| format!("{name:02}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    for seed in 0..10 {
        let (mut world, a) = world_without_free_key(&names, seed);
        let id = world.acquire(a, wait_for_any(&world, &names));
        world.run_for(ms(20));
        for step in 0..1_000 {
            let key = if step == 400 { "39" } else { names[step % 3] };
            (0..3).for_each(|host| world.delete(host, key));
            if step != 400 {
                hold(&mut world, 0..3, [key]);
            }
            world.run_for(ms(1));
            if world.copies("39") == 3 && step > 400 {
                break;
            }
        }
        let attempts = world.finished(a, CommandKind::Acquire) / 3;
        assert!(attempts < 2_000, "{attempts} attempts in a second");
        assert_eq!(key_of(&acquired(&mut world, a, id)), "39", "seed {seed}");
    }
}

/// Another client releases and acquires the first keys, so the last attempts do not try key 39.
#[test]
fn push_for_a_key_of_an_earlier_attempt_wakes_the_waiter() {
    let names: Vec<_> = (0..40).map(|name| format!("{name:02}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    for seed in 0..10 {
        let (mut world, a) = world_without_free_key(&names, seed);
        let id = world.acquire(a, notified_only(&world, &names));
        world.run_for(ms(20));
        for step in 0..10 {
            (0..3).for_each(|host| world.delete(host, names[step % 3]));
            hold(&mut world, 0..3, [names[step % 3]]);
            world.run_for(ms(1));
        }
        // The rest after lost races ends.
        world.run_for(SECOND);
        let released = world.now;
        (0..3).for_each(|host| world.delete(host, "39"));
        assert_eq!(key_of(&acquired(&mut world, a, id)), "39", "seed {seed}");
        assert!(world.now.since(released) < ms(20), "{:?}", world.now.since(released));
    }
}

#[test]
fn end_of_a_cool_down_wakes_a_waiter() {
    let mut world = World::new(3, 13);
    let [a, b] = [world.connected(), world.connected()];
    let cooling = AcquireRequest { at_least: ms(200), ..request(&["a"]) };
    let held = world.lock(a, cooling);
    let _others = ["b", "c"].map(|key| world.lock(b, request(&[key])));
    let id = world.acquire(a, notified_only(&world, &ABC));
    world.run_for(ms(20));
    let begun = world.now;
    world.release(&held);
    assert_eq!(key_of(&acquired(&mut world, a, id)), "a");
    assert!(world.now.since(begun) < ms(205), "{:?}", world.now.since(begun));
}

/// Each of two nodes has another free key, so each attempt sets two keys and releases them.
#[test]
fn release_of_a_refused_attempt_does_not_wake_its_own_acquire() {
    let mut world = World::new(3, 14);
    let a = world.connected();
    hold(&mut world, 0..3, ABC);
    world.delete(0, "a");
    world.delete(1, "b");
    let id = world.acquire(a, wait_for_any(&world, &ABC));
    world.run_for(SECOND);
    let attempts = world.finished(a, CommandKind::Acquire) / 3;
    assert!(attempts < 20, "{attempts} attempts in a second");
    let (coordinator, now) = world.coordinator(a);
    coordinator.handle_cancel(id, now);
}

#[test]
fn new_lease_is_notified_of_changes_of_its_key() {
    let mut world = World::new(3, 11);
    let a = world.connected();
    let id = world.acquire(a, AcquireRequest { any_of: try_any(&ABC).any_of, ..renewed(&ABC) });
    let held = acquired(&mut world, a, id);
    world.run_for(ms(5));
    (0..3).for_each(|host| world.delete(host, &key_of(&held)));
    world.run_for(ms(20));
    assert_eq!(world.losses(a).len(), 1);
}

fn many_names() -> Vec<String> {
    (0..1_000).map(|name| format!("{name:04}")).collect()
}

#[test]
fn waiter_for_many_held_keys_sends_few_commands() {
    let names = many_names();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let (mut world, a) = world_without_free_key(&names, 15);
    let id = world.acquire(a, wait_for_any(&world, &names));
    world.run_for(2 * SECOND);
    let before = world.finished(a, CommandKind::Acquire);
    assert!(before >= 3 * 63, "{before}: the first rotation tries all keys");
    world.run_for(10 * SECOND);
    let sent = world.finished(a, CommandKind::Acquire) - before;
    assert!(sent < 3 * 12, "{sent} commands in ten seconds");
    let released = world.now;
    (0..3).for_each(|host| world.delete(host, "0777"));
    assert_eq!(key_of(&acquired(&mut world, a, id)), "0777");
    assert!(world.now.since(released) < ms(20), "{:?}", world.now.since(released));
}

#[test]
fn waiter_beside_many_renewed_leases_sends_few_commands() {
    let names = many_names();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let (mut world, a) = world_without_free_key(&names, 16);
    let id = world.acquire(a, wait_for_any(&world, &names));
    world.run_for(2 * SECOND);
    let before = world.finished(a, CommandKind::Acquire);
    for name in names.iter().cycle().skip(500).take(1_000) {
        hold(&mut world, 0..3, [*name]);
        world.run_for(ms(3));
    }
    let sent = world.finished(a, CommandKind::Acquire) - before;
    assert!(sent < 3 * 3 * 60, "{sent} commands in three seconds");
    let released = world.now;
    (0..3).for_each(|host| world.delete(host, "0007"));
    hold(&mut world, 0..3, ["0008", "0009"]);
    assert_eq!(key_of(&acquired(&mut world, a, id)), "0007");
    assert!(world.now.since(released) < ms(40), "{:?}", world.now.since(released));
}

#[test]
fn waiter_gets_a_key_whose_deletion_was_not_pushed() {
    let names = many_names();
    let names: Vec<_> = names.iter().take(40).map(String::as_str).collect();
    let (mut world, a) = world_without_free_key(&names, 17);
    let id = world.acquire(a, wait_for_any(&world, &names));
    world.run_for(2 * SECOND);
    for host in 0..3 {
        let wall_us = world.wall_us(host);
        let _lost = world.hosts[host].server.delete(b"0033", wall_us);
    }
    let began = world.now;
    assert_eq!(key_of(&acquired(&mut world, a, id)), "0033");
    assert!(world.now.since(began) < 5 * SECOND, "{:?}", world.now.since(began));
}
