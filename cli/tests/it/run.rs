//! Tests of `run`: environment, exit codes and concurrent runs.

use crate::running::{Running, ScriptFiles, eventually, lock, variables};
use crate::shell_session::{Ended, ShellSession};
use kit::Cluster;
use rustix::process::Signal;
use std::fs;
use std::process::Command;
use std::thread;

/// A lock value that belongs to no running client.
const OTHER: &str = "0123456789abcdef0123456789abcdef:web-1:4711";

#[test]
fn run_exits_with_the_commands_code_and_leaves_no_key() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let session = ShellSession::on(&nodes);
    for (script, expected) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill $$", 143)]
    {
        let ended = Ended::of(&mut dir.command(&session, &["run", "r"], script));
        assert_eq!((ended.code, &*ended.err), (expected, ""), "{script}");
        assert!(nodes.is_empty(), "{script}");
    }
    for (program, expected) in [("/no/such/command", 127), ("/", 126)] {
        let ended = session.execute(&["run", "r", "--", program]);
        assert_eq!(ended.code, expected);
        assert!(ended.err.contains(&format!("cannot run {program}: ")), "{}", ended.err);
        assert!(nodes.is_empty(), "{program}");
    }
}

#[test]
fn command_gets_streams_and_variables() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let session = ShellSession::on(&nodes);
    let mut cat = Running::of(&mut session.command(&["run", "r", "--", "/bin/cat"]));
    cat.type_in("through\n");
    assert_eq!(cat.line(), "through\n");
    // The command reads the stdin of quorlock, so closing stdin ends the command.
    cat.close_stdin();
    assert_eq!(cat.end().code, 0);

    let script = "echo \"$QUORLOCK_RESOURCE|$QUORLOCK_TOKEN\"";
    let run = |options: &[&str]| Ended::of(&mut dir.command(&session, options, script)).out;
    assert_eq!(run(&["run", "r"]), "r|\n", "no token without --fenced");
    assert_eq!(run(&["run", "b", "a"]), "b\na|\n");
    let mut under_another = dir.command(&session, &["run", "r"], script);
    under_another.env("QUORLOCK_TOKEN", "7").env("QUORLOCK_RESOURCE", "q");
    assert_eq!(
        Ended::of(&mut under_another).out,
        "r|\n",
        "inherited variables belong to another lock"
    );
    let token = || {
        let output = run(&["run", "--fenced", "r"]);
        output
            .trim()
            .strip_prefix("r|")
            .and_then(|token| token.parse::<u64>().ok())
            .expect("a token")
    };
    let first = token();
    assert!(token() > first);
}

#[test]
fn one_of_twenty_runs_without_waiting() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let session = ShellSession::on(&nodes);
    let script = "echo one >> $D/ran; while [ ! -e $D/go ]; do sleep 0.05; done";
    let arguments = ["run", "-n", "-E", "9", "r"];
    let all: Vec<_> =
        (0..20).map(|_| Running::of(&mut dir.command(&session, &arguments, script))).collect();
    eventually("nineteen are refused", || all.iter().filter(|one| one.has_ended()).count() >= 19);
    dir.write("go");
    let codes: Vec<_> = all.into_iter().map(|one| one.end().code).collect();
    assert_eq!(codes.iter().filter(|code| **code == 0).count(), 1, "{codes:?}");
    assert_eq!(codes.iter().filter(|code| **code == 9).count(), 19, "{codes:?}");
    assert_eq!(dir.read("ran"), "one\n");
}

#[test]
fn twenty_waiting_runs_run_one_after_the_other() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let session = ShellSession::on(&nodes);
    let ended: Vec<Ended> = thread::scope(|scope| {
        let run = |number: usize| {
            let script =
                format!("echo begin {number} >> $D/log; sleep 0.02; echo end {number} >> $D/log");
            let mut command = dir.command(&session, &["run", "-w", "60s", "r"], &script);
            scope.spawn(move || Ended::of(&mut command))
        };
        let all: Vec<_> = (0..20).map(run).collect();
        all.into_iter().map(|one| one.join().expect("it ends")).collect()
    });
    assert!(
        ended.iter().all(|one| one.code == 0),
        "{:?}",
        ended.iter().map(|one| &one.err).collect::<Vec<_>>()
    );
    let log = dir.read("log");
    let lines: Vec<_> = log.lines().collect();
    let mut ran: Vec<_> = lines
        .chunks(2)
        .map(|pair| {
            let number = pair[0].strip_prefix("begin ").expect("no run overlaps");
            assert_eq!(pair[1], format!("end {number}"), "{log}");
            number.parse::<usize>().expect("a number")
        })
        .collect();
    ran.sort_unstable();
    assert_eq!(ran, (0..20).collect::<Vec<_>>());
}

