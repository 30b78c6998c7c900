//! Tests of leases: extension, renewal, loss, adoption, fencing tokens, and minimum hold times.

use super::world_calls_tests::{TTL, keys, renewed, request, ttl, waiting};
use super::world_tests::{HostState, World, ms};
use super::{AcquireFailure, AcquireRequest, Completion};
use crate::observe::event::Event;
use crate::protocol::{Extended, LeaseStatus, Loss, Refusal};
use crate::wire::{CounterKeys, Counters, Value};
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn fenced(names: &[&str]) -> AcquireRequest {
    let keys = keys(names);
    let counters = CounterKeys::for_keys(&keys, ttl(Duration::from_secs(600)));
    AcquireRequest { counters: Some(Arc::new(counters.expect("plain keys"))), ..request(names) }
}

#[test]
fn extension_lengthens_the_lease_on_all_nodes() {
    let mut world = World::new(5, 1);
    let a = world.connected();
    let held = world.lock(a, request(&["k"]));
    world.run_for(8 * SECOND);
    let (coordinator, now) = world.coordinator(a);
    let call = coordinator.handle_extend(held.id, ttl(TTL), now).expect("held");
    world.run_for(ms(5));
    let is_extended = |it: &Completion| match it {
        Completion::Extended { call: known, replies, .. } if *known == call => {
            assert_eq!(replies.report(now).granted(), 3);
            true
        }
        _ => false,
    };
    assert!(world.processes[a].completions.iter().any(is_extended));
    let extended = &world.processes[a].extended;
    assert!(matches!(extended[..], [(_, Extended::Until(_))]), "{extended:?}");
    world.run_for(9 * SECOND);
    assert!(world.is_valid(&held));
    assert_eq!(world.copies("k"), 5);
    world.run_for(SECOND);
    assert!(!world.is_valid(&held));
    let (coordinator, now) = world.coordinator(a);
    let refused = coordinator.handle_extend(held.id, ttl(TTL), now);
    assert_eq!(refused, Err(LeaseStatus::Lost(Loss::Expired)));
}

#[test]
fn renewed_lease_outlives_its_ttl_with_a_minority_of_nodes_hung() {
    let mut world = World::new(5, 2);
    let a = world.connected();
    let held = world.lock(a, renewed(&["k"]));
    world.set_state(1, HostState::Hung);
    world.set_state(2, HostState::Down);
    world.run_for(60 * SECOND);
    assert!(world.is_valid(&held));
    let renewals = world.processes[a].events.iter();
    let renewals = renewals.filter(|event| matches!(event, Event::LeaseRenewed { .. })).count();
    assert!((18..=22).contains(&renewals), "{renewals}");
    world.set_state(1, HostState::Up);
    world.set_state(2, HostState::Up);
    world.run_for(10 * SECOND);
    assert_eq!(world.copies("k"), 5, "the nodes that missed extensions have the key again");
    world.release(&held);
    world.run_for(ms(10));
    assert_eq!(world.copies("k"), 0);
    world.assert_idle();
}

#[test]
fn loss_is_reported_before_the_validity_ends() {
    let mut world = World::new(3, 3);
    let a = world.connected();
    let held = world.lock(a, renewed(&["k"]));
    for host in 0..3 {
        world.set_state(host, HostState::Hung);
    }
    let limit = world.now.after(20 * SECOND);
    assert!(world.run_until(limit, |world| !world.losses(a).is_empty()));
    assert_eq!(world.losses(a), [LeaseStatus::Lost(Loss::Expired)]);
    assert!(!world.is_valid(&held));
    let validity = TTL * 99 / 100;
    assert!(world.now.since(limit.before(20 * SECOND)) + ms(4) <= validity);
}

#[test]
fn maximum_hold_time_ends_a_renewed_lease() {
    let mut world = World::new(3, 4);
    let a = world.connected();
    let request = AcquireRequest { max_hold: Some(25 * SECOND), ..request(&["k"]) };
    let began = world.now;
    let held = world.lock(a, request);
    world.run_for(30 * SECOND);
    assert_eq!(world.losses(a), [LeaseStatus::Lost(Loss::MaxHold)]);
    assert!(!world.is_valid(&held) && world.now.since(began) >= 25 * SECOND);
}

#[test]
fn deleted_keys_are_noticed_at_once() {
    let mut world = World::new(5, 5);
    let a = world.connected();
    let held = world.lock(a, renewed(&["k"]));
    world.run_for(ms(500));
    world.delete(0, "k");
    world.run_for(SECOND);
    assert!(world.is_valid(&held), "one node of five");
    for host in 1..4 {
        world.delete(host, "k");
    }
    world.run_for(ms(250));
    assert_eq!(world.losses(a), [LeaseStatus::Lost(Loss::QuorumLost)]);
    assert!(!world.is_valid(&held));
}

