//! Tests of acquires that need any one of several keys.

use super::world_calls_tests::{Held, keys, request, waiting};
use super::world_tests::{HostState, World, ms};
use super::{AcquireId, AcquireRequest};
use crate::observe::event::CommandKind;
use crate::protocol::Ttl;
use crate::wire::{CounterKeys, queue_name};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const ABC: [&str; 3] = ["a", "b", "c"];

fn any_of(request: AcquireRequest) -> AcquireRequest {
    AcquireRequest { any_of: Some(queue_name(&request.keys)), ..request }
}

pub(super) fn try_any(names: &[&str]) -> AcquireRequest {
    any_of(request(names))
}

pub(super) fn wait_for_any(world: &World, names: &[&str]) -> AcquireRequest {
    any_of(waiting(names, world.now, 60 * SECOND))
}

pub(super) fn key_of(held: &Held) -> String {
    let keys = held.shared.claim().keys();
    assert_eq!(keys.len(), 1);
    String::from_utf8_lossy(keys.first()).into_owned()
}

/// Sets `keys` on `hosts` to the value of another client.
pub(super) fn hold<'a>(
    world: &mut World,
    hosts: Range<usize>,
    keys: impl IntoIterator<Item = &'a str>,
) {
    for key in keys {
        hosts.clone().for_each(|host| world.put(host, key, "other", 50 * SECOND));
    }
}

pub(super) fn acquired(world: &mut World, process: usize, id: AcquireId) -> Held {
    world.acquired(process, id).expect("a lease")
}

/// Makes all nodes cache the scripts that acquire and release one of several keys.
pub(super) fn load_scripts(world: &mut World, process: usize) {
    let id = world.acquire(process, try_any(&ABC));
    let held = acquired(world, process, id);
    world.release(&held);
    world.run_for(ms(20));
}

#[test]
fn attempts_lock_one_free_key_each_until_all_are_held() {
    let mut world = World::new(3, 1);
    let a = world.connected();
    let mut leases = BTreeMap::new();
    for _ in ABC {
        let id = world.acquire(a, try_any(&ABC));
        let held = acquired(&mut world, a, id);
        leases.insert(key_of(&held), held);
    }
    assert_eq!(leases.keys().collect::<Vec<_>>(), ABC.iter().collect::<Vec<_>>());
    assert_eq!(world.finished(a, CommandKind::Acquire), 9, "one round for each lease");
    let id = world.acquire(a, try_any(&ABC));
    let Err(failure) = world.acquired(a, id) else { panic!("all keys are held") };
    assert!(format!("{failure:?}").contains("Contended"), "{failure:?}");
    assert_eq!(ABC.map(|key| world.copies(key)), [3; 3]);
    for held in leases.values() {
        world.release(held);
    }
    world.run_for(ms(5));
    assert_eq!(ABC.map(|key| world.copies(key)), [0; 3]);
    world.assert_idle();
}

#[test]
fn only_a_quorum_for_the_same_key_is_a_grant() {
    for seed in 0..40 {
        let mut world = World::new(3, seed);
        let a = world.connected();
        // Each node has another key that is free.
        for (host, free) in ABC.into_iter().enumerate() {
            hold(&mut world, host..host + 1, ABC.into_iter().filter(|key| *key != free));
        }
        let id = world.acquire(a, try_any(&ABC));
        let Err(failure) = world.acquired(a, id) else { panic!("three nodes set three keys") };
        assert!(format!("{failure:?}").contains("Contended"), "{failure:?}");
        world.run_for(ms(5));
        assert_eq!(ABC.map(|key| world.copies(key)), [2; 3], "the grants are released");
        world.assert_idle();
    }
}