#[test]
fn long_wait_without_terminal_prints_the_reason() {
    let (nodes, session) = ShellSession::start(3);
    nodes.iter().for_each(|node| lock(node, "r", OTHER));
    let mut running = Running::of(&mut session.command(&["run", "r", "--", "/bin/true"]));
    let line = running.error_line();
    assert!(line.starts_with("quorlock: waiting (3s): r is held by web-1:4711"), "{line}");
    running.send(Signal::TERM);
    assert_eq!(running.end().code, 143);

    nodes[0].kill();
    nodes[1].kill();
    let mut running = Running::of(&mut session.command(&["lead", "r", "--", "/bin/true"]));
    let line = running.error_line();
    let reason = "r: no majority of the nodes is available (";
    assert!(line.contains(reason) && line.contains("down: connection refused"), "{line}");
    running.send(Signal::TERM);
    assert_eq!(running.end().code, 143);
}

#[test]
fn run_waits_for_a_held_lock_for_the_given_time() {
    let mut nodes = Cluster::start(3);
    let session = ShellSession::on(&nodes);
    nodes.iter().for_each(|node| lock(node, "r", OTHER));
    let run = |options: &[&str]| {
        let arguments = [&["run"], options, &["r", "--", "/bin/true"]].concat();
        session.execute(&arguments)
    };
    let refused = run(&["-n"]);
    assert_eq!(refused.code, 1);
    let waited = run(&["-w", "2s"]);
    assert_eq!(waited.code, 1);
    for err in [&refused.err, &waited.err] {
        assert!(err.starts_with("quorlock: r is held by web-1:4711: "), "{err}");
    }
    assert!(!waited.err.contains("waiting"), "the first message takes 3 s: {}", waited.err);
    assert_eq!(run(&["-w", "1s", "-E", "42"]).code, 42);

    for options in [&["-q", "-n"][..], &["--quiet", "-w", "1s"]] {
        let quiet = run(options);
        assert_eq!((quiet.code, &*quiet.err), (1, ""), "{options:?}");
    }

    // A signal ends the wait, and the waiter leaves no key.
    let waiting = Running::of(&mut session.command(&["run", "r", "--", "/bin/true"]));
    let clients = || nodes[0].cmd(&["CLIENT", "LIST"]);
    eventually("it waits", || format!("{:?}", clients()).contains("name=quorlock "));
    waiting.send(Signal::TERM);
    let ended = waiting.end();
    assert_eq!((ended.code, &*ended.err), (143, ""));
    assert!(nodes.keys_per_node().iter().all(|keys| keys == &[b"r"]));

    let servers = nodes.servers_mut();
    servers[0].kill();
    servers[1].kill();
    assert_eq!(run(&["-n"]).code, 69);
    let quiet = run(&["-q", "-n"]);
    assert!(
        quiet.code == 69 && quiet.err.contains("no quorum of nodes available"),
        "{}",
        quiet.err
    );
}

#[test]
fn waiting_run_survives_an_update_of_the_program() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let session = ShellSession::on(&nodes);
    nodes.iter().for_each(|node| lock(node, "r", OTHER));
    let program = dir.copy(env!("CARGO_BIN_EXE_quorlock"), "old");
    let given = session.command(&["run", "r", "--", "/bin/true"]);
    let mut command = Command::new(&program);
    command.args(given.get_args()).env_clear();
    command.envs(variables(&given));
    let waiting = Running::of(&mut command);
    eventually("it waits", || {
        format!("{:?}", nodes[0].cmd(&["CLIENT", "LIST"])).contains("name=quorlock ")
    });
    fs::remove_file(program).expect("it is there");
    nodes.iter().for_each(|node| assert!(node.del("r")));
    let ended = waiting.end();
    assert_eq!((ended.code, &*ended.err), (0, ""));
}
