//! `run`: nothing of a command outlives its lock.

use crate::running::{Notes, Running, eventually, is_alive};
use crate::scene::{Ended, Scene};
use kit::{Cluster, Server};
use rustix::process::Signal;
use std::time::{Duration, Instant, SystemTime};

/// Begins a group whose last member ignores TERM, and touches a file for as long as it lives.
const STUBBORN: &str = "(trap '' TERM; n=0; while [ $n -lt 600 ]; do : > $D/alive; sleep 0.1; n=$((n + 1)); done) & \
                        echo $! > $D/grandchild; wait";

fn hang(nodes: &Cluster) {
    nodes.iter().for_each(Server::stop);
}

/// Several at once, as often as that.
const ROUNDS: usize = 2;
const AT_ONCE: usize = 25;

#[test]
fn a_group_that_ignores_term_is_dead_before_the_lease_ends_fifty_times_of_fifty() {
    const TTL: Duration = Duration::from_secs(4);
    for _ in 0..ROUNDS {
        let nodes = Cluster::start(3);
        let scene = Scene::on(&nodes).with("QUORLOCK_NODE_TIMEOUT", "300ms");
        let start = |number: usize| {
            let (dir, name) = (Notes::new(), format!("r{number}"));
            let command = &mut dir.command(&scene, &["run", "--ttl", "4s", &name], STUBBORN);
            (Running::of(command), dir)
        };
        let all: Vec<_> = (0..AT_ONCE).map(start).collect();
        for (_, dir) in &all {
            eventually("it works", || dir.has("alive"));
        }
        hang(&nodes);
        // No renewal was granted later: none is valid after its ttl.
        let end = SystemTime::now() + TTL;
        for (running, dir) in all {
            let ended = running.end();
            assert_eq!(ended.code, 124, "{}", ended.err);
            for told in ["the lock is being lost", "CMD gets TERM", "they get KILL"] {
                assert!(ended.err.contains(told), "{told}: {}", ended.err);
            }
            assert!(!is_alive(dir.number("grandchild")), "it is gone when we are");
            let late = dir.written("alive").duration_since(end);
            assert!(late.is_err(), "it lived {late:?} too long");
        }
        nodes.iter().for_each(Server::cont);
    }
}

#[test]
fn a_command_whose_quorlock_is_killed_is_dead_at_once_fifty_times_of_fifty() {
    let nodes = Cluster::start(3);
    let scene = Scene::on(&nodes);
    let mut longest = Duration::ZERO;
    for _ in 0..ROUNDS {
        let start = |number: usize| {
            let (dir, name) = (Notes::new(), format!("r{number}"));
            let script = "echo $$ > $D/child; exec sleep 60";
            (Running::of(&mut dir.command(&scene, &["run", "--ttl", "5s", &name], script)), dir)
        };
        let all: Vec<_> = (0..AT_ONCE).map(start).collect();
        let children: Vec<_> = all.iter().map(|(_, dir)| dir.number("child")).collect();
        for ((running, _), child) in all.iter().zip(children) {
            assert!(is_alive(child));
            let begun = Instant::now();
            running.send(Signal::KILL);
            eventually("it is dead", || !is_alive(child));
            longest = longest.max(begun.elapsed());
        }
        eventually("the locks end", || nodes.is_empty());
    }
    println!("dead after at most {longest:?}");
}

#[test]
fn who_was_stopped_for_too_long_ends_the_command_as_soon_as_it_goes_on() {
    let (nodes, dir) = (Cluster::start(3), Notes::new());
    let scene = Scene::on(&nodes);
    let mut command = dir.command(&scene, &["run", "--ttl", "5s", "r"], STUBBORN);
    let running = Running::of(&mut command);
    let grandchild = dir.number("grandchild");
    running.stop();
    eventually("the lock ends", || nodes.is_empty());
    assert!(is_alive(grandchild), "nobody could end it");
    running.cont();
    let ended = running.end();
    assert_eq!(ended.code, 124);
    assert!(ended.err.contains("the lock was lost: CMD gets KILL"), "{}", ended.err);
    assert!(!is_alive(grandchild));
}

