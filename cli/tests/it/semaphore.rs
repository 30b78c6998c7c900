//! Tests of `run --permits` and `status --permits`.

use crate::running::{Running, ScriptFiles, eventually, lock};
use crate::shell_session::{Ended, ShellSession};
use kit::{Child, Cluster, Pipes, Server};
use rustix::process::Signal;
use std::io::{BufRead, BufReader};

const QUORLOCK: &str = env!("CARGO_BIN_EXE_quorlock");

/// A command that records its start, and runs until the test writes the file `go`.
const UNTIL_GO: &str = "echo $$ >> $D/begun; while [ ! -e $D/go ]; do sleep 0.05; done";

/// Stores a permit of the semaphore `downloads`, for a holder that uses this number of `permits`.
fn hold_permit(node: &Server, permit: usize, permits: usize, holder: &str) {
    let key = format!("downloads#quorlock:permit{permit}:{{downloads}}");
    lock(node, &key, &format!("{permit:032x}/{permits}:{holder}"));
}

#[track_caller]
fn await_begun(dir: &ScriptFiles, commands: usize) {
    eventually("the commands run", || dir.read("begun").lines().count() == commands);
}

#[test]
fn as_many_commands_as_permits_run_at_a_time() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let session = ShellSession::on(&nodes);
    let run = |options: &[&str], script: &str| {
        let arguments = [&["run", "--permits", "2"], options, &["downloads"]].concat();
        dir.command(&session, &arguments, script)
    };
    let first = Running::of(&mut run(&["--metadata", "web-1"], UNTIL_GO));
    let second = Running::of(&mut run(&["--metadata", "web-2"], UNTIL_GO));
    await_begun(&dir, 2);

    let refused = Ended::of(&mut run(&["-n"], "echo ran"));
    assert_eq!((refused.code, &*refused.out), (1, ""));
    let reason = "quorlock: downloads has no free permit: held by web-";
    assert!(refused.err.starts_with(reason), "{}", refused.err);
    assert!(["web-1", "web-2"].iter().all(|it| refused.err.contains(it)), "{}", refused.err);
    assert!(!refused.err.contains("#quorlock"), "{}", refused.err);
    let quiet = Ended::of(&mut run(&["-q", "-n", "-E", "9"], "echo ran"));
    assert_eq!((quiet.code, &*quiet.err, &*quiet.out), (9, "", ""));

    let mut waiting = Running::of(&mut run(&[], "echo $QUORLOCK_RESOURCE"));
    let message = waiting.error_line();
    assert!(
        message.starts_with("quorlock: waiting (3s): downloads has no free permit: held by web-"),
        "{message}"
    );
    first.send(Signal::TERM);
    assert_eq!(waiting.line(), "downloads\n");
    assert_eq!((first.end().code, waiting.end().code), (143, 0));
    dir.write("go");
    assert_eq!(second.end().code, 0);
    assert!(nodes.is_empty());
}

#[test]
fn many_waiting_runs_never_exceed_the_permits() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let session = ShellSession::on(&nodes);
    let script = "echo begin >> $D/log; sleep 0.1; echo end >> $D/log";
    let arguments = ["run", "-w", "60s", "--permits", "3", "downloads"];
    let all: Vec<_> =
        (0..12).map(|_| Running::of(&mut dir.command(&session, &arguments, script))).collect();
    for one in all {
        let ended = one.end();
        assert_eq!(ended.code, 0, "{}", ended.err);
    }
    let log = dir.read("log");
    let (mut running, mut peak) = (0_usize, 0);
    for line in log.lines() {
        running = if line == "begin" { running + 1 } else { running - 1 };
        peak = peak.max(running);
    }
    assert_eq!(log.lines().count(), 24);
    assert!((1..=3).contains(&peak), "{peak} commands ran at the same time: {log}");
}

#[test]
fn status_lists_the_holders_of_permits() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let session = ShellSession::on(&nodes);
    let run = |worker: &str| {
        let options = ["run", "--ttl", "50s", "--permits", "3", "--metadata", worker, "downloads"];
        Running::of(&mut dir.command(&session, &options, UNTIL_GO))
    };
    let running = ["worker-1", "worker-2"].map(run);
    await_begun(&dir, 2);
    let status = session.execute(&["status", "--permits", "3", "downloads"]);
    assert_eq!((status.code, &*status.err), (0, ""));
    let mut lines: Vec<_> = status.out.lines().collect();
    // Each command acquires a random permit, so the order of the holders differs between runs.
    lines[1..3].sort_unstable();
    assert_eq!(lines[0], "downloads: 2 of 3 permits held, 1 free");
    assert!(lines[1].starts_with("  held by worker-1 (expires in "), "{lines:?}");
    assert!(lines[2].starts_with("  held by worker-2 (expires in "), "{lines:?}");
    let on_nodes = nodes.iter().map(|node| format!("  {} 2 held, 1 free", node.addr()));
    assert_eq!(lines[3..], on_nodes.collect::<Vec<_>>());

    // A lock with the same name is independent.
    assert_eq!(session.status("downloads"), 0);
    dir.write("go");
    for one in running {
        assert_eq!(one.end().code, 0);
    }
}