#[test]
fn attempts_continue_until_every_key_was_tried() {
    let names: Vec<_> = (0..50).map(|name| format!("{name:02}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    for seed in 0..10 {
        let mut world = World::new(3, seed);
        let a = world.connected();
        hold(&mut world, 0..3, names.iter().copied().filter(|name| *name != "17"));
        let id = world.acquire(a, try_any(&names));
        let held = acquired(&mut world, a, id);
        assert_eq!(key_of(&held), "17");
        assert!(world.finished(a, CommandKind::Acquire) <= 4 * 3);
        let id = world.acquire(a, try_any(&names));
        assert!(world.acquired(a, id).is_err(), "all keys are held");
        world.release(&held);
        world.run_for(ms(5));
        world.assert_idle();
    }
}

/// Ten clients use ten keys. Five keys are held, and two clients release their key while two others acquire one.
#[test]
fn acquires_with_half_of_the_keys_held_take_few_rounds() {
    let names = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
    let (mut rounds, mut leases) = (0, 0);
    for seed in 0..4 {
        let mut world = World::new(5, seed);
        world.jitter = world.delay;
        let processes: Vec<_> = (0..10).map(|_| world.connected()).collect();
        let (mut holders, mut others) = (VecDeque::new(), VecDeque::from(processes.clone()));
        for step in 0..50 {
            for (process, held) in holders.drain(..if step < 3 { 0 } else { 2 }) {
                world.release(&held);
                others.push_back(process);
            }
            let acquiring: Vec<_> = others.drain(..if step == 0 { 1 } else { 2 }).collect();
            let acquiring: Vec<_> = acquiring
                .into_iter()
                .map(|process| (process, world.acquire(process, wait_for_any(&world, &names))))
                .collect();
            for (process, id) in acquiring {
                let held = acquired(&mut world, process, id);
                holders.push_back((process, held));
                leases += 1;
            }
        }
        rounds +=
            processes.iter().map(|it| world.finished(*it, CommandKind::Acquire)).sum::<usize>() / 5;
    }
    println!("{rounds} rounds for {leases} leases");
    assert!(2 * rounds <= 3 * leases, "{rounds} rounds for {leases} leases");
}

#[test]
fn fencing_tokens_are_counted_for_each_key() {
    let mut world = World::new(3, 7);
    let a = world.connected();
    let counters = CounterKeys::for_keys(&keys(&ABC), Ttl::SHORTEST).map(Arc::new).ok();
    let mut last = BTreeMap::new();
    for _ in 0..20 {
        let request = AcquireRequest { counters: counters.clone(), ..try_any(&ABC) };
        let id = world.acquire(a, request);
        let held = acquired(&mut world, a, id);
        let fence = held.shared.claim().fence().expect("counters");
        let token = fence.token().expect("a token");
        let earlier = last.insert(key_of(&held), token);
        assert!(earlier.is_none_or(|earlier| earlier < token), "{earlier:?} {token}");
        world.release(&held);
        world.run_for(ms(5));
    }
    assert_eq!(last.len(), 3, "each key was locked");
}

#[test]
fn node_that_grants_another_key_counts_as_held_in_reports() {
    for seed in 0..20 {
        let mut world = World::new(5, seed);
        let a = world.connected();
        hold(&mut world, 0..2, ["a", "b"]);
        hold(&mut world, 0..5, ["d", "e"]);
        let id = world.acquire(a, try_any(&["a", "b", "c", "d", "e"]));
        let held = acquired(&mut world, a, id);
        world.run_for(ms(5));
        let (coordinator, now) = world.coordinator(a);
        let report = coordinator.lease_report(held.id, now).expect("the replies");
        let key = key_of(&held);
        assert_eq!(report.granted(), if key == "c" { 5 } else { 3 }, "locked {key}");
        assert_eq!(world.copies("c"), if key == "c" { 5 } else { 0 });
        world.release(&held);
        world.run_for(ms(5));
        world.assert_idle();
    }
}

#[test]
fn nodes_that_set_another_key_set_the_chosen_key_afterwards() {
    for (seed, minority) in (0..20).zip([0..2, 3..5].into_iter().cycle()) {
        let mut world = World::new(5, seed);
        let a = world.connected();
        hold(&mut world, 0..5, ["b", "c"]);
        hold(&mut world, minority.clone(), ["a"]);
        minority.clone().for_each(|host| world.delete(host, "b"));
        // The nodes of the minority set b. The other client releases a on these nodes just after their replies.
        let id = world.acquire(a, try_any(&ABC));
        let held = acquired(&mut world, a, id);
        assert_eq!(key_of(&held), "a");
        world.run_for(Duration::from_micros(150));
        minority.for_each(|host| world.delete(host, "a"));
        world.run_for(ms(20));
        assert_eq!(world.copies("b"), 3, "seed {seed}");
        world.release(&held);
        world.run_for(ms(20));
        assert_eq!(world.copies("a"), 0, "seed {seed}");
    }
}

#[test]
fn node_that_connects_after_the_win_sets_the_chosen_key() {
    let mut world = World::new(3, 12);
    world.set_state(2, HostState::Hung);
    let a = world.process();
    let id = world.acquire(a, try_any(&ABC));
    let held = acquired(&mut world, a, id);
    world.set_state(2, HostState::Up);
    world.run_for(ms(20));
    assert_eq!(world.copies(&key_of(&held)), 3);
}

/// The last attempt of a rotation over 17 keys tries a single key.
#[test]
fn attempt_with_a_single_key_keeps_this_key() {
    let names: Vec<_> = (0..17).map(|name| format!("{name:02}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    for seed in 0..60 {
        let mut world = World::new(3, seed);
        let a = world.connected();
        hold(&mut world, 0..3, names[1..].iter().copied());
        let id = world.acquire(a, try_any(&names));
        world.turn();
        world.delay_commands(2, ms(20));
        let held = acquired(&mut world, a, id);
        world.run_for(ms(50));
        assert_eq!((key_of(&held).as_str(), world.copies("00")), ("00", 3), "seed {seed}");
    }
}
