//! Tests with recently started nodes. Each run of the command is a new client, which has not observed any restart.

use crate::running::{Running, SOON, lock};
use crate::shell_session::ShellSession;
use kit::{Child, Cluster, Pipes, Server};
use rustix::process::{Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::time::Duration;

/// An uptime at which a restarted node is no longer excluded by default.
const AGE: Duration = Duration::from_secs(120);

/// Creates a session without `QUORLOCK_RESTART_GUARD`, so that the default guard applies.
fn by_default(nodes: &[Server]) -> ShellSession {
    ShellSession::on(nodes).without("QUORLOCK_RESTART_GUARD")
}

/// Starts nodes that report an uptime of `AGE`, so they are not excluded as recently started.
fn aged(count: usize) -> Cluster {
    let nodes = Cluster::start_with(count, &Server::builder().clock());
    nodes.iter().for_each(|node| node.clock().jump(AGE));
    nodes
}

fn code(session: &ShellSession, arguments: &[&str]) -> i32 {
    session.execute(arguments).code
}

#[test]
fn acquire_on_new_nodes_is_refused_with_the_way_out() {
    let nodes = Cluster::start(3);
    let session = by_default(&nodes);
    let run = ["run", "-n", "r", "--", "/bin/true"];
    for verb in [&run[..], &["hold", "-n", "r"], &["run", "-w", "2s", "r", "--", "/bin/true"]] {
        let ended = session.execute(verb);
        assert_eq!(ended.code, 69, "{}", ended.err);
        for part in ["no lock can be acquired for ", " of 3 nodes", "--restart-guard observed"] {
            assert!(ended.err.contains(part), "{part}: {}", ended.err);
        }
    }
    assert_eq!(code(&session, &["run", "--restart-guard", "observed", "r", "--", "/bin/true"]), 0);
    // The option overrides the variable, and the variable overrides the default.
    let observed = session.with("QUORLOCK_RESTART_GUARD", "observed");
    assert_eq!(code(&observed, &run), 0);
    assert_eq!(code(&observed, &["hold", "-n", "--restart-guard", "strict", "r"]), 69);
}

/// Without permission for `INFO`, a client treats a node as restarted after each connection.
#[test]
fn acquire_without_info_permission_names_the_permission() {
    let nodes = Cluster::start(1);
    nodes[0].cmd(&["ACL", "SETUSER", "default", "-info"]);
    let run = ["run", "-n", "r", "--", "/bin/true"];
    let ended = by_default(&nodes).execute(&run);
    assert_eq!(ended.code, 69, "{}", ended.err);
    assert!(ended.err.contains("permit INFO (+info)"), "{}", ended.err);
}

/// The reason must be printed before the wait begins.
#[test]
fn waiting_for_new_nodes_is_announced_by_each_subcommand() {
    let nodes = Cluster::start(3);
    let session = by_default(&nodes);
    for verb in
        [&["run", "r", "--", "/bin/true"][..], &["hold", "r"], &["lead", "r", "--", "/bin/true"]]
    {
        let (child, Pipes { stderr, .. }) = Child::spawn(&mut session.command(verb));
        let mut lines = BufReader::new(stderr).lines();
        let line = lines.next().expect("a line").expect("text");
        assert!(line.contains("waiting: no lock can be acquired for "), "{verb:?}: {line}");
        assert!(line.contains("--restart-guard observed"), "{verb:?}: {line}");
        kill_process(crate::running::pid(child.pid()), Signal::TERM).expect("it runs");
        assert!(child.wait(SOON).is_some(), "{verb:?}");
    }
}

/// All nodes lose the lock in a restart while its holder keeps running. A new client must not acquire the lock.
#[test]
fn second_holder_after_restart_of_all_nodes_is_refused() {
    let nodes = aged(3);
    let session = by_default(&nodes);
    // The ttl is long, so that no renewal restores the key.
    let mut holding = Running::of(&mut session.command(&["hold", "--ttl", "60s", "r"]));
    assert!(holding.line().contains("\"value\""));
    nodes.iter().for_each(|node| {
        node.kill();
        node.restart();
    });
    let run = |options: &[&str]| {
        let arguments = [&["run", "-n"], options, &["r", "--", "/bin/true"]].concat();
        code(&session, &arguments)
    };
    assert_eq!(run(&[]), 69);
    // Without the restart guard, the acquire succeeds.
    assert_eq!(run(&["--restart-guard", "off"]), 0);
    holding.send(Signal::TERM);
    holding.end();
}

#[test]
fn status_and_check_report_restarted_nodes() {
    let nodes = aged(5);
    let session = by_default(&nodes);
    let check = || session.execute(&["check"]);
    let status = |options: &[&str]| session.execute(&[&["status"], options, &["r"]].concat());
    assert_eq!((status(&[]).code, check().code), (0, 0));
    let restart = |node: &Server| {
        node.kill();
        node.restart();
    };
    nodes[..2].iter().for_each(restart);
    let (state, checked) = (status(&[]), check());
    assert_eq!((state.code, checked.code), (0, 1), "{}{}", state.out, checked.out);
    assert!(state.out.starts_with("r: free\n"), "{}", state.out);
    assert_eq!(checked.out.matches("danger: restarted ").count(), 2, "{}", checked.out);
    restart(&nodes[2]);
    let (state, checked) = (status(&[]), check());
    assert_eq!((state.code, checked.code), (69, 69), "{}{}", state.out, checked.out);
    assert!(state.out.starts_with("r: free, but cannot be acquired for "), "{}", state.out);
    assert_eq!(state.out.matches("counts again in ").count(), 3, "{}", state.out);
    // A node with a long uptime shows that the deployment is not new.
    assert!(state.err.contains("3 of 5 nodes") && !state.err.contains("observed"), "{}", state.err);
    assert_eq!(status(&["-q"]).code, 69);
    let json: serde_json::Value = serde_json::from_str(&status(&["--json"]).out).expect("JSON");
    let left = json["acquirable_in_seconds"].as_f64().expect("a number");
    assert!((1.0..=62.2).contains(&left), "{json}");
    assert_eq!(json["nodes"][2]["eligibility"]["kind"], "excluded", "{json}");
}

/// The restart guard applies only to acquires.
#[test]
fn release_by_value_ignores_restarts() {
    let nodes = Cluster::start(3);
    let session = by_default(&nodes);
    let value = "0123456789abcdef0123456789abcdef";
    nodes.iter().for_each(|node| lock(node, "r", value));
    let ended = session.execute(&["release", "r", "--value", value]);
    assert_eq!(
        (ended.code, &*ended.out),
        (0, "r: released, was held by 012345…\n"),
        "{}",
        ended.err
    );
}
