//! Tests of acquires of any one of several keys: the release of the keys that a lease does not hold.

use super::AcquireRequest;
use super::any_of_tests::{
    ABC, SECOND, acquired, hold, key_of, load_scripts, try_any, wait_for_any,
};
use super::world_calls_tests::{keys, request, ttl};
use super::world_tests::{HostState, World, ms};
use crate::observe::event::CommandKind;
use crate::protocol::Ttl;
use crate::wire::CounterKeys;
use quorlock_test::internals::Config;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn grants_for_other_keys_are_released() {
    for seed in 0..40 {
        let mut world = World::new(5, seed);
        let a = world.connected();
        hold(&mut world, 0..2, ["b"]);
        hold(&mut world, 0..5, ["a"]);
        let id = world.acquire(a, try_any(&ABC));
        let held = acquired(&mut world, a, id);
        world.run_for(ms(5));
        // If the rotation begins at b, two nodes set c instead.
        let (key, copies) = (key_of(&held), ["b", "c"].map(|key| world.copies(key)));
        assert_eq!(copies, if key == "b" { [5, 0] } else { [2, 5] }, "locked {key}");
        world.release(&held);
        world.run_for(ms(5));
        assert_eq!(["b", "c"].map(|key| world.copies(key)), [2, 0]);
        world.assert_idle();
    }
}

/// A node replies that it does not know the script, after the other nodes have granted the acquire.
#[test]
fn node_without_the_script_gets_the_other_keys_release_once() {
    let mut world = World::new(3, 12);
    let a = world.connected();
    world.flush_scripts(2);
    let id = world.acquire(a, try_any(&ABC));
    world.delay_commands(2, ms(1));
    let held = acquired(&mut world, a, id);
    world.run_for(ms(50));
    assert_eq!((world.copies(&key_of(&held)), world.finished(a, CommandKind::Release)), (3, 1));
    world.release(&held);
    world.run_for(ms(50));
    assert_eq!(world.finished(a, CommandKind::Release), 4);
    world.assert_idle();
}

#[test]
fn key_that_a_hung_node_sets_late_is_released() {
    for seed in 0..20 {
        let mut world = World::new(3, seed);
        let a = world.connected();
        // Only node 2 finds other keys free than the others.
        hold(&mut world, 0..2, ["a", "b"]);
        world.set_state(2, HostState::Hung);
        let id = world.acquire(a, try_any(&ABC));
        let held = acquired(&mut world, a, id);
        assert_eq!(key_of(&held), "c");
        world.run_for(SECOND);
        world.set_state(2, HostState::Up);
        world.run_for(3 * SECOND);
        assert_eq!(["a", "b"].map(|key| world.copies(key)), [2, 2]);
        world.release(&held);
        world.run_for(3 * SECOND);
        assert_eq!(world.copies("c"), 0);
    }
}

#[test]
fn key_that_a_slow_node_sets_is_released_with_the_lease() {
    for seed in 0..20 {
        let mut world = World::new(3, seed);
        let a = world.connected();
        load_scripts(&mut world, a);
        hold(&mut world, 0..2, ["a", "b"]);
        let id = world.acquire(a, try_any(&ABC));
        world.turn();
        world.delay_commands(2, ms(20));
        let held = acquired(&mut world, a, id);
        world.release(&held);
        world.run_for(ms(40));
        assert_eq!(ABC.map(|key| world.copies(key)), [2, 2, 0], "seed {seed}");
    }
}

/// The other nodes' votes decide the key long before the hung node's connection is abandoned.
#[test]
fn key_that_a_hung_node_sets_is_released_while_the_lease_is_extended() {
    let mut world = World::new(3, 16);
    let a = world.connected();
    load_scripts(&mut world, a);
    hold(&mut world, 0..2, ["a", "b"]);
    let extended = AcquireRequest { max_hold: Some(3_600 * SECOND), ..try_any(&ABC) };
    let id = world.acquire(a, AcquireRequest { ttl: ttl(ms(500)), ..extended });
    world.turn();
    world.set_state(2, HostState::Hung);
    let held = acquired(&mut world, a, id);
    let (coordinator, now) = world.coordinator(a);
    coordinator.handle_taken(held.id, now);
    world.run_for(10 * SECOND);
    world.set_state(2, HostState::Up);
    world.run_for(ms(100));
    assert!(world.is_valid(&held));
    assert_eq!(ABC.map(|key| world.copies(key)), [2, 2, 3]);
}

