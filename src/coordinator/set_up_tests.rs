//! Tests of connection set-ups, and of error replies that make the client reconnect.

use super::Settings;
use super::world_calls_tests::request;
use super::world_tests::{Delivery, HostState, World, ms};
use crate::observe::NodeState;
use crate::observe::event::Event;
use crate::wire::NodeFailure;
use quorlock_test::Trouble;
use quorlock_test::internals::Config;
use redis::RedisConnectionInfo;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn replica_is_refused() {
    let mut world = World::new(3, 1);
    world.hosts[1].server.configure(|config: &mut Config| config.is_replica = true);
    let a = world.process();
    let held = world.lock(a, request(&["k"]));
    world.run_for(ms(100));
    let (coordinator, _) = world.coordinator(a);
    let state = coordinator.node_state(World::node(1));
    assert!(matches!(state, NodeState::Down(NodeFailure::Replica)), "{state:?}");
    world.release(&held);
}

fn is_closed_by_moved(world: &mut World, a: usize, key: &str) -> bool {
    let count = |world: &World| {
        let is_closed = |event: &&Event| matches!(event, Event::ConnectionClosed { .. });
        world.processes[a].events.iter().filter(is_closed).count()
    };
    let before = count(world);
    world.set_state(0, HostState::Hung);
    let id = world.acquire(a, request(&[key]));
    world.turn();
    world.lose_commands(0);
    let connection =
        world.connections(a).into_iter().find(|connection| connection.node.index() == 0);
    let bytes = b"-MOVED 1 10.0.0.1:6379\r\n*2\r\n$10\r\n1700000001\r\n$1\r\n0\r\n".to_vec();
    let connection = connection.expect("connected");
    world.handle(Delivery::ToClient { process: a, connection, bytes });
    world.set_state(0, HostState::Up);
    let held = world.acquired(a, id).expect("two nodes suffice");
    world.release(&held);
    world.run_for(ms(150));
    count(world) > before
}

#[test]
fn moved_ends_a_connection_once_per_pause() {
    let mut world = World::new(3, 4);
    let a = world.connected();
    world.run_for(6 * SECOND);
    let closed = ["k", "l", "m"].map(|key| is_closed_by_moved(&mut world, a, key));
    assert_eq!(closed, [true, false, false]);
    world.run_for(2 * SECOND);
    assert!(is_closed_by_moved(&mut world, a, "k"), "the pause is over");
}

#[test]
fn commands_for_a_node_that_is_down_or_stalled_fail_at_once() {
    for state in [HostState::Down, HostState::Hung] {
        let mut world = World::new(3, 5);
        let a = world.connected();
        world.set_state(0, state);
        // After this acquire, the client knows that the node is down or stalled.
        world.lock(a, request(&["k"]));
        world.run_for(ms(200));
        for host in 1..3 {
            world.put(host, "l", "other", SECOND);
        }
        let began = world.now;
        let id = world.acquire(a, request(&["l"]));
        let failure = world.acquired(a, id).err();
        assert!(failure.is_some() && world.now.since(began) < ms(5), "{state:?}: {failure:?}");
        world.put(1, "m", "other", SECOND);
        let began = world.now;
        let id = world.acquire(a, request(&["m"]));
        assert!(world.acquired(a, id).is_err());
        assert!(world.now.since(began) < ms(5), "{state:?}: its vote is not waited for");
    }
}

#[test]
fn node_stalls_only_after_its_connection_was_read_once_more() {
    let mut world = World::new(3, 6);
    let a = world.connected();
    world.set_state(0, HostState::Hung);
    let written = world.now;
    world.lock(a, request(&["k"]));
    world.run_for(ms(40));
    world.now = written.after(ms(60));
    let (coordinator, now) = world.coordinator(a);
    coordinator.handle_timeout(now, true);
    assert_eq!(coordinator.node_state(World::node(0)), NodeState::Up);
    assert_eq!(coordinator.poll_timeout(now), Some(now), "after the connections were read");
    coordinator.handle_timeout(now, false);
    assert_eq!(coordinator.node_state(World::node(0)), NodeState::Up, "they were not read");
    coordinator.handle_timeout(now, true);
    assert_eq!(coordinator.node_state(World::node(0)), NodeState::Stalled);
}

#[test]
fn second_connection_takes_the_commands_of_the_one_it_replaces() {
    let mut world = World::new(3, 7);
    let a = world.connected();
    world.run_for(5 * SECOND);
    let held = world.lock(a, request(&["k"]));
    world.run_for(ms(5));
    world.dead = world.connections(a).into_iter().map(|connection| (a, connection)).collect();
    world.release(&held);
    world.run_for(ms(500));
    assert_eq!(world.copies("k"), 0, "released over the second connections");
    assert_eq!(world.connections(a).len(), 3);
    let held = world.lock(a, request(&["k"]));
    world.release(&held);
    world.run_for(ms(10));
    assert_eq!(world.copies("k"), 0);
}

