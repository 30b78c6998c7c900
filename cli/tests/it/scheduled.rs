//! Tests of `run --every`.

use crate::running::{Running, ScriptFiles, eventually, lock};
use crate::shell_session::{Ended, ShellSession};
use kit::{Cluster, Server};
use rustix::process::Signal;

const COUNTER: &str = "job#quorlock:period:{job}";

/// A command that records its start, and runs until the test writes the file `go`.
const UNTIL_GO: &str = "echo $$ >> $D/begun; while [ ! -e $D/go ]; do sleep 0.05; done";

/// Arguments for a period of 30 days, so that tests do not span its end.
fn arguments<'a>(options: &[&'a str]) -> Vec<&'a str> {
    [&["run", "--every", "30d"], options, &["job"]].concat()
}

#[test]
fn command_runs_once_in_a_period() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let session = ShellSession::on(&nodes);
    let run = |options: &[&str], script: &str| {
        Ended::of(&mut dir.command(&session, &arguments(options), script))
    };
    let first = run(&[], "echo $QUORLOCK_RESOURCE; exit 3");
    assert_eq!((first.code, &*first.out, &*first.err), (3, "job\n", ""));
    let second = run(&[], "echo ran");
    assert_eq!((second.code, &*second.out), (0, ""));
    let message = "quorlock: job: skipped: this period was taken ";
    assert!(second.err.starts_with(message), "{}", second.err);
    let quiet = run(&["-q"], "echo ran");
    assert_eq!((quiet.code, &*quiet.out, &*quiet.err), (0, "", ""));
    assert!(nodes.all_have(COUNTER) && nodes.none_has("job"));
}

#[test]
fn failed_command_runs_again_with_take_over() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let session = ShellSession::on(&nodes);
    let run = |script: &str| {
        let options = ["--take-over", "--offset", "3h", "--fenced"];
        Ended::of(&mut dir.command(&session, &arguments(&options), script))
    };
    let failed = run("exit 3");
    assert_eq!((failed.code, &*failed.err), (3, ""));
    assert!(nodes.none_has(COUNTER));
    let second = run("echo token $QUORLOCK_TOKEN");
    assert!(second.code == 0 && second.out.starts_with("token 1"), "{} {}", second.out, second.err);
    let third = run("echo ran");
    assert_eq!((third.code, &*third.out), (0, ""));
}

#[test]
fn call_with_other_options_is_reported() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let session = ShellSession::on(&nodes);
    let run = |options: &[&str]| Ended::of(&mut dir.command(&session, &arguments(options), "true"));
    assert_eq!(run(&[]).code, 0);
    let other = run(&["--take-over"]);
    let warning = "quorlock: job: another call ran this job with --every 30days instead of --every 30days --take-over: \
                   use the same options everywhere\n";
    assert!(other.code == 0 && other.err.starts_with(warning), "{}", other.err);
}

#[test]
fn killed_command_is_taken_over_by_a_waiting_call() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let session = ShellSession::on(&nodes);
    let run = |script: &str| {
        let options = arguments(&["--take-over", "--ttl", "4s"]);
        Running::of(&mut dir.command(&session, &options, script))
    };
    let first = run(UNTIL_GO);
    eventually("the command runs", || dir.read("begun").lines().count() == 1);
    let waiting = run("echo taken over");
    first.send(Signal::KILL);
    let ended = waiting.end();
    assert_eq!((ended.code, &*ended.out), (0, "taken over\n"));
}

#[test]
fn cool_down_and_other_holders_are_reported() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let session = ShellSession::on(&nodes);
    let first = Ended::of(&mut dir.command(&session, &arguments(&["--at-least", "50s"]), "true"));
    assert_eq!((first.code, &*first.err), (0, ""));
    nodes.servers().iter().for_each(|node| _ = node.del(COUNTER));
    let cooling = Ended::of(&mut dir.command(&session, &arguments(&[]), "echo ran"));
    assert_eq!((cooling.code, &*cooling.out), (0, ""));
    assert!(cooling.err.starts_with("quorlock: job: skipped: cooling down"), "{}", cooling.err);
    nodes.servers().iter().for_each(Server::flushall);
    for node in nodes.servers() {
        lock(node, "job", &format!("{:032x}:web-1", 7));
    }
    let held = Ended::of(&mut dir.command(&session, &arguments(&["-n", "-E", "9"]), "echo ran"));
    assert_eq!((held.code, &*held.out), (9, ""));
    assert!(held.err.starts_with("quorlock: job: held by web-1"), "{}", held.err);
}

#[test]
fn unknown_state_of_the_period_is_no_quorum() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let session = ShellSession::on(&nodes);
    for node in &nodes.servers()[..2] {
        node.set(COUNTER, "not a number");
    }
    let refused = Ended::of(&mut dir.command(&session, &arguments(&["-n"]), "echo ran"));
    assert_eq!((refused.code, &*refused.out), (69, ""));
    assert!(refused.err.contains("COUNTER the key of a job counter"), "{}", refused.err);
}