#[test]
fn a_lock_that_is_taken_away_ends_the_command_without_grace() {
    let (nodes, dir) = (Cluster::start(3), Notes::new());
    let scene = Scene::on(&nodes);
    let running = Running::of(&mut dir.command(&scene, &["run", "--ttl", "60s", "r"], STUBBORN));
    let grandchild = dir.number("grandchild");
    for node in &nodes {
        node.cmd(&["SET", "r", "another's", "PX", "60000"]);
    }
    let ended = running.end();
    assert_eq!(ended.code, 124);
    assert!(ended.err.contains("the lock was lost: CMD gets KILL"), "{}", ended.err);
    assert!(!is_alive(grandchild));
    assert!(nodes.keys_per_node().iter().all(|keys| keys == &[b"r"]), "it is another's");
}

#[test]
fn the_grace_is_for_commands_that_stop_in_order() {
    let (nodes, dir) = (Cluster::start(3), Notes::new());
    let scene = Scene::on(&nodes);
    // For so long it may be held: then it is being lost.
    let options = ["run", "--ttl", "3s", "--max-hold", "3s", "r"];
    let script = "trap 'echo stopped > $D/stopped; exit 3' TERM; n=0; \
                  while [ $n -lt 600 ]; do sleep 0.1; n=$((n + 1)); done";
    let gentle = Ended::of(&mut dir.command(&scene, &options, script));
    assert_eq!((gentle.code, &*dir.read("stopped")), (124, "stopped\n"), "{}", gentle.err);

    let (dir, mut options) = (Notes::new(), options.to_vec());
    options.splice(1..1, ["--on-lost", "kill"]);
    let hard = Ended::of(&mut dir.command(&scene, &options, script));
    assert_eq!((hard.code, &*dir.read("stopped")), (124, ""), "{}", hard.err);
    assert!(hard.err.contains("CMD gets KILL"), "{}", hard.err);
}

/// Who is stopped hears of TERM when it goes on; so it has to.
#[test]
fn a_command_that_is_stopped_is_told_as_well() {
    let (nodes, dir) = (Cluster::start(3), Notes::new());
    let scene = Scene::on(&nodes);
    let options = ["run", "--ttl", "10s", "--grace", "5s", "--max-hold", "10s", "r"];
    let script = "trap 'echo > $D/told; exit 3' TERM; echo > $D/ready; kill -STOP $$; \
                  n=0; while [ $n -lt 600 ]; do sleep 0.1; n=$((n + 1)); done";
    let ended = Ended::of(&mut dir.command(&scene, &options, script));
    assert_eq!(ended.code, 124, "{}", ended.err);
    assert!(dir.has("ready") && dir.has("told"), "{}", ended.err);
}

/// It would run without a lock: who wanted it has died before it could be tied to that.
#[test]
fn what_nobody_wants_any_more_is_not_run() {
    let dir = Notes::new();
    let mut command = dir.command(&Scene::default(), &["__exec", "1"], "echo > $D/ran");
    let ended = Ended::of(&mut command);
    assert_eq!(ended.code, 125);
    assert!(ended.err.contains("quorlock has died before it began"), "{}", ended.err);
    assert!(!dir.has("ran"));
}

#[test]
fn what_a_command_leaves_running_is_ended_with_it() {
    let (nodes, dir) = (Cluster::start(3), Notes::new());
    let scene = Scene::on(&nodes);
    let script = STUBBORN.strip_suffix("; wait").expect("it waits");
    // Before that it does not ignore TERM yet.
    let script = format!("{script}; while [ ! -e $D/alive ]; do sleep 0.05; done; exit 5");
    let options = ["run", "--ttl", "10s", "--grace", "500ms", "r"];
    let ended = Ended::of(&mut dir.command(&scene, &options, &script));
    assert_eq!(ended.code, 5);
    for told in
        ["what it left running is ended with it", "not all processes of CMD have ended after TERM"]
    {
        assert!(ended.err.contains(told), "{told}: {}", ended.err);
    }
    assert!(!is_alive(dir.number("grandchild")));
    assert!(nodes.is_empty());
}