#[test]
fn second_connection_is_closed_if_the_first_replies_again() {
    let mut world = World::new(3, 8);
    let a = world.connected();
    let connections = world.connections(a);
    for host in 0..3 {
        world.set_state(host, HostState::Hung);
    }
    let id = world.acquire(a, request(&["k"]));
    assert!(world.acquired(a, id).is_err());
    world.run_for(ms(300));
    assert_eq!(world.second_connections(a), 3);
    for host in 0..3 {
        world.set_state(host, HostState::Up);
    }
    world.run_for(ms(20));
    assert_eq!(world.connections(a), connections);
}

#[test]
fn reconnects_to_a_server_that_refuses_writes_are_delayed() {
    let mut world = World::new(3, 9);
    // Without `INFO`, the client cannot detect a replica during the set-up.
    world.hosts[1].server.configure(|config: &mut Config| {
        config.forbidden.insert("info".into());
    });
    let a = world.connected();
    world.run_for(10 * SECOND);
    world.set_trouble(1, Some(Trouble::ReadOnly));
    for _ in 0..300 {
        let held = world.lock(a, request(&["k"]));
        world.release(&held);
        world.run_for(ms(100));
    }
    let is_closed = |event: &&Event| matches!(event, Event::ConnectionClosed { .. });
    let closed = world.processes[a].events.iter().filter(is_closed).count();
    assert!((10..=20).contains(&closed), "{closed} connections in 30 s");
}

#[test]
fn failed_credentials_call_is_reported_at_connect_timeout() {
    let mut world = World::new(1, 20);
    let a = world.process_with(Settings { opening_timeout: ms(1_250), ..world.settings() });
    let (coordinator, now) = world.coordinator(a);
    let connection = coordinator.poll_connect(now).expect("the first connection");
    let at = now.after(SECOND);
    coordinator.handle_timeout(at, true);
    let failure = NodeFailure::Unreachable("no credentials".into());
    coordinator.handle_connect_failed(connection, failure.clone(), at);
    assert_eq!(coordinator.node_state(World::node(0)), NodeState::Down(failure));
}

#[test]
fn set_up_after_credentials_call_ends_at_connect_timeout() {
    let mut world = World::new(1, 21);
    let a = world.process_with(Settings { opening_timeout: ms(1_250), ..world.settings() });
    let (coordinator, now) = world.coordinator(a);
    let connection = coordinator.poll_connect(now).expect("the first connection");
    coordinator.handle_connected(connection, &RedisConnectionInfo::default(), now.after(ms(900)));
    assert_eq!(coordinator.poll_timeout(now.after(ms(900))), Some(now.after(SECOND)));
    coordinator.handle_timeout(now.after(SECOND), true);
    assert!(!coordinator.is_open(connection));
}

#[test]
fn set_up_proves_the_state_at_the_time_of_its_request() {
    let mut world = World::new(3, 22);
    // The request of the set-up and its reply take more than 100 ms.
    world.delay = ms(60);
    let a = world.process();
    let (coordinator, now) = world.coordinator(a);
    coordinator.handle_ready(now);
    let limit = now.after(SECOND);
    assert!(world.run_until(limit, |world| !world.processes[a].completions.is_empty()));
    world.acquire(a, request(&["k"]));
    let connection = world.connections(a)[0];
    let (coordinator, now) = world.coordinator(a);
    assert!(coordinator.must_read_first(connection, now), "the reply is older than 100 ms");
}

/// A reply too many shifts the replies to `CLIENT KILL` and `TIME`.
#[test]
fn kill_replies_out_of_sync_end_the_connection() {
    let mut world = World::new(3, 23);
    let a = world.connected();
    world.run_for(5 * SECOND);
    world.hosts[0].drops_commands_with = "KILL";
    world.acquire(a, request(&["k"]));
    world.turn();
    world.cut(0);
    world.run_for(ms(100));
    let connection = world.connections(a).into_iter().find(|it| it.node == World::node(0));
    let connection = connection.expect("reconnected");
    let (coordinator, _) = world.coordinator(a);
    assert_eq!(coordinator.node_state(World::node(0)), NodeState::Connecting, "kills first");
    let bytes = b"+OK\r\n".to_vec();
    world.handle(Delivery::ToClient { process: a, connection, bytes });
    let (coordinator, _) = world.coordinator(a);
    assert!(!coordinator.is_open(connection), "the replies to KILL and TIME are shifted");
}
