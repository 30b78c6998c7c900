//! Tests of multi-key acquires on servers that support `MSETEX`.

use super::AcquireRequest;
use super::world_calls_tests::{request, waiting};
use super::world_tests::{World, ms};
use crate::observe::event::CommandKind;
use crate::protocol::RetryPolicy;
use quorlock_test::internals::{Config, Version};
use std::time::Duration;

const VERSIONS: [Version; 2] = [Version::valkey(9, 1, 2), Version::redis(8, 4, 0)];

fn world(version: &Version, seed: u64) -> World {
    let mut world = World::new(3, seed);
    for host in &mut world.hosts {
        host.server.configure(|config: &mut Config| config.version = version.clone());
    }
    world
}

#[test]
fn set_refused_by_msetex_sets_no_key_and_sends_no_release() {
    for (seed, version) in (1..).zip(VERSIONS) {
        let mut world = world(&version, seed);
        let [a, b] = [world.connected(), world.connected()];
        let held = world.lock(a, request(&["b"]));
        world.run_for(ms(5));
        let id = world.acquire(b, request(&["a", "b", "c"]));
        let Err(failure) = world.acquired(b, id) else { panic!("b is held") };
        assert!(format!("{failure:?}").contains("Contended"), "{failure:?}");
        world.run_for(ms(5));
        assert_eq!((world.copies("a"), world.copies("b"), world.copies("c")), (0, 3, 0));
        assert_eq!(world.finished(b, CommandKind::Acquire), 3, "one result for each node");
        assert_eq!(world.finished(b, CommandKind::Release), 0);
        world.release(&held);
        world.run_for(ms(5));
        world.assert_idle();
    }
}

#[test]
fn set_refused_by_msetex_is_acquired_after_a_push() {
    for (seed, version) in (3..).zip(VERSIONS) {
        let mut world = world(&version, seed);
        let [a, b] = [world.connected(), world.connected()];
        let held = world.lock(a, request(&["b"]));
        world.run_for(ms(5));
        let wait = waiting(&["a", "b", "c"], world.now, Duration::from_secs(5));
        let id = world.acquire(b, wait);
        world.run_for(ms(500));
        world.release(&held);
        let released_at = world.now;
        let set = world.acquired(b, id).expect("the key is free");
        let waited = world.now.since(released_at);
        assert!(waited < ms(100), "{waited:?}: the node pushes the deletion");
        world.run_for(ms(5));
        assert_eq!(["a", "b", "c"].map(|key| world.copies(key)), [3; 3]);
        world.release(&set);
        world.run_for(ms(5));
        assert_eq!(["a", "b", "c"].map(|key| world.copies(key)), [0; 3]);
        world.assert_idle();
    }
}

/// Node 2 pushes no deletion: it refuses `MSETEX` only after the attempt has ended, so the client no longer sends the
/// script that would request the push. The acquire must still try again promptly.
#[test]
fn set_refused_late_by_msetex_tries_once_a_quorum_may_be_free() {
    for (seed, is_deleted_first) in [(5, true), (6, false)] {
        let mut world = world(&VERSIONS[0], seed);
        let a = world.connected();
        for host in 0..3 {
            world.put(host, "b", "other", Duration::from_secs(50));
        }
        let schedule = RetryPolicy::fixed(Duration::from_secs(40)).schedule();
        let wait = waiting(&["a", "b"], world.now, Duration::from_secs(60));
        let id = world.acquire(a, AcquireRequest { schedule, ..wait });
        world.turn();
        world.delay_commands(2, ms(15));
        world.run_for(ms(10));
        if !is_deleted_first {
            world.run_for(ms(20));
        }
        world.delete(0, "b");
        world.run_for(ms(3));
        let deleted_at = world.now;
        world.delete(2, "b");
        let set = world.acquired(a, id).expect("a majority is free");
        let waited = world.now.since(deleted_at);
        assert!(waited < ms(100), "{waited:?}: is_deleted_first: {is_deleted_first}");
        world.release(&set);
    }
}
