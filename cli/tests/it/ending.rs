//! Tests that all processes of the command end before the lock of `run` expires.

use crate::running::{Running, ScriptFiles, eventually, is_alive, lock, pid};
use crate::shell_session::{Ended, ShellSession};
use kit::{Cluster, Server};
use rustix::process::{Signal, kill_process};
use std::time::{Duration, Instant, SystemTime};

/// A script that waits for a child process. The child ignores TERM, and touches a file every 100 ms.
const STUBBORN: &str = "(trap '' TERM; n=0; while [ $n -lt 600 ]; do : > $D/alive; sleep 0.1; n=$((n + 1)); done) & \
                        echo $! > $D/grandchild; wait";

fn hang(nodes: &Cluster) {
    nodes.iter().for_each(Server::stop);
}

const ROUNDS: usize = 2;
const AT_ONCE: usize = 25;

#[test]
fn group_that_ignores_term_is_killed_before_the_lease_ends() {
    const TTL: Duration = Duration::from_secs(4);
    for _ in 0..ROUNDS {
        let nodes = Cluster::start(3);
        let session = ShellSession::on(&nodes).with("QUORLOCK_NODE_TIMEOUT", "300ms");
        let start = |number: usize| {
            let (dir, name) = (ScriptFiles::new(), format!("r{number}"));
            let command = &mut dir.command(&session, &["run", "--ttl", "4s", &name], STUBBORN);
            (Running::of(command), dir)
        };
        let all: Vec<_> = (0..AT_ONCE).map(start).collect();
        for (_, dir) in &all {
            eventually("it works", || dir.has("alive"));
        }
        hang(&nodes);
        // No renewal succeeds from here on, so no lease is valid after its ttl.
        let end = SystemTime::now() + TTL;
        for (running, dir) in all {
            let ended = running.end();
            assert_eq!(ended.code, 124, "{}", ended.err);
            for message in [
                ": no renewal succeeds, and the lock expires in ",
                "sending TERM to CMD",
                "sending KILL",
            ] {
                assert!(ended.err.contains(message), "{message}: {}", ended.err);
            }
            assert!(!is_alive(dir.number("grandchild")), "it ends before quorlock");
            let late = dir.written("alive").duration_since(end);
            assert!(late.is_err(), "it ended {late:?} after the lease");
        }
        nodes.iter().for_each(Server::cont);
    }
}

#[test]
fn command_dies_at_once_when_quorlock_is_killed() {
    let (nodes, session) = ShellSession::start(3);
    let mut longest = Duration::ZERO;
    for _ in 0..ROUNDS {
        let start = |number: usize| {
            let (dir, name) = (ScriptFiles::new(), format!("r{number}"));
            let script = "echo $$ > $D/child; exec sleep 60";
            (Running::of(&mut dir.command(&session, &["run", "--ttl", "5s", &name], script)), dir)
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
fn quorlock_continued_after_the_validity_kills_the_command() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let session = ShellSession::on(&nodes);
    let mut command = dir.command(&session, &["run", "--ttl", "5s", "r"], STUBBORN);
    let running = Running::of(&mut command);
    let grandchild = dir.number("grandchild");
    running.stop();
    eventually("the lock ends", || nodes.is_empty());
    assert!(is_alive(grandchild), "quorlock is stopped");
    running.cont();
    let ended = running.end();
    assert_eq!(ended.code, 124);
    assert!(
        ended.err.contains("r: the lock was lost (its validity ended): sending KILL"),
        "{}",
        ended.err
    );
    assert!(!is_alive(grandchild));
}

#[test]
fn taken_over_lock_kills_the_command_without_grace() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let session = ShellSession::on(&nodes);
    let running = Running::of(&mut dir.command(&session, &["run", "--ttl", "60s", "r"], STUBBORN));
    let grandchild = dir.number("grandchild");
    nodes.iter().for_each(|node| lock(node, "r", "another client's"));
    let ended = running.end();
    assert_eq!(ended.code, 124);
    assert!(
        ended.err.contains("r: the lock was lost (another client holds the lock"),
        "{}",
        ended.err
    );
    assert!(ended.err.contains("sending KILL to CMD"), "{}", ended.err);
    assert_eq!(ended.err.lines().count(), 1, "the loss is reported once: {}", ended.err);
    assert!(!is_alive(grandchild));
    assert!(
        nodes.keys_per_node().iter().all(|keys| keys == &[b"r"]),
        "the other client's key is kept"
    );
}

#[test]
fn command_gets_term_before_kill_unless_on_lost_is_kill() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let session = ShellSession::on(&nodes);
    // The lock is lost when `--max-hold` is reached.
    let options = ["run", "--ttl", "3s", "--max-hold", "3s", "r"];
    let script = "trap 'echo stopped > $D/stopped; exit 3' TERM; n=0; \
                  while [ $n -lt 600 ]; do sleep 0.1; n=$((n + 1)); done";
    let gentle = Ended::of(&mut dir.command(&session, &options, script));
    assert_eq!((gentle.code, &*dir.read("stopped")), (124, "stopped\n"), "{}", gentle.err);
    assert!(gentle.err.contains("r: --max-hold is reached in "), "{}", gentle.err);

    let (dir, mut options) = (ScriptFiles::new(), options.to_vec());
    options.splice(1..1, ["--on-lost", "kill"]);
    let hard = Ended::of(&mut dir.command(&session, &options, script));
    assert_eq!((hard.code, &*dir.read("stopped")), (124, ""), "{}", hard.err);
    assert!(hard.err.contains("sending KILL to CMD"), "{}", hard.err);
}

