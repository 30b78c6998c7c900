//! Tests of `hold` and `lead`.

use crate::running::{Running, ScriptFiles, eventually, state, with_default_signals};
use crate::shell_session::ShellSession;
use kit::{Child, Cluster, Server};
use rustix::process::Signal;
use std::process::{Command, Stdio};

#[test]
fn hold_prints_json_and_releases_on_term() {
    let (_nodes, session) = ShellSession::start(3);
    let mut holding = Running::of(&mut session.command(&["hold", "--fenced", "b", "a"]));
    let json = holding.json_line();
    assert_eq!(json["resources"], serde_json::json!(["b", "a"]));
    assert!(json["validity_seconds"].as_f64().is_some_and(|valid| valid > 0.0 && valid < 10.0));
    assert!(json["token"].as_u64().is_some_and(|token| token > 0), "{json}");
    assert_eq!(session.status("a"), 1);
    holding.send(Signal::TERM);
    let ended = holding.end();
    assert_eq!((ended.code, &*ended.out, &*ended.err), (0, "", ""));
    for name in ["a", "b"] {
        assert_eq!(session.status(name), 0);
    }
}

#[test]
fn hold_loses_a_lock_released_by_its_value() {
    let (_nodes, session) = ShellSession::start(3);
    let mut holding = Running::of(&mut session.command(&["hold", "a"]));
    let json = holding.json_line();
    let value = json["value"].as_str().expect("a value").to_owned();
    let released = session.execute(&["release", "a", "--value", &value]);
    assert_eq!(released.code, 0, "{}", released.err);
    let ended = holding.end();
    assert_eq!(ended.code, 124);
    assert!(ended.err.contains("the lock was lost: "), "{}", ended.err);
}

#[test]
fn hold_after_a_forced_release_reports_the_loss_once() {
    let (_nodes, session) = ShellSession::start(3);
    let mut holding = Running::of(&mut session.command(&["hold", "a"]));
    holding.line();
    let released = session.execute(&["release", "a", "--force"]);
    assert_eq!(released.code, 0, "{}", released.err);
    let ended = holding.end();
    assert_eq!(ended.code, 124);
    assert!(ended.err.starts_with("quorlock: a: the lock was lost: "), "{}", ended.err);
    assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
}

#[test]
fn hold_ends_when_max_hold_is_reached() {
    let (_nodes, session) = ShellSession::start(3);
    let ended = session.execute(&["hold", "--max-hold", "3s", "a"]);
    assert_eq!((ended.code, &*ended.err), (124, "quorlock: a: --max-hold is reached\n"));
}

#[test]
fn hold_can_be_suspended_and_continued() {
    let (nodes, session) = ShellSession::start(3);
    let command = session.command(&["hold", "--ttl", "60s", "a"]);
    let mut holding = Running::of(&mut with_default_signals(&command));
    holding.line();
    // Control-Z sends TSTP.
    holding.send(Signal::TSTP);
    eventually("it is stopped", || state(holding.id()) == Some('T'));
    holding.send(Signal::CONT);
    eventually("it continues", || state(holding.id()) != Some('T'));
    assert_eq!(session.status("a"), 1, "the lock is still held");
    holding.send(Signal::INT);
    assert_eq!(holding.end().code, 0);
    assert!(nodes.is_empty());
}

#[test]
fn hold_while_stdin_ends_with_its_input() {
    let (_nodes, session) = ShellSession::start(3);
    // Without `--while-stdin`, the end of stdin has no effect.
    let mut apart = Running::of(&mut session.command(&["hold", "apart"]));
    apart.close_stdin();
    let mut holding = Running::of(&mut session.command(&["hold", "--while-stdin", "r"]));
    holding.line();
    holding.type_in("anything\n");
    let mut waiting = Running::of(&mut session.command(&["hold", "--while-stdin", "r"]));
    waiting.close_stdin();
    let ended = waiting.end();
    assert_eq!((ended.code, &*ended.out, &*ended.err), (129, "", ""), "before it held the lock");
    assert_eq!(session.status("r"), 1, "the lock is still held");
    holding.close_stdin();
    let ended = holding.end();
    assert_eq!((ended.code, &*ended.err), (0, ""));
    assert_eq!(session.status("r"), 0, "it is released");
    apart.line();
    apart.send(Signal::TERM);
    assert_eq!(apart.end().code, 0);
}

