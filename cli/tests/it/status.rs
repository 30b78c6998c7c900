//! Tests of the output and exit codes of `status`.

use crate::running::{WEB, lock};
use crate::shell_session::{Ended, ShellSession};
use kit::{Child, Cluster, Pipes, Proxy, Server, eventually};
use std::io::{BufRead, BufReader, Lines, Read};
use std::process::ChildStdout;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(20);

const CRON: &str = "fedcba9876543210fedcba9876543210";

#[test]
fn lock_is_free_held_or_unknown() {
    let (nodes, mut session) = ShellSession::start(3);
    let mut status = || {
        session.run(&["status", "backup"]);
        session.run(&["status", "-q", "backup"]);
    };
    status();
    lock(&nodes[0], "backup", WEB);
    status();
    lock(&nodes[1], "backup", WEB);
    status();
    lock(&nodes[1], "backup", CRON);
    nodes[2].cmd(&["RPUSH", "backup", "no", "lock"]);
    status();
    for node in &nodes[..] {
        node.flushall();
    }
    // Two free nodes of three determine the state. One held and one free node leave the state unknown.
    nodes[0].kill();
    status();
    lock(&nodes[1], "backup", WEB);
    status();
    nodes[1].kill();
    nodes[2].kill();
    status();
    session.compare_with("status.txt");
}

#[test]
fn json_has_one_object_per_line() {
    let (nodes, mut session) = ShellSession::start(3);
    lock(&nodes[0], "backup", WEB);
    lock(&nodes[1], "backup", WEB);
    nodes[2].kill();
    let json = session.run(&["status", "--json", "backup"]).out;
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(
        (&json["state"], &json["holder"]["metadata"]),
        (&"held".into(), &"web-1:4711".into())
    );
    session.run(&["status", "--json", "free"]);
    session.compare_with("status-json.txt");
}

/// Control characters in metadata and names must not reach the terminal.
#[cfg(unix)]
#[test]
fn names_and_metadata_are_printed_escaped() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let nodes = Cluster::start(1);
    let name = b"\xff\x1b[2J\n";
    nodes[0].set(name, format!("{CRON}:\x1b[2Jme"));
    let mut command = ShellSession::on(&nodes).command(&["status"]);
    let Ended { out: output, code, .. } = Ended::of(command.arg(OsStr::from_bytes(name)));
    assert_eq!(code, 1);
    let head = "\\xff\\u{1b}[2J\\n: held by \\u{1b}[2Jme\n";
    assert_eq!(output.split_inclusive('\n').next(), Some(head), "{output}");
}

/// A new client must wait until it has connected to all nodes, even if one is slow.
#[test]
fn status_waits_for_a_slow_connection() {
    let nodes = Cluster::start(3);
    let far = Proxy::start(nodes[2].addr());
    far.hold_connects(true);
    let urls = [nodes[0].url(), nodes[1].url(), far.url()].join(",");
    let session = ShellSession::default().with("QUORLOCK_NODES", &urls);
    let session =
        session.with("QUORLOCK_NODE_TIMEOUT", "1s").with("QUORLOCK_CONNECT_TIMEOUT", "60s");
    // With another guard, the recent start of the servers would also delay the result.
    let session = session.with("QUORLOCK_RESTART_GUARD", "off");
    let (child, Pipes { mut stdout, .. }) = Child::spawn(&mut session.command(&["status", "a"]));
    // The pause is longer than the node timeout.
    std::thread::sleep(Duration::from_secs(3));
    far.heal();
    assert_eq!(child.wait(SOON), Some(0));
    let mut output = String::new();
    stdout.read_to_string(&mut output).expect("text");
    assert!(output.ends_with(&format!("  {} free\n", far.addr())), "{output}");
}

#[test]
fn status_does_not_wait_for_nodes_that_refuse() {
    let nodes = Cluster::start(3);
    nodes.iter().for_each(Server::kill);
    let session = ShellSession::on(&nodes).with("QUORLOCK_CONNECT_TIMEOUT", "10m");
    let (child, _pipes) = Child::spawn(&mut session.command(&["status", "a"]));
    assert_eq!(child.wait(SOON), Some(69));
}

struct Watch {
    _child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Watch {
    fn start(session: &ShellSession, arguments: &[&str]) -> Self {
        let (child, Pipes { stdout, .. }) = Child::spawn(&mut session.command(arguments));
        Self { _child: child, lines: BufReader::new(stdout).lines() }
    }

    fn next(&mut self) -> String {
        self.lines.next().expect("another line").expect("text")
    }
}

#[test]
fn watch_prints_each_change_and_polls_twice_per_second() {
    let (nodes, session) = ShellSession::start(1);
    let mut text = Watch::start(&session, &["status", "--watch", "backup"]);
    let mut json = Watch::start(&session, &["status", "--watch", "--json", "backup"]);
    let mut both = |word: &str| {
        let (line, object) = (text.next(), json.next());
        assert!(line.contains(&format!(" backup: {word}")), "{line}");
        let object: serde_json::Value = serde_json::from_str(&object).expect("JSON");
        assert_eq!(object["state"], word.split(' ').next().expect("a word"));
        assert_eq!(line.split(' ').next().map(str::len), object["at"].as_str().map(str::len));
    };
    both("free");
    lock(&nodes[0], "backup", WEB);
    both("held by web-1:4711");
    // A change of the remaining ttl is not printed, so the next line is about the other holder.
    let calls = || nodes[0].calls("pttl");
    let (start, before) = (Instant::now(), calls());
    eventually(SOON, "the nodes are polled", || calls() >= before + 12);
    // Each of the two commands has polled at least five more times, at two polls per second.
    assert!(start.elapsed() > Duration::from_secs(2), "{:?}", start.elapsed());
    lock(&nodes[0], "backup", CRON);
    both("held by fedcba…");
    nodes[0].del("backup");
    both("free");
    nodes[0].kill();
    both("unknown");
}

/// Checks that `quorlock status --watch backup | head -n 1` ends.
#[test]
fn watch_ends_when_its_reader_closes_the_pipe() {
    let (nodes, session) = ShellSession::start(1);
    let (child, Pipes { stdout, .. }) =
        Child::spawn(&mut session.command(&["status", "--watch", "a"]));
    let mut lines = BufReader::new(stdout).lines();
    lines.next().expect("a line").expect("text");
    drop(lines);
    nodes[0].set("a", "somebody");
    assert_eq!(child.wait(SOON), Some(141));
}