/// The nodes' counters differ, so the token must be confirmed. Two of the three nodes stop during the confirmation.
#[test]
fn unconfirmed_token_releases_all_keys() {
    let counters = CounterKeys::for_keys(&keys(&ABC), Ttl::SHORTEST).map(Arc::new).ok();
    for seed in 0..20 {
        let mut world = World::new(3, seed);
        let a = world.connected();
        hold(&mut world, 0..2, ["a", "b"]);
        world.put(0, "c#quorlock:token:{c}", "9000000000000000", 50 * SECOND);
        let id = world.acquire(a, AcquireRequest { counters: counters.clone(), ..try_any(&ABC) });
        let limit = world.now.after(ms(20));
        assert!(world.run_until(limit, |world| world.copies("c") >= 2));
        world.run_for(Duration::from_micros(150));
        (0..2).for_each(|host| world.set_state(host, HostState::Hung));
        assert!(world.acquired(a, id).is_err(), "seed {seed}");
        world.run_for(ms(20));
        assert_eq!(["a", "b"].map(|key| world.copies(key)), [2, 2], "seed {seed}");
    }
}

/// A connection that the server cannot kill breaks before or after the other nodes' votes have decided the key. In the
/// second case, the release that was already written is lost.
#[test]
fn key_that_is_set_after_a_broken_connection_is_released() {
    for (seed, is_before) in (0..40).zip([true, false].into_iter().cycle()) {
        let mut world = World::new(3, seed);
        world.hosts[2].server.configure(|config: &mut Config| {
            config.forbidden.insert("client|kill".into());
        });
        let a = world.connected();
        load_scripts(&mut world, a);
        hold(&mut world, 0..2, ["a", "b"]);
        let id = world.acquire(a, try_any(&ABC));
        world.turn();
        world.delay_commands(2, SECOND);
        let acquire_sent = world.serial;
        if is_before {
            world.cut(2);
        }
        let held = acquired(&mut world, a, id);
        if !is_before {
            world.lose_commands_after(2, acquire_sent);
            world.cut(2);
        }
        world.run_for(5 * SECOND);
        assert_eq!(["a", "b"].map(|key| world.copies(key)), [2, 2], "seed {seed}");
        world.release(&held);
        world.run_for(3 * SECOND);
        assert_eq!(world.copies("c"), 0, "seed {seed}");
    }
}

#[test]
fn dropped_acquire_does_not_look_like_lost_data() {
    let mut world = World::new(3, 8);
    let a = world.connected();
    let id = world.acquire(a, try_any(&ABC));
    world.run_until(world.now.after(ms(1)), |world| world.copies("a") + world.copies("b") > 2);
    let (coordinator, now) = world.coordinator(a);
    coordinator.handle_cancel(id, now);
    world.run_for(ms(20));
    (0..3).for_each(|host| world.flush(host));
    world.run_for(ms(20));
    let held = world.lock(a, request(&["k"]));
    assert!(world.is_valid(&held));
}

#[test]
fn dropped_acquires_leave_no_keys() {
    for seed in 0..50 {
        let mut world = World::new(3, seed);
        let a = world.connected();
        let id = world.acquire(a, wait_for_any(&world, &ABC));
        world.run_for(Duration::from_micros(20 * seed));
        let (coordinator, now) = world.coordinator(a);
        coordinator.handle_cancel(id, now);
        world.run_for(ms(20));
        assert_eq!(ABC.map(|key| world.copies(key)), [0; 3], "seed {seed}");
        world.assert_idle();
    }
}
