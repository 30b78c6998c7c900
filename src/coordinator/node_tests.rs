//! Tests of node faults: restarts, stalls, broken connections, refused commands and clock steps.

use super::world_calls_tests::{TTL, request, waiting};
use super::world_tests::{HostState, NODE_TIMEOUT, World, ms};
use super::{AcquireFailure, Completion};
use crate::observe::event::Event;
use crate::observe::{NodeState, VoteEligibility};
use crate::protocol::{Refusal, Time};
use crate::wire::NodeFailure;
use quorlock_test::Trouble;
use quorlock_test::internals::Config;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn restarted_node_does_not_count_for_a_quarantine_period() {
    let mut world = World::new(3, 1);
    let [a, b] = [world.connected(), world.connected()];
    let held = world.lock(a, request(&["k"]));
    world.run_for(ms(5));
    world.set_state(2, HostState::Down);
    world.delete(2, "k");
    // Nodes 0 and 1 hold the lock. Node 1 then loses its data.
    world.restart(1);
    world.set_state(2, HostState::Up);
    world.run_for(SECOND);
    assert_eq!(world.copies("k"), 1);
    let id = world.acquire(b, request(&["k"]));
    let failure = world.acquired(b, id).err();
    assert!(matches!(failure, Some(AcquireFailure::Refused { .. })), "{failure:?}");
    assert!(world.is_valid(&held), "no other client has acquired the lock");
    let (coordinator, now) = world.coordinator(b);
    let eligibility = coordinator.eligibility(World::node(1), now);
    let restarted = matches!(eligibility, VoteEligibility::Excluded(NodeFailure::Restarted { .. }));
    assert!(restarted, "{eligibility:?}");
    world.run_for(Duration::from_secs(70));
    let (coordinator, now) = world.coordinator(b);
    assert_eq!(coordinator.eligibility(World::node(1), now), VoteEligibility::Counted);
}

#[test]
fn new_deployment_works_at_once() {
    let mut world = World::new(3, 2);
    for host in 0..3 {
        world.restart(host);
    }
    let a = world.process();
    let held = world.lock(a, request(&["k"]));
    world.release(&held);
    world.run_for(ms(10));
    world.assert_idle();
}

#[test]
fn flushed_node_does_not_count() {
    let mut world = World::new(3, 3);
    let [a, b] = [world.connected(), world.connected()];
    let held = world.lock(a, request(&["k"]));
    let waiter = world.acquire(b, waiting(&["other"], world.now, SECOND));
    world.acquired(b, waiter).expect("free");
    world.run_for(ms(5));
    world.flush(0);
    world.run_for(ms(5));
    let (coordinator, now) = world.coordinator(a);
    let ttl = crate::protocol::Ttl::from_duration(TTL).expect("a ttl");
    coordinator.handle_extend(held.id, ttl, now).expect("held");
    world.run_for(ms(5));
    let (coordinator, now) = world.coordinator(a);
    let eligibility = coordinator.eligibility(World::node(0), now);
    let flushed = matches!(eligibility, VoteEligibility::Excluded(NodeFailure::Flushed { .. }));
    assert!(flushed, "{eligibility:?}");
}

#[test]
fn late_set_of_a_broken_connection_is_undone() {
    let mut world = World::new(3, 4);
    let a = world.connected();
    world.set_state(2, HostState::Hung);
    let held = world.lock(a, request(&["k"]));
    world.release(&held);
    // The client abandons the connection, and the server later executes the commands that it has received.
    world.run_for(3 * SECOND);
    let closed = world.processes[a].events.iter().any(|event| {
        matches!(event, Event::ConnectionClosed { reason: Some(NodeFailure::Stalled(_)), .. })
    });
    assert!(closed);
    world.set_state(2, HostState::Up);
    world.run_for(15 * SECOND);
    assert_eq!(world.copies("k"), 0);
    let held = world.lock(a, request(&["k"]));
    assert!(world.is_valid(&held));
    world.run_for(ms(5));
    assert_eq!(world.copies("k"), 3);
}

