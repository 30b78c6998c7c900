//! Nodes that were restarted, or may have been: a new client, as each run of the command is, cannot know.

use crate::running::{Running, SOON};
use crate::scene::{Ended, Scene};
use kit::{Child, Cluster, Pipes, Server};
use rustix::process::{Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::time::Duration;

/// Longer than a restarted node has no vote, by default.
const AGE: Duration = Duration::from_secs(120);

/// The command as it is used without a guard in its environment.
fn by_default(nodes: &[Server]) -> Scene {
    Scene::on(nodes).without("QUORLOCK_RESTART_GUARD")
}

/// Nodes whose servers have been up for longer than they have no vote after a restart.
fn aged(count: usize) -> Cluster {
    let nodes = Cluster::start_with(count, &Server::builder().clock());
    nodes.iter().for_each(|node| node.clock().jump(AGE));
    nodes
}

fn code(scene: &Scene, arguments: &[&str]) -> i32 {
    Ended::of(&mut scene.command(arguments)).code
}

#[test]
fn acquire_on_new_nodes_is_refused_with_the_way_out() {
    let nodes = Cluster::start(3);
    let scene = by_default(&nodes);
    let run = ["run", "-n", "r", "--", "/bin/true"];
    for verb in [&run[..], &["hold", "-n", "r"], &["run", "-w", "100ms", "r", "--", "/bin/true"]] {
        let ended = Ended::of(&mut scene.command(verb));
        assert_eq!(ended.code, 69, "{}", ended.err);
        for part in ["no lock can be acquired for ", " of 3 nodes", "--restart-guard observed"] {
            assert!(ended.err.contains(part), "{part}: {}", ended.err);
        }
    }
    assert_eq!(code(&scene, &["run", "--restart-guard", "observed", "r", "--", "/bin/true"]), 0);
    // The option counts before the variable, and that before the default.
    let observed = scene.with("QUORLOCK_RESTART_GUARD", "observed");
    assert_eq!(code(&observed, &run), 0);
    assert_eq!(code(&observed, &["hold", "-n", "--restart-guard", "strict", "r"]), 69);
}

/// Without `INFO` a node looks restarted at each connection.
#[test]
fn acquire_without_info_permission_names_the_permission() {
    let nodes = Cluster::start(1);
    nodes[0].cmd(&["ACL", "SETUSER", "default", "-info"]);
    let run = ["run", "-n", "r", "--", "/bin/true"];
    let ended = Ended::of(&mut by_default(&nodes).command(&run));
    assert_eq!(ended.code, 69, "{}", ended.err);
    assert!(ended.err.contains("permit INFO (+info)"), "{}", ended.err);
}

/// An acquire that waits prints the reason first.
#[test]
fn waiting_for_new_nodes_is_announced_by_each_verb() {
    let nodes = Cluster::start(3);
    let scene = by_default(&nodes);
    for verb in
        [&["run", "r", "--", "/bin/true"][..], &["hold", "r"], &["lead", "r", "--", "/bin/true"]]
    {
        let (child, Pipes { stderr, .. }) = Child::spawn(&mut scene.command(verb));
        let mut lines = BufReader::new(stderr).lines();
        let told = lines.next().expect("a line").expect("text");
        assert!(told.contains("waiting: no lock can be acquired for "), "{verb:?}: {told}");
        assert!(told.contains("--restart-guard observed"), "{verb:?}: {told}");
        kill_process(crate::running::pid(child.pid()), Signal::TERM).expect("it runs");
        assert!(child.wait(SOON).is_some(), "{verb:?}");
    }
}

/// The trace of I14, for a client that is new: all nodes forget the lock of a holder that goes on.
#[test]
fn second_holder_after_restart_of_all_nodes_is_refused() {
    let nodes = aged(3);
    let scene = by_default(&nodes);
    // A ttl for which it need not renew: a renewal would put its key back.
    let mut holding = Running::of(&mut scene.command(&["hold", "--ttl", "60s", "r"]));
    assert!(holding.line().contains("\"value\""));
    nodes.iter().for_each(|node| {
        node.kill();
        node.restart();
    });
    let run = |options: &[&str]| {
        let arguments = [&["run", "-n"], options, &["r", "--", "/bin/true"]].concat();
        code(&scene, &arguments)
    };
    assert_eq!(run(&[]), 69);
    // Only the guard has refused it.
    assert_eq!(run(&["--restart-guard", "off"]), 0);
    holding.send(Signal::TERM);
    holding.end();
}

#[test]
fn status_and_check_report_restarted_nodes() {
    let nodes = aged(5);
    let scene = by_default(&nodes);
    let check = || Ended::of(&mut scene.command(&["check"]));
    let status =
        |options: &[&str]| Ended::of(&mut scene.command(&[&["status"], options, &["r"]].concat()));
    assert_eq!((status(&[]).code, check().code), (0, 0));
    let restart = |node: &Server| {
        node.kill();
        node.restart();
    };
    nodes[..2].iter().for_each(restart);
    let (told, checked) = (status(&[]), check());
    assert_eq!((told.code, checked.code), (0, 1), "{}{}", told.out, checked.out);
    assert!(told.out.starts_with("r: free\n"), "{}", told.out);
    assert_eq!(checked.out.matches("danger: restarted ").count(), 2, "{}", checked.out);
    restart(&nodes[2]);
    let (told, checked) = (status(&[]), check());
    assert_eq!((told.code, checked.code), (69, 69), "{}{}", told.out, checked.out);
    assert!(told.out.starts_with("r: free, but cannot be acquired for "), "{}", told.out);
    assert_eq!(told.out.matches("counts again in ").count(), 3, "{}", told.out);
    // An older node shows that the deployment is not new.
    assert!(told.err.contains("3 of 5 nodes") && !told.err.contains("observed"), "{}", told.err);
    assert_eq!(status(&["-q"]).code, 69);
    let told: serde_json::Value = serde_json::from_str(&status(&["--json"]).out).expect("JSON");
    let left = told["acquirable_in_seconds"].as_f64().expect("a number");
    assert!((1.0..=62.2).contains(&left), "{told}");
    assert_eq!(told["nodes"][2]["eligibility"]["kind"], "excluded", "{told}");
}

/// A release is no acquire: it needs no vote of a node that may have forgotten something.
#[test]
fn release_by_value_ignores_restarts() {
    let nodes = Cluster::start(3);
    let scene = by_default(&nodes);
    let value = "0123456789abcdef0123456789abcdef";
    for node in &nodes {
        node.cmd(&["SET", "r", value, "PX", "60000"]);
    }
    let ended = Ended::of(&mut scene.command(&["release", "r", "--value", value]));
    assert_eq!(
        (ended.code, &*ended.out),
        (0, "r: released, was held by 012345…\n"),
        "{}",
        ended.err
    );
}
