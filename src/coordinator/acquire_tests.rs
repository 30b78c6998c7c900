//! Tests of acquires: mutual exclusion, waiting, deadlines, cancellation, hung nodes, and the limit on concurrent
//! attempts.

use super::world_calls_tests::{request, waiting};
use super::world_tests::{HostState, World, ms};
use super::{AcquireFailure, AcquireRequest, Completion};
use crate::protocol::{AttemptLimit, Outcome, Refusal, RetryPolicy};
use std::time::Duration;

#[test]
fn lock_is_acquired_once_and_released() {
    let mut world = World::new(5, 1);
    let [a, b] = [world.process(), world.process()];
    let held = world.lock(a, request(&["k"]));
    world.run_for(ms(1));
    assert_eq!(world.copies("k"), 5);
    let id = world.acquire(b, request(&["k"]));
    let failure = world.acquired(b, id).err();
    let refused = matches!(
        failure,
        Some(AcquireFailure::Refused { refusal: Refusal::Contended, is_overloaded: false, .. })
    );
    assert!(refused, "{failure:?}");
    assert!(world.is_valid(&held));
    world.release(&held);
    assert!(!world.is_valid(&held));
    world.run_for(ms(10));
    let outcome = world.processes[a].completions.iter().find_map(|it| match it {
        Completion::Released { outcome, .. } => Some(*outcome),
        _ => None,
    });
    assert_eq!(outcome, Some(Outcome::Won));
    assert_eq!(world.copies("k"), 0);
    let held = world.lock(b, request(&["k"]));
    world.release(&held);
    world.run_for(ms(10));
    world.assert_idle();
}

#[test]
fn waiting_acquire_gets_the_lock_soon_after_its_release() {
    let mut world = World::new(5, 2);
    let [a, b] = [world.connected(), world.connected()];
    let held = world.lock(a, request(&["k"]));
    let id = world.acquire(b, waiting(&["k"], world.now, Duration::from_secs(9)));
    world.run_for(Duration::from_secs(3));
    assert!(world.processes[b].completions.is_empty());
    world.release(&held);
    let released = world.now;
    let held = world.acquired(b, id).expect("the lock is free");
    assert!(world.now.since(released) < ms(5), "{:?}", world.now.since(released));
    world.release(&held);
    world.run_for(ms(10));
    world.assert_idle();
}

#[test]
fn waiting_acquire_ends_at_its_deadline() {
    let mut world = World::new(3, 3);
    let [a, b] = [world.connected(), world.connected()];
    let held = world.lock(a, request(&["k"]));
    let began = world.now;
    let ids = [1, 2, 3].map(|_| world.acquire(b, waiting(&["k"], began, ms(700))));
    for id in ids {
        let failure = world.acquired(b, id).err();
        let is_contended =
            matches!(failure, Some(AcquireFailure::Refused { refusal: Refusal::Contended, .. }));
        assert!(is_contended, "{failure:?}");
    }
    assert!(world.now.since(began) >= ms(700) && world.now.since(began) < ms(760));
    world.release(&held);
    world.run_for(ms(10));
    world.assert_idle();
}

#[test]
fn minority_of_hung_or_down_nodes_is_tolerated() {
    let mut world = World::new(5, 4);
    let a = world.connected();
    world.set_state(0, HostState::Hung);
    world.set_state(1, HostState::Down);
    let began = world.now;
    let held = world.lock(a, request(&["k"]));
    assert!(world.now.since(began) < ms(5));
    world.release(&held);
    world.run_for(ms(500));
    assert_eq!(world.copies("k"), 0);
    world.set_state(0, HostState::Up);
    world.set_state(1, HostState::Up);
    world.run_for(Duration::from_secs(20));
    assert_eq!(world.copies("k"), 0, "a hung node has received the release");
    world.assert_idle();
}

#[test]
fn majority_of_hung_nodes_gives_no_quorum_and_leaves_no_key() {
    let mut world = World::new(5, 5);
    let a = world.connected();
    for host in 0..3 {
        world.set_state(host, HostState::Hung);
    }
    let began = world.now;
    let id = world.acquire(a, request(&["k"]));
    let failure = world.acquired(a, id).err();
    let is_no_quorum =
        matches!(failure, Some(AcquireFailure::Refused { refusal: Refusal::NoQuorum, .. }));
    assert!(is_no_quorum, "{failure:?}");
    assert_eq!(world.now.since(began), ms(50));
    for host in 0..3 {
        world.set_state(host, HostState::Up);
    }
    world.run_for(Duration::from_secs(20));
    assert_eq!(world.copies("k"), 0);
    world.assert_idle();
}