#[test]
fn hung_node_is_reported_as_stalled_and_recovers() {
    let mut world = World::new(3, 5);
    let a = world.connected();
    world.set_state(0, HostState::Hung);
    let held = world.lock(a, request(&["k"]));
    world.run_for(ms(80));
    let (coordinator, _) = world.coordinator(a);
    assert_eq!(coordinator.node_state(World::node(0)), NodeState::Stalled);
    let began = world.now;
    let second = world.lock(a, request(&["l"]));
    assert!(world.now.since(began) < ms(5), "a stalled node is not waited for");
    world.set_state(0, HostState::Up);
    world.run_for(ms(20));
    let (coordinator, _) = world.coordinator(a);
    assert_eq!(coordinator.node_state(World::node(0)), NodeState::Up);
    for held in [held, second] {
        world.release(&held);
    }
    world.run_for(ms(20));
    world.assert_idle();
}

#[test]
fn silent_quorum_gets_second_connections() {
    let mut world = World::new(3, 6);
    let a = world.connected();
    // From the client's view, hung nodes look like a network that drops all connections without notice.
    for host in 0..3 {
        world.set_state(host, HostState::Hung);
    }
    let id = world.acquire(a, request(&["k"]));
    assert!(world.acquired(a, id).is_err());
    world.run_for(ms(400));
    let seconds = world.second_connections(a);
    assert_eq!(seconds, 3);
    for host in 0..3 {
        world.set_state(host, HostState::Up);
    }
    world.run_for(ms(100));
    let held = world.lock(a, request(&["k"]));
    world.release(&held);
    world.run_for(20 * SECOND);
    assert_eq!(world.copies("k"), 0);
    world.assert_idle();
}

#[test]
fn node_that_becomes_a_replica_is_reconnected_with_pauses() {
    let mut world = World::new(3, 7);
    let a = world.connected();
    world.run_for(10 * SECOND);
    world.hosts[1].server.set_trouble(Some(Trouble::ReadOnly));
    let began = world.processes[a].events.len();
    for round in 0..20 {
        let held = world.lock(a, request(&[&format!("k{round}")]));
        world.release(&held);
        world.run_for(SECOND);
    }
    let failed = |event: &&Event| {
        matches!(event, Event::ConnectFailed { .. } | Event::ConnectionClosed { .. })
    };
    let count = world.processes[a].events[began..].iter().filter(failed).count();
    assert!((5..=20).contains(&count), "{count} connections in 20 s");
    world.hosts[1].server.set_trouble(None);
    world.run_for(5 * SECOND);
    let (coordinator, now) = world.coordinator(a);
    assert_eq!(coordinator.node_state(World::node(1)), NodeState::Up);
    assert_eq!(coordinator.eligibility(World::node(1), now), VoteEligibility::Counted);
    assert_eq!(coordinator.pending_releases(World::node(1)), 0);
    assert!(coordinator.server_info(World::node(1)).run_id.is_some());
}

#[test]
fn busy_node_receives_the_release_later() {
    let mut world = World::new(3, 8);
    let a = world.connected();
    let held = world.lock(a, request(&["k"]));
    world.run_for(ms(5));
    world.hosts[0].server.set_trouble(Some(Trouble::Busy));
    world.release(&held);
    world.run_for(2 * SECOND);
    assert_eq!(world.copies("k"), 1);
    let (coordinator, _) = world.coordinator(a);
    assert_eq!(coordinator.pending_releases(World::node(0)), 1);
    world.hosts[0].server.set_trouble(None);
    world.run_for(SECOND);
    assert_eq!(world.copies("k"), 0);
    let pending: Vec<_> = world.processes[a]
        .events
        .iter()
        .filter_map(|event| match event {
            Event::PendingReleasesChanged { before, pending, .. } => Some((*before, *pending)),
            _ => None,
        })
        .collect();
    assert_eq!((pending.first(), pending.last()), (Some(&(0, 1)), Some(&(1, 0))));
    world.assert_idle();
}

#[test]
fn two_nodes_must_not_be_the_same_server() {
    let mut world = World::new(3, 9);
    let run_id = world.hosts[0].server.config().run_id.clone();
    world.hosts[1].server.configure(|config: &mut Config| config.run_id = run_id);
    let a = world.process();
    let held = world.lock(a, request(&["k"]));
    world.run_for(ms(100));
    let states = [0, 1].map(|node| world.processes[a].coordinator.node_state(World::node(node)));
    let same = |state: &NodeState| matches!(state, NodeState::Down(NodeFailure::SameServer(_)));
    assert_eq!(states.iter().filter(|state| same(state)).count(), 1, "{states:?}");
    world.release(&held);
    world.run_for(ms(10));
    world.assert_idle();
}