#[test]
fn waiting_for_a_loss_subscribes_to_the_keys() {
    let mut world = World::new(5, 5);
    let a = world.connected();
    let held = world.lock(a, request(&["k"]));
    let (coordinator, now) = world.coordinator(a);
    coordinator.handle_watch(held.id, now);
    world.run_for(ms(500));
    assert!(world.is_valid(&held));
    (0..3).for_each(|host| world.delete(host, "k"));
    world.run_for(ms(250));
    assert_eq!(world.losses(a), [LeaseStatus::Lost(Loss::QuorumLost)]);
}

#[test]
fn lost_key_of_a_minority_is_set_again_by_the_next_renewal() {
    let mut world = World::new(5, 6);
    let a = world.connected();
    let held = world.lock(a, renewed(&["k"]));
    world.run_for(ms(100));
    for host in 0..2 {
        world.delete(host, "k");
    }
    assert_eq!(world.copies("k"), 3);
    world.run_for(4 * SECOND);
    assert_eq!(world.copies("k"), 5);
    assert!(world.is_valid(&held));
}

#[test]
fn forced_release_ends_the_lease_and_frees_the_lock() {
    let mut world = World::new(5, 7);
    let [a, b] = [world.connected(), world.connected()];
    let held = world.lock(a, renewed(&["k"]));
    world.run_for(ms(5));
    let id = world.acquire(b, waiting(&["k"], world.now, 9 * SECOND));
    world.run_for(SECOND);
    let (coordinator, now) = world.coordinator(b);
    let call = coordinator.handle_force_release(keys(&["k"]), now);
    let released = world.acquired(b, id).expect("the lock was freed");
    world.run_for(ms(300));
    let report = world.processes[b].completions.iter().find_map(|it| match it {
        Completion::ForceReleased { call: known, report } if *known == call => {
            Some(report.granted())
        }
        _ => None,
    });
    assert_eq!(report, Some(5));
    assert!(!world.is_valid(&held) && world.is_valid(&released));
    assert!(matches!(world.losses(a)[..], [LeaseStatus::Lost(Loss::TakenOver | Loss::QuorumLost)]));
}

#[test]
fn status_reports_the_holder_on_each_node() {
    let mut world = World::new(5, 8);
    let [a, b] = [world.connected(), world.connected()];
    let request = AcquireRequest { metadata: Some("worker-7".into()), ..request(&["k"]) };
    let held = world.lock(a, request);
    world.set_state(4, HostState::Hung);
    world.run_for(ms(5));
    let (coordinator, now) = world.coordinator(b);
    let call = coordinator.handle_status(keys(&["k"]), None, now);
    world.run_for(ms(100));
    let found = world.processes[b].completions.iter().find_map(|it| match it {
        Completion::Status { call: known, nodes, report } if *known == call => {
            Some((nodes, report))
        }
        _ => None,
    });
    let (nodes, report) = found.expect("a result");
    let holders = report.nodes().iter().filter_map(|node| node.holder()?.metadata());
    assert_eq!(holders.collect::<Vec<_>>(), ["worker-7"; 4]);
    assert_eq!(nodes.iter().filter(|node| node.answer.is_some()).count(), 4);
    let counted = nodes.iter().filter(|node| node.eligibility.counts_in().is_zero()).count();
    assert_eq!(counted, 5);
    let (coordinator, now) = world.coordinator(b);
    let cancelled = coordinator.handle_status(keys(&["k"]), None, now);
    coordinator.handle_cancel_call(cancelled, now);
    world.set_state(4, HostState::Up);
    world.release(&held);
    world.run_for(SECOND);
    world.assert_idle();
}

#[test]
fn adoption_takes_over_the_lock_of_another_client() {
    let mut world = World::new(5, 9);
    let [a, b] = [world.connected(), world.connected()];
    let held = world.lock(a, renewed(&["k"]));
    world.run_for(ms(5));
    let value = Arc::new(held.shared.claim().value().clone());
    let adopted = world.lock(b, AcquireRequest { adopts: Some(value.clone()), ..request(&["k"]) });
    assert!(world.is_valid(&adopted));
    world.run_for(ms(300));
    assert_eq!(world.losses(a), [LeaseStatus::Lost(Loss::TakenOver)]);
    let id = world.acquire(b, AcquireRequest { adopts: Some(value), ..request(&["k"]) });
    let failure = world.acquired(b, id).err();
    assert!(matches!(failure, Some(AcquireFailure::Refused { .. })), "{failure:?}");
    assert!(world.is_valid(&adopted), "the value of another lease was given");
}

#[test]
fn adoption_by_the_same_client_ends_the_former_lease() {
    let mut world = World::new(3, 10);
    let a = world.connected();
    let held = world.lock(a, request(&["k"]));
    let value = held.shared.claim().value().clone();
    let adopt = AcquireRequest { adopts: Some(Arc::new(value)), ..request(&["k"]) };
    let adopted = world.lock(a, adopt);
    assert!(!world.is_valid(&held) && world.is_valid(&adopted));
    let unknown = Value::of(b"no such value");
    let adopt = AcquireRequest { adopts: Some(Arc::new(unknown)), ..request(&["k"]) };
    let id = world.acquire(a, adopt);
    let failure = world.acquired(a, id).err();
    let is_contended =
        matches!(failure, Some(AcquireFailure::Refused { refusal: Refusal::Contended, .. }));
    assert!(is_contended && world.is_valid(&adopted), "{failure:?}");
}

