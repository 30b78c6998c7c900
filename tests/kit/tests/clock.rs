//! Checks that a server's wall clock can drift and jump, and that this does not affect other processes.
#![allow(clippy::unwrap_used, reason = "a failed test tool is a failed test")]
#![cfg(target_os = "linux")]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kit::{Cluster, Server, eventually};
use redis::Value;

const LIMIT: Duration = Duration::from_mins(1);
/// The maximum difference between two readings of the same clock on a busy machine.
const SLACK: Duration = Duration::from_secs(2);
const HOUR: Duration = Duration::from_hours(1);

fn time(server: &Server) -> SystemTime {
    let Value::Array(parts) = server.cmd(&["TIME"]) else { panic!("TIME is an array") };
    let part = |place: usize| -> u64 { redis::from_redis_value(parts[place].clone()).unwrap() };
    UNIX_EPOCH + Duration::from_secs(part(0)) + Duration::from_micros(part(1))
}

fn distance(one: SystemTime, other: SystemTime) -> Duration {
    one.duration_since(other).unwrap_or_else(|error| error.duration())
}

fn assert_clock_is_true(server: &Server) {
    assert!(distance(time(server), SystemTime::now()) < SLACK, "port {}", server.port());
}

#[test]
fn clock_starts_with_the_true_time() {
    let server = Server::builder().clock().start();
    assert_clock_is_true(&server);
    assert!(distance(server.clock().now(), SystemTime::now()) < SLACK);
}

#[test]
fn clock_of_running_server_jumps_forward_and_back() {
    let server = Server::builder().clock().start();
    let clock = server.clock();
    clock.jump(HOUR);
    assert!(distance(time(&server), SystemTime::now() + HOUR) < SLACK);
    assert!(distance(time(&server), clock.now()) < SLACK);
    clock.jump_back(3 * HOUR);
    assert!(distance(time(&server), SystemTime::now() - 2 * HOUR) < SLACK);
    assert!(distance(time(&server), clock.now()) < SLACK);
    clock.jump(2 * HOUR);
    assert_clock_is_true(&server);
}

/// Returns how much the server's clock gains during `lasting`, as a fraction of `lasting`.
fn gain(server: &Server, lasting: Duration) -> f64 {
    let (begun, shown) = (Instant::now(), time(server));
    std::thread::sleep(lasting);
    let shown = time(server).duration_since(shown).expect("the clock runs forward");
    shown.as_secs_f64() / begun.elapsed().as_secs_f64() - 1.0
}

/// Waits until the clock gains about `expected` in one second. A delayed reading gives a wrong value, so the test makes
/// several measurements.
fn eventually_gains(server: &Server, expected: f64) {
    let mut seen = Vec::new();
    eventually(LIMIT, "the clock has the expected rate", || {
        seen.push(gain(server, Duration::from_secs(1)));
        seen.iter().any(|gain| (gain - expected).abs() < 0.01)
    });
}

#[test]
fn clock_drifts_in_both_directions_and_stops_drifting() {
    let server = Server::builder().clock().start();
    for parts_per_million in [50_000, -50_000, 0] {
        server.clock().drift(parts_per_million);
        eventually_gains(&server, f64::from(parts_per_million) / 1e6);
    }
}

#[test]
fn change_of_drift_does_not_make_the_clock_jump() {
    let server = Server::builder().clock().start();
    let clock = server.clock();
    clock.drift(5_000_000);
    std::thread::sleep(Duration::from_millis(500));
    for parts_per_million in [-900_000, 5_000_000, 0, -900_000, 0] {
        let before = (clock.now(), time(&server));
        clock.drift(parts_per_million);
        let after = (clock.now(), time(&server));
        for (before, after) in [(before.0, after.0), (before.1, after.1)] {
            let moved = after.duration_since(before).expect("not back");
            // The clock may run at most six times as fast as the true clock.
            assert!(moved < 6 * SLACK, "{moved:?}");
        }
    }
    let gained = time(&server).duration_since(SystemTime::now());
    assert!(gained.expect("gained") > Duration::from_secs(2), "the gained time remains");
}

#[test]
fn stopped_clock_shows_exact_times_and_jumps() {
    let server = Server::builder().clock().start();
    let clock = server.clock();
    let at = UNIX_EPOCH + Duration::from_millis(1_234_567_890_123);
    clock.stop_at(at);
    assert_eq!((time(&server), clock.now()), (at, at));
    server.cmd(&["SET", "k", "v", "PX", "1000"]);
    let (more, less) = (Duration::from_millis(400), Duration::from_micros(1));
    for (shown, left) in [(at + more, 600), (at + more - less, 601), (at + more + more - less, 201)]
    {
        if shown > clock.now() {
            clock.jump(shown.duration_since(clock.now()).expect("ahead"));
        } else {
            clock.jump_back(less);
        }
        assert_eq!((time(&server), clock.now()), (shown, shown));
        assert_eq!(server.pttl("k"), left);
    }
    clock.stop_at(at + Duration::from_millis(1001));
    assert_eq!(server.pttl("k"), -2, "the key has expired");
}

#[test]
fn keys_expire_by_the_clock() {
    let server = Server::builder().clock().start();
    server.cmd(&["SET", "k", "v", "PX", "600000"]);
    server.clock().jump(Duration::from_mins(9));
    assert!((1..=60_000).contains(&server.pttl("k")), "a minute is left");
    server.clock().jump(Duration::from_mins(2));
    assert_eq!(server.get("k"), None);
    server.cmd(&["SET", "k", "v", "PX", "600000"]);
    server.clock().jump_back(HOUR);
    assert!(server.pttl("k") > 600_000, "the key lives longer");
}

#[test]
fn other_servers_have_the_true_time() {
    let (plain, cluster) = (Server::start(), Cluster::start_with(2, &Server::builder().clock()));
    plain.cmd(&["SET", "k", "v", "PX", "600000"]);
    cluster[0].clock().jump(HOUR);
    cluster[0].clock().drift(500_000);
    assert_clock_is_true(&plain);
    assert_clock_is_true(&cluster[1]);
    assert!(plain.get("k").is_some());
}

#[test]
fn clock_continues_through_stop_and_restart() {
    let server = Server::builder().clock().start();
    server.stop();
    server.clock().jump(HOUR);
    server.cont();
    assert!(distance(time(&server), server.clock().now()) < SLACK);
    server.restart();
    assert!(distance(time(&server), SystemTime::now() + HOUR) < SLACK);
    server.kill();
    server.clock().jump_back(HOUR);
    server.restart();
    assert_clock_is_true(&server);
}

#[test]
#[should_panic(expected = "ServerBuilder::clock was not set")]
fn server_without_a_clock_panics() {
    let _ = Server::start().clock();
}