#[test]
fn cancelled_acquire_leaves_no_key() {
    for micros in (0..700).step_by(50) {
        let mut world = World::new(3, 6);
        let [a, b] = [world.connected(), world.connected()];
        let id = world.acquire(a, waiting(&["k"], world.now, Duration::from_secs(1)));
        world.run_for(Duration::from_micros(micros));
        let (coordinator, now) = world.coordinator(a);
        coordinator.handle_cancel(id, now);
        world.run_for(ms(5));
        assert_eq!(world.copies("k"), 0, "cancelled after {micros} us");
        let held = world.lock(b, request(&["k"]));
        world.release(&held);
        world.run_for(ms(5));
        world.assert_idle();
    }
}

#[test]
fn many_processes_take_turns() {
    let mut world = World::new(5, 7);
    let processes: Vec<_> = (0..20).map(|_| world.connected()).collect();
    let now = world.now;
    let ids: Vec<_> = processes
        .iter()
        .map(|process| {
            (*process, world.acquire(*process, waiting(&["k"], now, Duration::from_secs(30))))
        })
        .collect();
    for _ in 0..20 {
        let limit = world.now.after(Duration::from_secs(30));
        let is_held = |world: &World| {
            let mut completions = world.processes.iter().flat_map(|process| &process.completions);
            completions.any(|completion| matches!(completion, Completion::Acquired { .. }))
        };
        assert!(world.run_until(limit, is_held));
        let held = ids.iter().find_map(|(process, id)| world.take_acquired(*process, *id));
        let held = held.expect("a lease").expect("acquired");
        assert!(held.shared.take(world.now) && world.is_valid(&held));
        world.release(&held);
    }
    world.run_for(ms(20));
    world.assert_idle();
}

#[test]
fn driver_gathers_commands_behind_an_answered_pipeline() {
    let mut world = World::new(3, 8);
    let a = world.connected();
    let held: Vec<_> = ["k", "l"].map(|name| world.acquire(a, request(&[name]))).into();
    world.run_for(ms(5));
    let held: Vec<_> = held.into_iter().map(|id| world.acquired(a, id).expect("free")).collect();
    world.release(&held[0]);
    let connections = world.connections(a);
    let (coordinator, now) = world.coordinator(a);
    // The last pipeline had two commands, so the connection expects another command.
    for (times, should_gather) in [(0, true), (1, true), (7, true), (8, false)] {
        let all = connections.iter().map(|it| coordinator.should_gather(*it, times, now));
        assert!(all.into_iter().all(|it| it == should_gather), "{times}");
    }
    world.release(&held[1]);
    let sent = world.processes[a].sent;
    world.run_for(ms(5));
    assert_eq!(world.processes[a].sent - sent, 3, "one pipeline for each node");
    let (coordinator, now) = world.coordinator(a);
    assert!(!connections.iter().any(|connection| coordinator.should_gather(*connection, 0, now)));
    world.assert_idle();
}

#[test]
fn idle_connection_is_read_before_it_is_written_to() {
    let mut world = World::new(3, 9);
    let a = world.connected();
    let connections = world.connections(a);
    let must_read = |world: &mut World| {
        let (coordinator, now) = world.coordinator(a);
        connections.iter().filter(|it| coordinator.must_read_first(**it, now)).count()
    };
    let held = world.lock(a, request(&["k"]));
    world.release(&held);
    world.run_for(ms(99));
    assert_eq!(must_read(&mut world), 0);
    world.run_for(ms(2));
    assert_eq!(must_read(&mut world), 0, "there is no command to write");
    world.acquire(a, request(&["k"]));
    assert_eq!(must_read(&mut world), 3);
}

#[test]
fn acquires_beyond_the_maximum_number_of_attempts_wait_or_fail() {
    const MAX: usize = AttemptLimit::FIRST;
    let mut world = World::new(1, 10);
    let a = world.connected();
    world.set_state(0, HostState::Hung);
    let now = world.now;
    let acquire = |world: &mut World, number: usize| {
        world.acquire(a, waiting(&[&format!("k{number}")], now, Duration::from_secs(9)))
    };
    let ids: Vec<_> = (0..MAX).map(|number| acquire(&mut world, number)).collect();
    let one = world.acquire(a, request(&["one"]));
    let other = world.acquire(a, waiting(&["other"], now, ms(20)));
    let third = world.acquire(a, waiting(&["third"], now, Duration::from_secs(9)));
    world.run_for(ms(30));
    let failure = world.take_acquired(a, other).expect("its time is over").err();
    let has_report = matches!(failure, Some(AcquireFailure::Overloaded { report: None }));
    assert!(has_report, "{failure:?}");
    world.run_for(ms(90));
    assert!(world.take_acquired(a, one).expect("refused").is_err());
    for id in ids {
        let (coordinator, now) = world.coordinator(a);
        coordinator.handle_cancel(id, now);
    }
    world.set_state(0, HostState::Up);
    world.run_for(ms(200));
    let held = world.lock(a, request(&["free"]));
    assert!(world.is_valid(&held));
    assert!(world.acquired(a, third).is_ok());
}