#[test]
fn fencing_tokens_grow_with_each_holder() {
    let mut world = World::new(5, 11);
    world.jitter = ms(2);
    let processes = [world.connected(), world.connected(), world.connected()];
    let mut last = 0;
    for round in 0..30 {
        // In each round, a different pair of nodes is down, so that the counters of the nodes differ.
        for host in 0..5 {
            let is_up = (host + round) % 5 > 1;
            world.set_state(host, if is_up { HostState::Up } else { HostState::Down });
        }
        world.run_for(2 * SECOND);
        let held = world.lock(processes[round % 3], fenced(&["k"]));
        let token = held.shared.claim().fence().and_then(Counters::token);
        assert!(token.is_some_and(|token| token > last), "{token:?} after {last}");
        last = token.unwrap_or_default();
        world.release(&held);
        world.run_for(ms(50));
    }
}

#[test]
fn counters_that_differ_are_confirmed_in_a_second_round() {
    let mut world = World::new(3, 12);
    let a = world.connected();
    let first = world.lock(a, fenced(&["k"]));
    world.release(&first);
    world.run_for(ms(5));
    // Simulates other clients that have raised the counters of single nodes.
    let token = first.shared.claim().fence().and_then(Counters::token).expect("a token");
    for (host, ahead) in [(0, 10_000_000), (1, 5_000_000)] {
        let keys = world.keys(host);
        let [counter] = &keys[..] else { panic!("{keys:?}") };
        world.put(host, counter, &(token + ahead).to_string(), Duration::from_secs(600));
    }
    let second = world.lock(a, fenced(&["k"]));
    let confirmed = world.processes[a]
        .events
        .iter()
        .any(|event| matches!(event, Event::AttemptFinished { confirmation: Some(_), .. }));
    assert!(confirmed);
    let drawn = second.shared.claim().fence().and_then(Counters::token);
    assert!(drawn.is_some_and(|drawn| drawn >= token + 5_000_000), "{drawn:?}");
    world.release(&second);
    world.run_for(ms(5));
    world.assert_idle();
}

#[test]
fn minimum_hold_time_and_cool_down_outlast_the_release() {
    let mut world = World::new(3, 13);
    let [a, b] = [world.connected(), world.connected()];
    let request_at_least = AcquireRequest { at_least: 2 * SECOND, ..request(&["k"]) };
    let began = world.now;
    let held = world.lock(a, request_at_least);
    world.release(&held);
    let id = world.acquire(b, waiting(&["k"], world.now, 9 * SECOND));
    let held = world.acquired(b, id).expect("acquired after the minimum hold time");
    assert!(world.now.since(began) >= 2 * SECOND && world.now.since(began) < 3 * SECOND);
    held.shared.end(world.now);
    let released = world.now;
    let (coordinator, now) = world.coordinator(b);
    coordinator.handle_release(held.id, Some(ttl(3 * SECOND)), now);
    let id = world.acquire(a, waiting(&["k"], world.now, 9 * SECOND));
    world.acquired(a, id).expect("acquired after the cool-down");
    assert!(world.now.since(released) >= 3 * SECOND && world.now.since(released) < 4 * SECOND);
}

#[test]
fn caller_that_waits_for_the_end_of_a_lease_is_notified() {
    let mut world = World::new(3, 19);
    let a = world.connected();
    let [first, second] = ["k", "l"].map(|name| world.lock(a, request(&[name])));
    let (coordinator, now) = world.coordinator(a);
    coordinator.handle_watch(first.id, now);
    world.run_for(TTL);
    let ended = world.processes[a].completions.iter().filter_map(|it| match it {
        Completion::LeaseEnded { lease } => Some(*lease),
        _ => None,
    });
    assert_eq!(ended.collect::<Vec<_>>(), [first.id]);
    assert_eq!(first.shared.status(world.now), LeaseStatus::Lost(Loss::Expired));
    assert!(!world.is_valid(&second));
}

#[test]
fn lease_end_is_handled_before_due_acquires() {
    let mut world = World::new(3, 17);
    let a = world.connected();
    let _held = world.lock(a, renewed(&["k"]));
    for host in 0..3 {
        world.set_state(host, HostState::Hung);
    }
    for n in 0..200 {
        let acquire = waiting(&[&format!("other/{n}")], world.now, SECOND);
        world.acquire(a, acquire);
    }
    let (coordinator, now) = world.coordinator(a);
    let late = now.after(2 * TTL);
    coordinator.handle_timeout(late, true);
    let completions: Vec<_> = std::iter::from_fn(|| coordinator.poll_completion()).collect();
    assert!(completions.iter().any(|it| matches!(it, Completion::LeaseEnded { .. })));
    assert!(coordinator.poll_timeout(late).is_some_and(|at| at <= late), "acquires are still due");
}