#[test]
fn grants_wait_after_a_forward_step_of_a_clock() {
    let mut world = World::new(3, 10);
    let [a, b] = [world.connected(), world.connected()];
    world.set_state(2, HostState::Down);
    let held = world.lock(a, request(&["k"]));
    world.run_for(SECOND);
    // The key expires early on one of the two nodes that hold it.
    world.hosts[1].ahead_us += 9_500_000;
    world.set_state(2, HostState::Up);
    world.run_for(2 * SECOND);
    assert!(world.copies("k") <= 1);
    let id = world.acquire(b, waiting(&["k"], world.now, 30 * SECOND));
    world.acquired(b, id).expect("the lock is free at last");
    assert!(!world.is_valid(&held), "two clients held the lock");
}

#[test]
fn lease_is_refreshed_after_a_forward_step_of_a_clock() {
    let mut world = World::new(3, 11);
    let a = world.connected();
    let held = world.lock(a, request(&["k"]));
    world.run_for(ms(5));
    for host in 0..2 {
        world.hosts[host].ahead_us += 5_000_000;
    }
    // Heartbeats read the clocks every 5 seconds.
    world.run_for(9 * SECOND);
    assert!(world.is_valid(&held));
    assert_eq!(world.copies("k"), 3, "keys outlive the validity again");
}

#[test]
fn release_that_closes_connections_is_isolated() {
    let mut world = World::new(3, 12);
    let a = world.connected();
    world.run_for(2 * SECOND);
    let held = world.lock(a, request(&["k"]));
    world.run_for(ms(5));
    world.close_on("EVALSHA", 0);
    world.release(&held);
    for round in 0..8 {
        let other = world.lock(a, request(&[&format!("other-{round}")]));
        world.run_for(SECOND);
        let granted = world.copies(&format!("other-{round}"));
        assert!(round < 5 || granted == 3, "round {round}: {granted} copies");
        let (coordinator, now) = world.coordinator(a);
        other.shared.end(now);
        coordinator.handle_drop(other.id, now);
        world.close_on("", 0);
        world.run_for(ms(1_500));
        world.close_on("EVALSHA", 0);
    }
    world.close_on("", 0);
    world.run_for(15 * SECOND);
    assert_eq!(world.copies("k"), 0);
}

#[test]
fn first_lease_takes_two_exchanges_per_connection() {
    let mut world = World::new(3, 13);
    world.delay = ms(100);
    let a = world.process_with(super::Settings { node_timeout: ms(300), ..world.settings() });
    let held = world.lock(a, request(&["k"]));
    assert!(world.is_valid(&held));
    // Opening a connection takes one delay of 100 ms. The set-up and the acquire take two delays each.
    assert_eq!(world.now.since(Time::default()), SECOND + ms(500));
}

#[test]
fn unreachable_nodes_are_reported_as_such() {
    let mut world = World::new(3, 14);
    for host in 0..3 {
        world.set_state(host, HostState::Down);
    }
    let a = world.process();
    let id = world.acquire(a, request(&["k"]));
    let failure = world.acquired(a, id).err();
    let Some(AcquireFailure::Refused { refusal: Refusal::NoQuorum, report, .. }) = failure else {
        panic!("{failure:?}");
    };
    assert!(report.to_string().contains("connection refused"), "{report}");
    let (coordinator, now) = world.coordinator(a);
    coordinator.handle_ready(now);
    world.run_for(5 * SECOND);
    assert!(world.processes[a].completions.is_empty());
    for host in 0..3 {
        world.set_state(host, HostState::Up);
    }
    world.run_for(2 * SECOND);
    assert!(matches!(world.processes[a].completions[..], [Completion::Ready]));
}

#[test]
fn reply_shortly_after_the_node_timeout_is_no_stall() {
    let mut world = World::new(3, 20);
    let a = world.connected();
    world.acquire(a, request(&["k"]));
    world.turn();
    for host in 0..3 {
        world.delay_commands(host, NODE_TIMEOUT);
    }
    let is_stalled = |world: &World| {
        let nodes = (0..3).map(World::node);
        let mut states = nodes.map(|node| world.processes[a].coordinator.node_state(node));
        states.any(|state| state == NodeState::Stalled)
    };
    assert!(!world.run_until(world.now.after(SECOND), is_stalled));
}
