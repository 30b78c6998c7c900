//! Tests of lock settings from options, variables and files, and of their precedence.

use crate::running::{Running, ScriptFiles, lock};
use crate::shell_session::{Ended, ShellSession};
use kit::{Cluster, Server};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;

/// Returns the JSON that `hold` prints, and the remaining TTL of the key on `node` in milliseconds.
fn held(session: &ShellSession, node: &Server, options: &[&str]) -> (Value, i64) {
    let mut holding = Running::of(&mut session.command(&[&["hold"], options, &["r"]].concat()));
    let json = holding.json_line();
    let ttl = node.pttl("r");
    holding.send(Signal::TERM);
    assert_eq!(holding.end().code, 0);
    (json, ttl)
}

#[test]
fn ttl_of_option_overrides_variable_and_file() {
    let (nodes, session) = ShellSession::start(1);
    let file = tempfile::NamedTempFile::new().expect("a file");
    let text = format!("nodes = [{:?}]\nttl = \"40s\"\n", nodes[0].url());
    fs::write(file.path(), text).expect("it is written");
    let file = file.path().to_str().expect("text");
    let ttl = |session: &ShellSession, options: &[&str]| held(session, &nodes[0], options).1;
    let within = |ttl: i64, seconds: i64| (seconds * 500..=seconds * 1_000).contains(&ttl);
    assert!(within(ttl(&session, &[]), 10));
    assert!(within(ttl(&session, &["--nodes-file", file]), 40));
    let session = session.with("QUORLOCK_TTL", "20s");
    assert!(within(ttl(&session, &["--nodes-file", file]), 20));
    assert!(within(ttl(&session, &["--nodes-file", file, "--ttl", "60s"]), 60));
}

#[test]
fn metadata_of_option_overrides_variable_and_default() {
    let (nodes, session) = ShellSession::start(1);
    let holder = |session: &ShellSession, options: &[&str]| {
        let (json, _) = held(session, &nodes[0], options);
        let value = json["value"].as_str().expect("text").to_owned();
        value.split_once(':').map(|(_, metadata)| metadata.to_owned()).expect("metadata")
    };
    let own = holder(&session, &[]);
    let (_, process) = own.rsplit_once(':').expect("HOST:PID");
    assert!(process.parse::<u32>().is_ok(), "{own}");
    let by_variable = session.with("QUORLOCK_METADATA", "web");
    assert_eq!(holder(&by_variable, &[]), "web");
    assert_eq!(holder(&by_variable, &["--metadata", "cron"]), "cron");
    let anonymous = ShellSession::on(&nodes).with("QUORLOCK_OWNER", "false");
    assert!(!held(&anonymous, &nodes[0], &[]).0["value"].as_str().expect("text").contains(':'));
}

/// Checks that the delay also applies if the command ends earlier.
#[test]
fn at_least_delays_other_clients() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let session = ShellSession::on(&nodes);
    let options = ["run", "--ttl", "60s", "--at-least", "50s", "r"];
    assert_eq!(Ended::of(&mut dir.command(&session, &options, "true")).code, 0);
    let refused = Ended::of(&mut dir.command(&session, &["run", "-n", "r"], "true"));
    assert_eq!(refused.code, 1);
    let status = session.execute(&["status", "r"]);
    assert_eq!(status.code, 1);
    for text in [&refused.err, &status.out] {
        assert!(text.contains("cooling down for ") && !text.contains("held by"), "{text}");
    }
    let released = session.execute(&["release", "r", "--force"]);
    assert_eq!(released.out, "r: released on 3 of 3 nodes, was cooling down\n");
}

#[test]
fn wait_can_be_set_by_a_variable() {
    let nodes = Cluster::start(3);
    nodes.iter().for_each(|node| lock(node, "r", "0123456789abcdef0123456789abcdef"));
    let session = ShellSession::on(&nodes).with("QUORLOCK_WAIT", "2s");
    for verb in [&["run", "r", "--", "/bin/true"][..], &["hold", "-E", "9", "r"]] {
        let ended = session.execute(verb);
        assert_eq!(ended.code, if verb[0] == "run" { 1 } else { 9 }, "{}", ended.err);
    }
    // The option overrides the variable.
    let session = ShellSession::on(&nodes).with("QUORLOCK_WAIT", "1h");
    let ended = session.execute(&["run", "-w", "2s", "r", "--", "/bin/true"]);
    assert_eq!(ended.code, 1, "{}", ended.err);
}