#[test]
fn number_of_concurrent_attempts_is_limited() {
    let mut world = World::new(3, 23);
    let a = world.connected();
    let now = world.now;
    let names: Vec<_> = (0..1_000).map(|number| format!("k{number}")).collect();
    let ids: Vec<_> =
        names.iter().map(|name| world.acquire(a, waiting(&[name], now, ms(9_000)))).collect();
    let (coordinator, _) = world.coordinator(a);
    assert_eq!(coordinator.acquires(), (1_000, AttemptLimit::FIRST));
    for id in ids {
        assert!(world.acquired(a, id).is_ok());
    }
    assert!(world.now.since(now) < ms(50), "the limit grows: {:?}", world.now.since(now));
    let (coordinator, _) = world.coordinator(a);
    assert_eq!(coordinator.acquires(), (0, 0));
}

#[test]
fn sets_that_share_a_key_take_turns() {
    let mut world = World::new(5, 20);
    world.jitter = ms(1);
    let [a, b] = [world.connected(), world.connected()];
    let now = world.now;
    let sets: [&[&str]; 4] = [&["x", "y"], &["y", "z"], &["z", "x"], &["x", "y", "z"]];
    let mut under_way: Vec<_> = [a, b, a, b]
        .into_iter()
        .zip(sets)
        .chain([(a, sets[3]), (b, sets[0])])
        .map(|(process, names)| {
            (process, world.acquire(process, waiting(names, now, Duration::from_secs(60))))
        })
        .collect();
    while !under_way.is_empty() {
        let limit = world.now.after(Duration::from_secs(5));
        let is_held = |world: &World| {
            let mut completions = world.processes.iter().flat_map(|it| &it.completions);
            completions.any(|completion| matches!(completion, Completion::Acquired { .. }))
        };
        assert!(world.run_until(limit, is_held), "{} sets wait", under_way.len());
        let place = under_way.iter().position(|(process, id)| {
            let is_won = |it: &Completion| {
                matches!(it, Completion::Acquired { acquire, .. } if acquire == id)
            };
            world.processes[*process].completions.iter().any(is_won)
        });
        let (process, id) = under_way.remove(place.expect("one of them"));
        let held = world.acquired(process, id).expect("acquired");
        world.run_for(ms(20));
        world.release(&held);
    }
    world.run_for(Duration::from_secs(1));
    world.assert_idle();
}

#[test]
fn acquire_that_finds_its_permit_taken_waits_for_the_next_one() {
    const MAX: usize = AttemptLimit::FIRST;
    let mut world = World::new(1, 11);
    let a = world.connected();
    let now = world.now;
    let waits = |world: &mut World, name: &str, delay: u64| {
        world.put(0, name, "other", Duration::from_secs(50));
        let schedule = RetryPolicy::fixed(ms(delay)).schedule();
        let request = waiting(&[name], now, Duration::from_secs(9));
        world.acquire(a, AcquireRequest { schedule, ..request })
    };
    // With these delays, the second attempt of the first acquire times out when the pause of the second acquire ends:
    // both after about 150 ms.
    let [first, second] = [("x", 100), ("y", 150)].map(|(name, ms)| waits(&mut world, name, ms));
    world.run_for(ms(50));
    world.set_state(0, HostState::Hung);
    world.run_for(ms(60));
    let fillers: Vec<_> = (1..MAX)
        .map(|number| world.acquire(a, waiting(&[&format!("k{number}")], now, ms(9_000))))
        .collect();
    let blocked = world.acquire(a, waiting(&["k"], now, Duration::from_secs(9)));
    world.run_for(ms(45));
    for id in fillers.into_iter().chain([first, second]) {
        let (coordinator, now) = world.coordinator(a);
        coordinator.handle_cancel(id, now);
    }
    world.set_state(0, HostState::Up);
    assert!(world.acquired(a, blocked).is_ok());
    assert!(world.now.since(now) < ms(500));
}

#[test]
fn permit_of_an_acquire_without_time_is_passed_on() {
    const MAX: usize = AttemptLimit::FIRST;
    let mut world = World::new(1, 12);
    let a = world.connected();
    world.set_state(0, HostState::Hung);
    let now = world.now;
    let acquire = |world: &mut World, name: &str, wait: u64| {
        world.acquire(a, waiting(&[name], now, ms(wait)))
    };
    let ids: Vec<_> =
        (0..MAX).map(|number| acquire(&mut world, &format!("k{number}"), 9_000)).collect();
    acquire(&mut world, "short", 20);
    acquire(&mut world, "long", 9_000);
    let late = now.after(ms(21));
    let (coordinator, _) = world.coordinator(a);
    coordinator.handle_cancel(ids[0], late);
    assert_eq!(coordinator.acquires(), (MAX, MAX), "an attempt of the second one is under way");
}
