//! Tests of releases: which nodes receive a release, and for how long an unanswered release is resent.

use super::world_calls_tests::{TTL, request, ttl, waiting};
use super::world_tests::{HostState, NODE_TIMEOUT, World, ms};
use super::{AcquireRequest, Completion};
use crate::observe::NodeVote;
use crate::observe::event::{CommandKind, Event};
use crate::protocol::Outcome;
use quorlock_test::Trouble;
use quorlock_test::internals::Config;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn refused_attempt_sends_no_release_to_nodes_that_refused() {
    let mut world = World::new(3, 1);
    let [a, b] = [world.connected(), world.connected()];
    let held = world.lock(a, request(&["k"]));
    world.run_for(ms(5));
    let id = world.acquire(b, request(&["k"]));
    assert!(world.acquired(b, id).is_err());
    world.run_for(ms(5));
    assert_eq!(world.finished(b, CommandKind::Acquire), 3);
    assert_eq!(world.finished(b, CommandKind::Release), 0);
    world.release(&held);
    world.run_for(ms(5));
    world.assert_idle();
}

#[test]
fn node_that_grants_a_refused_attempt_receives_a_release() {
    let mut world = World::new(3, 2);
    let [a, b] = [world.connected(), world.connected()];
    world.lock(a, request(&["k"]));
    world.run_for(ms(5));
    world.delete(2, "k");
    let id = world.acquire(b, request(&["k"]));
    assert!(world.acquired(b, id).is_err());
    world.run_for(ms(5));
    assert_eq!(world.finished(b, CommandKind::Release), 1);
    assert_eq!(world.copies("k"), 2);
}

/// Releases a lock before node 2 has received the acquire: the command is delayed by 5 seconds, and its connection
/// breaks before the release. Returns the index of the process.
fn release_before_a_late_acquire(world: &mut World) -> usize {
    let a = world.connected();
    world.run_for(2 * SECOND);
    let request = AcquireRequest { ttl: ttl(30 * SECOND), ..request(&["k"]) };
    let id = world.acquire(a, request);
    world.turn();
    world.delay_commands(2, 5 * SECOND);
    let held = world.acquired(a, id).expect("two nodes suffice");
    world.cut(2);
    world.run_for(ms(20));
    world.release(&held);
    a
}

#[test]
fn broken_connection_is_killed_before_the_release_is_written() {
    let mut world = World::new(3, 3);
    let a = release_before_a_late_acquire(&mut world);
    world.run_for(ms(20));
    let (coordinator, _) = world.coordinator(a);
    assert_eq!(coordinator.pending_releases(World::node(2)), 0, "one release suffices");
    world.run_for(6 * SECOND);
    assert_eq!(world.copies("k"), 0);
    world.assert_idle();
}

#[test]
fn release_is_repeated_if_the_stale_connection_is_not_killed() {
    let mut world = World::new(3, 4);
    world.hosts[2].server.configure(|config: &mut Config| {
        config.forbidden.insert("client|kill".into());
    });
    let a = release_before_a_late_acquire(&mut world);
    world.run_for(ms(4_900));
    assert_eq!(world.copies("k"), 0);
    world.run_for(ms(600));
    assert_eq!(world.copies("k"), 0, "the late acquire is undone");
    let (coordinator, _) = world.coordinator(a);
    assert_eq!(coordinator.pending_releases(World::node(2)), 1);
    world.run_for(6 * SECOND);
    world.assert_idle();
}

#[test]
fn release_that_is_lost_with_its_connection_is_repeated() {
    let mut world = World::new(3, 5);
    let a = world.connected();
    world.run_for(2 * SECOND);
    let held = world.lock(a, request(&["k"]));
    world.run_for(ms(5));
    let call = world.release(&held);
    world.turn();
    world.lose_commands(1);
    world.cut(1);
    world.run_for(ms(20));
    assert_eq!(world.copies("k"), 0);
    let is_released = |it: &Completion| {
        matches!(it, Completion::Released { call: known, outcome: Outcome::Won, .. }
            if *known == call)
    };
    assert!(world.processes[a].completions.iter().any(is_released));
    world.run_for(5 * SECOND);
    world.assert_idle();
}