/// If `--max-hold` is not longer than the default `--grace` of 3 s, the grace is reduced.
#[test]
fn short_max_hold_leaves_time_for_the_command() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let session = ShellSession::on(&nodes);
    let ended =
        Ended::of(&mut dir.command(&session, &["run", "--max-hold", "3s", "r"], "sleep 0.2"));
    assert_eq!((ended.code, &*ended.err), (0, ""));
}

/// A stopped process handles TERM only after CONT.
#[test]
fn stopped_command_is_continued_to_handle_term() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let session = ShellSession::on(&nodes);
    let options = ["run", "--ttl", "10s", "--grace", "5s", "--max-hold", "10s", "r"];
    let script = "trap 'echo > $D/told; exit 3' TERM; echo > $D/ready; kill -STOP $$; \
                  n=0; while [ $n -lt 600 ]; do sleep 0.1; n=$((n + 1)); done";
    let ended = Ended::of(&mut dir.command(&session, &options, script));
    assert_eq!(ended.code, 124, "{}", ended.err);
    assert!(dir.has("ready") && dir.has("told"), "{}", ended.err);
}

/// If the parent dies before the parent death signal is set, the command would run without a lock.
#[test]
fn command_of_a_dead_parent_is_not_started() {
    let dir = ScriptFiles::new();
    let mut command = dir.command(&ShellSession::default(), &["__exec", "1"], "echo > $D/ran");
    let ended = Ended::of(&mut command);
    assert_eq!(ended.code, 125);
    assert!(ended.err.contains("quorlock ended before the command was started"), "{}", ended.err);
    assert!(!dir.has("ran"));
}

/// The daemon is still in the group of the command when the command ends, and moves to its own session a moment later.
#[test]
fn daemon_in_a_session_of_its_own_outlives_the_command() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let session = ShellSession::on(&nodes);
    for number in 0..20 {
        let file = format!("daemon{number}");
        let script = format!(
            "setsid sh -c 'echo $$ > $D/{file}; exec sleep 60' < /dev/null > /dev/null 2>&1 &"
        );
        let ended = Ended::of(&mut dir.command(&session, &["run", "r"], &script));
        assert_eq!((ended.code, &*ended.err), (0, ""), "{file}");
        let daemon = dir.number(&file);
        let survived = is_alive(daemon);
        let _ = kill_process(pid(daemon), Signal::KILL);
        assert!(survived, "{file}");
    }
    assert!(nodes.is_empty());
}

#[test]
fn background_processes_end_with_the_command() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let session = ShellSession::on(&nodes);
    let script = STUBBORN.strip_suffix("; wait").expect("it waits");
    // Until the file exists, the child process does not ignore TERM.
    let script = format!("{script}; while [ ! -e $D/alive ]; do sleep 0.05; done; exit 5");
    let options = ["run", "--ttl", "10s", "--grace", "500ms", "r"];
    let ended = Ended::of(&mut dir.command(&session, &options, &script));
    assert_eq!(ended.code, 5);
    for message in [
        "sending TERM to the processes that it left running",
        "processes of CMD are still running after TERM",
    ] {
        assert!(ended.err.contains(message), "{message}: {}", ended.err);
    }
    assert!(!is_alive(dir.number("grandchild")));
    assert!(nodes.is_empty());
}