#[test]
fn semaphore_is_free_held_or_unknown() {
    let (nodes, mut session) = ShellSession::start(3);
    let mut status = || {
        session.run(&["status", "--permits", "2", "downloads"]);
        session.run(&["status", "--permits", "2", "--json", "downloads"]);
        session.run(&["status", "-q", "--permits", "2", "downloads"]);
    };
    status();
    nodes.iter().for_each(|node| hold_permit(node, 0, 2, "web-1"));
    status();
    nodes[..2].iter().for_each(|node| hold_permit(node, 1, 2, "web-2"));
    status();
    // Two clients hold the same permit on one node each.
    hold_permit(&nodes[1], 1, 2, "cron");
    hold_permit(&nodes[2], 1, 2, "report");
    status();
    // A client with another number of permits.
    nodes.iter().for_each(|node| hold_permit(node, 1, 4, "web-2"));
    nodes.iter().for_each(|node| hold_permit(node, 3, 4, "web-4"));
    status();
    nodes[0].kill();
    status();
    nodes[1].kill();
    status();
    session.compare_with("status-permits.txt");
}

#[test]
fn semaphore_excluded_by_the_restart_guard_is_delayed() {
    let (_nodes, session) = ShellSession::start(3);
    let session = session.with("QUORLOCK_RESTART_GUARD", "strict");
    let status = session.execute(&["status", "--permits", "2", "downloads"]);
    assert_eq!(status.code, 69);
    let summary = "downloads: 0 of 2 permits held, 2 free, but cannot be acquired for ";
    assert!(status.out.starts_with(summary), "{}", status.out);
    assert!(status.out.contains(" 0 held, 2 free (restarted "), "{}", status.out);
    assert!(status.err.contains("no lock can be acquired for up to "), "{}", status.err);
}

#[test]
fn watch_prints_each_change_of_a_semaphore() {
    let (nodes, session) = ShellSession::start(1);
    let arguments = ["status", "--watch", "--permits", "2", "downloads"];
    let (_child, Pipes { stdout, .. }) = Child::spawn(&mut session.command(&arguments));
    let mut lines = BufReader::new(stdout).lines();
    let mut shows = |text: &str| {
        let line = lines.next().expect("another line").expect("text");
        assert!(line.contains(&format!(" downloads: {text}")), "{line}");
    };
    shows("0 of 2 permits held, 2 free: ");
    hold_permit(&nodes[0], 1, 2, "web-1");
    shows("1 of 2 permits held, 1 free: held by web-1 (expires in ");
    hold_permit(&nodes[0], 0, 2, "web-2");
    shows("2 of 2 permits held, 0 free: held by web-2 (expires in ");
    nodes[0].flushall();
    shows("0 of 2 permits held, 2 free: ");
}

#[test]
fn different_numbers_of_permits_are_reported() {
    let (nodes, session) = ShellSession::start(3);
    for node in &nodes[..] {
        hold_permit(node, 0, 4, "web-1");
        hold_permit(node, 1, 4, "web-2");
    }
    let refused = session.execute(&["run", "-n", "--permits", "2", "downloads", "--", "/bin/true"]);
    assert_eq!(refused.code, 1);
    let warning = "quorlock: downloads: another client uses 4 permits instead of 2: use the same";
    assert!(refused.err.contains(warning), "{}", refused.err);
}

#[test]
fn failing_renewals_name_the_semaphore() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let session = ShellSession::on(&nodes).with("QUORLOCK_NODE_TIMEOUT", "250ms");
    let options = ["run", "--ttl", "3s", "--permits", "2", "downloads"];
    let mut running = Running::of(&mut dir.command(&session, &options, UNTIL_GO));
    await_begun(&dir, 1);
    nodes.iter().for_each(Server::kill);
    let warning = running.error_line();
    assert!(warning.starts_with("quorlock: downloads: renewals are failing; "), "{warning}");
    let ended = running.end();
    assert_eq!(ended.code, 124, "{}", ended.err);
    assert!(ended.err.contains("quorlock: downloads: no renewal succeeds"), "{}", ended.err);
}

#[test]
fn nested_request_without_a_free_permit_is_refused() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let session = ShellSession::on(&nodes);
    let run = |permits: &str, script: &str| {
        Ended::of(&mut dir.command(&session, &["run", "--permits", permits, "a"], script))
    };
    let refused = run("1", &format!("{QUORLOCK} run --permits 1 a -- true"));
    assert_eq!(refused.code, 1);
    let reason = "a has no free permit, and all are held by outer quorlock processes: waiting";
    assert!(refused.err.contains(reason), "{}", refused.err);
    let nested = format!("{QUORLOCK} run --permits 2 a -- {QUORLOCK} run --permits 2 a -- true");
    let refused = run("2", &nested);
    assert!(refused.code == 1 && refused.err.contains(reason), "{}", refused.err);

    for script in [
        format!("{QUORLOCK} run --permits 2 a -- true"),
        format!("{QUORLOCK} run a -- true"),
        format!("{QUORLOCK} run --permits 1 b -- true"),
        format!("QUORLOCK_KEY_PREFIX=x: {QUORLOCK} run --permits 1 a -- true"),
    ] {
        let ended = run("2", &script);
        assert_eq!(ended.code, 0, "{script}: {}", ended.err);
    }
    let under_lock = format!("{QUORLOCK} run --permits 1 a -- true");
    let ended = Ended::of(&mut dir.command(&session, &["run", "a"], &under_lock));
    assert_eq!(ended.code, 0, "{}", ended.err);
}