#[test]
fn release_behind_many_others_waits_for_responsive_nodes() {
    // Four pipelines are in flight, of 512 commands each.
    const ALL: usize = 2_100;
    let mut world = World::new(3, 15);
    let a = world.connected();
    let now = world.now;
    let names: Vec<_> = (0..ALL).map(|number| format!("k{number}")).collect();
    let ids: Vec<_> =
        names.iter().map(|name| world.acquire(a, waiting(&[name], now, SECOND))).collect();
    let held: Vec<_> = ids.into_iter().map(|id| world.acquired(a, id).expect("free")).collect();
    world.run_for(ms(5));
    // A round trip takes nearly the node timeout, so the last releases are written shortly before their time is over.
    world.delay = NODE_TIMEOUT * 9 / 20;
    for held in &held {
        world.release(held);
    }
    world.run_for(3 * NODE_TIMEOUT);
    let is_released = |it: &&Completion| matches!(it, Completion::Released { outcome, .. } if *outcome == Outcome::Won);
    let released = world.processes[a].completions.iter().filter(is_released).count();
    assert_eq!(released, ALL);
    world.assert_idle();
}

#[test]
fn release_runs_after_the_server_has_forgotten_its_scripts() {
    let mut world = World::new(3, 6);
    let a = world.connected();
    let held = world.lock(a, request(&["k"]));
    world.run_for(ms(5));
    for host in 0..3 {
        world.flush_scripts(host);
    }
    world.release(&held);
    world.run_for(ms(5));
    assert_eq!(world.copies("k"), 0);
    world.assert_idle();
}

#[test]
fn pending_release_runs_before_a_waiting_acquire() {
    let mut world = World::new(3, 9);
    let a = world.connected();
    world.run_for(2 * SECOND);
    let held = world.lock(a, request(&["k"]));
    world.run_for(ms(5));
    world.release(&held);
    world.turn();
    world.lose_commands(0);
    world.cut(0);
    let next = world.lock(a, request(&["k"]));
    world.run_for(ms(40));
    assert!(world.is_valid(&next));
    assert_eq!(world.copies("k"), 3);
}

#[test]
fn scripts_that_were_forgotten_are_repeated_in_order() {
    let mut world = World::new(3, 10);
    let a = world.connected();
    let held = world.lock(a, request(&["k"]));
    world.run_for(ms(5));
    for host in 0..3 {
        world.flush_scripts(host);
        world.set_state(host, HostState::Hung);
    }
    world.release(&held);
    world.turn();
    let id = world.acquire(a, request(&["k", "other"]));
    world.turn();
    for connection in world.connections(a) {
        world.hold_up(a, connection, ms(10));
    }
    for host in 0..3 {
        world.set_state(host, HostState::Up);
    }
    assert!(world.acquired(a, id).is_ok());
}

#[test]
fn pending_release_ends_when_its_key_must_have_expired() {
    let mut world = World::new(3, 7);
    let a = world.connected();
    let held = world.lock(a, request(&["k"]));
    world.run_for(ms(5));
    world.set_trouble(0, Some(Trouble::Busy));
    world.release(&held);
    world.run_for(ms(9_000));
    let (coordinator, _) = world.coordinator(a);
    assert_eq!(coordinator.pending_releases(World::node(0)), 1);
    world.run_for(2 * SECOND);
    let (coordinator, _) = world.coordinator(a);
    assert_eq!(coordinator.pending_releases(World::node(0)), 0);
    world.assert_idle();
}

#[test]
fn extension_of_a_released_lease_is_not_written() {
    let mut world = World::new(3, 8);
    let a = world.connected();
    let held = world.lock(a, request(&["k"]));
    world.run_for(ms(5));
    let (coordinator, now) = world.coordinator(a);
    coordinator.handle_extend(held.id, ttl(TTL), now).expect("held");
    world.release(&held);
    world.run_for(ms(5));
    assert_eq!(world.finished(a, CommandKind::Extend), 0);
    assert_eq!(world.copies("k"), 0);
    world.assert_idle();
}

#[test]
fn cancelled_commands_do_not_accumulate() {
    let mut world = World::new(3, 9);
    let a = world.connected();
    for _ in 0..20_000 {
        let id = world.acquire(a, request(&["k"]));
        let (coordinator, now) = world.coordinator(a);
        coordinator.handle_cancel(id, now);
    }
    let (coordinator, _) = world.coordinator(a);
    let waiting: Vec<_> = coordinator.nodes.iter().map(super::node::Node::waiting).collect();
    assert!(waiting.iter().all(|count| *count <= 1 << 12), "{waiting:?}");
    world.run_for(ms(5));
    assert_eq!(world.finished(a, CommandKind::Acquire), 0, "none was written");
    world.assert_idle();
}

