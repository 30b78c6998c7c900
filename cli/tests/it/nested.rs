//! Tests of commands that run under a lock and request the same lock again.

use crate::running::{Running, ScriptFiles, eventually};
use crate::shell_session::{Ended, ShellSession};
use kit::Cluster;
use rustix::process::Signal;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

const QUORLOCK: &str = env!("CARGO_BIN_EXE_quorlock");

#[test]
fn nested_request_for_the_same_lock_is_refused() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let session = ShellSession::on(&nodes);
    let run = |script: &str| Ended::of(&mut dir.command(&session, &["run", "a"], script));
    for script in [
        format!("{QUORLOCK} run a -- true"),
        format!("{QUORLOCK} run b a -- true"),
        format!("{QUORLOCK} run b -- {QUORLOCK} run a -- true"),
        format!("{QUORLOCK} hold a"),
        format!("{QUORLOCK} lead a -- true"),
    ] {
        let ended = run(&script);
        assert_eq!(ended.code, 1, "{script}: {}", ended.err);
        assert!(
            ended.err.contains("a is already held by an outer quorlock process: waiting would be"),
            "{}",
            ended.err
        );
    }
    assert_eq!(run(&format!("{QUORLOCK} run -E 9 a -- true")).code, 9);
    assert_eq!(run(&format!("{QUORLOCK} run b -- true")).code, 0, "another one");
    let elsewhere = format!("QUORLOCK_KEY_PREFIX=x: {QUORLOCK} run a -- true");
    assert_eq!(run(&elsewhere).code, 0, "another key");
    let broken =
        Ended::of(session.command(&["run", "a", "--", "/bin/true"]).env("QUORLOCK_HELD", "?"));
    assert!(broken.code == 2 && broken.err.contains("QUORLOCK_HELD"), "{}", broken.err);
}

#[test]
fn nested_request_on_other_nodes_is_allowed() {
    let (nodes, others, dir) = (Cluster::start(3), Cluster::start(1), ScriptFiles::new());
    let session = ShellSession::on(&nodes);
    let mut urls = nodes.urls();
    let run = |urls: &[String], options: &str| {
        let nodes = urls.join(",");
        let script = format!("QUORLOCK_NODES={nodes} {QUORLOCK} run {options} a -- true");
        Ended::of(&mut dir.command(&session, &["run", "--foreground", "a"], &script)).code
    };
    urls.reverse();
    assert_eq!(run(&urls, ""), 1);
    assert_eq!(run(&others.urls(), ""), 0, "other nodes");
    for url in &mut urls {
        url.push_str("/1");
    }
    assert_eq!(run(&urls, ""), 0, "other databases");
}

/// `QUORLOCK_HELD` contains names as text. Names with different bytes must remain different there.
#[test]
fn names_that_are_not_utf8_are_distinguished() {
    let (_nodes, session) = ShellSession::start(1);
    let again = |name: &[u8]| {
        let mut command = session.command(&["run", "b"]);
        command.arg(OsStr::from_bytes(b"odd\xff")).args(["--", QUORLOCK, "run"]);
        command.arg(OsStr::from_bytes(name)).args(["--", "/bin/true"]);
        Ended::of(&mut command)
    };
    for other in [&b"odd\xfe"[..], b"odd\\xff", "odd\u{fffd}".as_bytes(), b"odd"] {
        let ended = again(other);
        assert_eq!(ended.code, 0, "{other:?}: {}", ended.err);
    }
    let ended = again(b"odd\xff");
    assert_eq!(ended.code, 1);
    assert!(ended.err.contains("odd\\xff is already held by"), "{}", ended.err);
    assert_eq!(again(b"b").code, 1);
}

/// A daemon, such as tmux or dockerd, can outlive the lock under which it was started. After the release, the daemon
/// can acquire the lock.
#[test]
fn daemon_of_an_earlier_lock_can_acquire_it_again() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let session = ShellSession::on(&nodes);
    // The daemon leaves the process group before the command ends.
    let daemon = format!(
        "touch $D/up
         while [ ! -e $D/first ]; do sleep 0.05; done; {QUORLOCK} run -n a -- true; echo $? > $D/contended
         while [ ! -e $D/second ]; do sleep 0.05; done; {QUORLOCK} run -n a -- true; echo $? > $D/free"
    );
    let script = format!(
        "setsid sh -c '{daemon}' > /dev/null 2> $D/err &
         while [ ! -e $D/up ]; do sleep 0.05; done"
    );
    assert_eq!(Ended::of(&mut dir.command(&session, &["run", "a"], &script)).code, 0);
    // The other holder's lock has another value, so the refusal is not reported as a deadlock.
    let mut holding = Running::of(&mut session.command(&["hold", "a"]));
    assert!(holding.line().contains("value"));
    dir.write("first");
    assert_eq!(dir.number("contended"), 1);
    let message = dir.read("err");
    assert!(
        message.contains("held by ") && !message.contains("outer quorlock process"),
        "{message}"
    );
    holding.send(Signal::TERM);
    assert_eq!(holding.end().code, 0);
    dir.write("second");
    assert_eq!(dir.number("free"), 0, "{}", dir.read("err"));
}

/// The other nodes may be unreachable, so one node that reports the lock is sufficient.
#[test]
fn lock_on_a_minority_that_answers_is_still_held() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let session = ShellSession::on(&nodes).with("QUORLOCK_CONNECT_TIMEOUT", "2s");
    let script = format!(
        "touch $D/begun; while [ ! -e $D/go ]; do sleep 0.05; done; {QUORLOCK} run -w 1s a -- true"
    );
    let running = Running::of(&mut dir.command(&session, &["run", "--ttl", "60s", "a"], &script));
    eventually("it runs", || dir.has("begun"));
    nodes[..2].iter().for_each(kit::Server::kill);
    dir.write("go");
    let ended = running.end();
    assert_eq!(ended.code, 1, "{}", ended.err);
    assert!(ended.err.contains("held by an outer quorlock process"), "{}", ended.err);
}