/// The kernel closes the pipe of a killed process, even after `kill -9`.
#[test]
fn hold_while_stdin_ends_with_a_killed_user() {
    let (nodes, session) = ShellSession::start(3);
    let (user, pipes) = Child::spawn(Command::new("/bin/sleep").arg("600"));
    let mut command = session.command(&["hold", "--while-stdin", "r"]);
    command.stdin(pipes.stdout).stdout(Stdio::null()).stderr(Stdio::null());
    let mut holding = command.spawn().expect("it runs");
    // `command` holds a copy of the pipe.
    drop(command);
    eventually("it is held", || nodes.keys_per_node().iter().all(|keys| !keys.is_empty()));
    drop(user);
    eventually("it is released", || nodes.is_empty());
    assert_eq!(holding.wait().expect("it is ours").code(), Some(0));
}

#[test]
fn hold_prints_when_renewals_fail_and_succeed_again() {
    let nodes = Cluster::start(3);
    let session = ShellSession::on(&nodes).with("QUORLOCK_NODE_TIMEOUT", "300ms");
    let mut holding = Running::of(&mut session.command(&["hold", "--ttl", "10s", "r"]));
    holding.line();
    nodes.iter().for_each(Server::stop);
    let failing = holding.error_line();
    nodes.iter().for_each(Server::cont);
    assert!(failing.contains("r: renewals are failing; the lock is lost in "), "{failing}");
    assert_eq!(holding.error_line(), "quorlock: r: renewals succeed again\n");
    holding.send(Signal::TERM);
    assert_eq!(holding.end().code, 0);
}

/// A script that appends the leader's token to a file and then runs until the file `go` exists.
const LEADER: &str = "echo $QUORLOCK_TOKEN >> $D/tokens; n=0; \
                      while [ ! -e $D/go ] && [ $n -lt 1200 ]; do sleep 0.05; n=$((n + 1)); done; exit 8";

#[test]
fn next_leader_has_a_higher_token() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let session = ShellSession::on(&nodes);
    let lead = || Running::of(&mut dir.command(&session, &["lead", "--ttl", "5s", "r"], LEADER));
    let tokens = || -> Vec<u64> {
        dir.read("tokens").lines().map(|token| token.parse().expect("a token")).collect()
    };
    let first = lead();
    eventually("one leads", || tokens().len() == 1);
    let second = lead();
    first.send(Signal::KILL);
    drop(first);
    eventually("another leads", || tokens().len() == 2);
    assert!(tokens().is_sorted_by(|one, next| one < next), "{:?}", tokens());
    dir.write("go");
    let ended = second.end();
    assert_eq!(ended.code, 8, "the exit code of the command: {}", ended.err);
}

/// The nodes were flushed but not restarted, so the message must not mention a restart.
#[test]
fn waiting_after_a_flush_names_the_flush() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let session = ShellSession::on(&nodes);
    let mut leader = Running::of(&mut dir.command(&session, &["lead", "--ttl", "3s", "r"], LEADER));
    eventually("it leads", || dir.has("tokens"));
    nodes.iter().for_each(Server::flushall);
    let mut seen = String::new();
    while !seen.contains("no lock can be acquired for ") {
        seen += &leader.error_line();
        assert!(seen.lines().count() < 20, "{seen}");
    }
    assert!(
        seen.contains("because 3 of 3 nodes have no vote (") && seen.contains(" flushed "),
        "{seen}"
    );
}

#[test]
fn lead_campaigns_again_after_a_loss() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let session = ShellSession::on(&nodes).with("QUORLOCK_NODE_TIMEOUT", "300ms");
    let leader = Running::of(&mut dir.command(&session, &["lead", "--ttl", "2s", "r"], LEADER));
    let terms = || dir.read("tokens").lines().count();
    eventually("it leads", || terms() == 1);
    nodes.iter().for_each(Server::stop);
    std::thread::sleep(std::time::Duration::from_secs(3));
    nodes.iter().for_each(Server::cont);
    eventually("it leads again", || terms() == 2);
    dir.write("go");
    let ended = leader.end();
    assert_eq!(ended.code, 8);
    assert!(
        ended.err.contains("r: no longer the leader: waiting for the lock again"),
        "{}",
        ended.err
    );
}