#[test]
fn command_behind_many_cancelled_ones_is_written_at_once() {
    let mut world = World::new(3, 10);
    let a = world.connected();
    for _ in 0..2_000 {
        let id = world.acquire(a, request(&["k"]));
        let (coordinator, now) = world.coordinator(a);
        coordinator.handle_cancel(id, now);
    }
    let began = world.now;
    world.lock(a, request(&["k"]));
    assert!(world.now.since(began) < ms(1));
}

#[test]
fn isolated_release_that_closes_connections_fails_alone() {
    let mut world = World::new(3, 11);
    world.delay = ms(5);
    let a = world.connected();
    world.run_for(2 * SECOND);
    let held = world.lock(a, request(&["k"]));
    world.run_for(ms(20));
    world.close_on("EVALSHA", 0);
    world.release(&held);
    for round in 0..1_250 {
        if round == 250 {
            // From this round on, the release is isolated.
            world.processes[a].events.clear();
        }
        world.acquire(a, request(&[&format!("other-{round}")]));
        world.run_for(ms(4));
        for completion in &world.processes[a].completions {
            if let Completion::Acquired { shared, .. } = completion {
                shared.take(world.now);
            }
        }
    }
    let events = &world.processes[a].events;
    let is_closed = |event: &&Event| matches!(event, Event::ConnectionClosed { .. });
    let closed = events.iter().filter(is_closed).count();
    assert!((1..=3).contains(&closed), "closed {closed} times");
    let has_failed = |event: &&Event| {
        matches!(event, Event::CommandFinished { command: CommandKind::Acquire, vote, .. }
            if *vote != NodeVote::Granted)
    };
    assert_eq!(events.iter().find(has_failed), None);
}

#[test]
fn isolated_release_waits_for_a_release_that_closes_connections() {
    let mut world = World::new(3, 14);
    let a = world.connected();
    world.run_for(2 * SECOND);
    let lasting = |key: &str| AcquireRequest { ttl: ttl(30 * SECOND), ..request(&[key]) };
    let other = world.lock(a, lasting("k"));
    world.run_for(ms(5));
    world.set_trouble(0, Some(Trouble::Busy));
    for _ in 0..12 {
        let held = world.lock(a, lasting("closing"));
        world.release(&held);
        world.run_for(ms(5));
    }
    world.release(&other);
    world.run_for(ms(5));
    world.close_on("closing", 0);
    world.set_trouble(0, None);
    world.run_for(SECOND);
    assert_eq!(world.copies("k"), 1, "its release is isolated");
    world.run_for(6 * SECOND);
    assert_eq!(world.copies("k"), 0);
}

#[test]
fn release_after_a_stall_is_not_dropped_at_the_expiry() {
    let mut world = World::new(3, 12);
    let a = world.connected();
    world.set_state(2, HostState::Hung);
    let held = world.lock(a, AcquireRequest { ttl: ttl(ms(300)), ..request(&["k"]) });
    world.run_for(ms(100));
    world.release(&held);
    world.run_for(ms(600));
    // The node executes the acquire only now, and the key has a TTL of 300 ms.
    world.set_state(2, HostState::Up);
    world.run_for(ms(10));
    assert_eq!(world.copies("k"), 0);
    world.run_for(11 * SECOND);
    world.assert_idle();
}

#[test]
fn release_has_a_new_timeout_on_a_new_runtime() {
    let mut world = World::new(3, 13);
    let a = world.connected();
    let held = world.lock(a, request(&["k"]));
    for host in 0..3 {
        world.set_state(host, HostState::Hung);
    }
    world.release(&held);
    world.run_for(NODE_TIMEOUT / 2);
    let (coordinator, now) = world.coordinator(a);
    coordinator.handle_new_runtime(now);
    let is_released = |world: &World| {
        let completions = &world.processes[a].completions;
        completions.iter().any(|completion| matches!(completion, Completion::Released { .. }))
    };
    world.run_for(ms(49));
    assert!(!is_released(&world));
    world.run_for(ms(2));
    assert!(is_released(&world));
}
