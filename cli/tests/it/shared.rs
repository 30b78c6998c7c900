//! Tests of `run --shared`, and of the readers that `status` and `release` show.

use crate::running::{Running, ScriptFiles, eventually, lock};
use crate::shell_session::{Ended, ShellSession};
use kit::{Cluster, Server};

const QUORLOCK: &str = env!("CARGO_BIN_EXE_quorlock");

/// A command that records its start, and runs until the test writes the file `go`.
const UNTIL_GO: &str = "echo $$ >> $D/begun; while [ ! -e $D/go ]; do sleep 0.05; done";

/// Makes new readers wait on this node, as a waiting writer does.
fn set_intent(node: &Server) {
    lock(node, "catalog#quorlock:writer:{catalog}", "30500 gone");
}

#[track_caller]
fn await_begun(dir: &ScriptFiles, commands: usize) {
    eventually("the commands run", || dir.read("begun").lines().count() == commands);
}

#[test]
fn shared_commands_run_together_and_exclude_others() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let session = ShellSession::on(&nodes);
    let run = |options: &[&str], script: &str| {
        dir.command(&session, &[&["run"], options, &["catalog"]].concat(), script)
    };
    let readers = [(); 2].map(|()| Running::of(&mut run(&["--shared"], UNTIL_GO)));
    await_begun(&dir, 2);

    let refused = Ended::of(&mut run(&["-n"], "echo ran"));
    assert_eq!((refused.code, &*refused.out), (1, ""));
    let reason = "quorlock: catalog is held by readers: ";
    assert!(refused.err.starts_with(reason), "{}", refused.err);
    let mut waiting = Running::of(&mut run(&["--metadata", "web-1"], "echo ran; read line"));
    let message = waiting.error_line();
    assert_eq!(message, "quorlock: waiting (3s): catalog is held by readers\n");

    dir.write("go");
    for reader in readers {
        let ended = reader.end();
        assert_eq!((ended.code, &*ended.err), (0, ""));
    }
    assert_eq!(waiting.line(), "ran\n");
    let refused = Ended::of(&mut run(&["-n", "--shared"], "echo ran"));
    assert_eq!((refused.code, &*refused.out), (1, ""));
    let reason = "quorlock: catalog is held by web-1: ";
    assert!(refused.err.starts_with(reason), "{}", refused.err);
    waiting.close_stdin();
    waiting.end();
    let names = Ended::of(&mut run(&["--shared"], "echo $QUORLOCK_RESOURCE $QUORLOCK_HELD"));
    assert!(names.out.starts_with("catalog "), "{}", names.out);
    assert!(names.out.contains(r#""value":"quorlock:readers""#), "{}", names.out);
    assert!(nodes.is_empty());
}

#[test]
fn contending_shared_and_exclusive_runs_never_overlap() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let session = ShellSession::on(&nodes);
    let run = |number: usize| {
        let (options, name) =
            if number.is_multiple_of(3) { (&[][..], 'w') } else { (&["--shared"][..], 'r') };
        let script = format!("echo +{name} >> $D/log; sleep 0.1; echo -{name} >> $D/log");
        let arguments = [&["run", "-w", "60s"], options, &["catalog"]].concat();
        Running::of(&mut dir.command(&session, &arguments, &script))
    };
    for one in (0..12).map(run).collect::<Vec<_>>() {
        let ended = one.end();
        assert_eq!(ended.code, 0, "{}", ended.err);
    }
    let log = dir.read("log");
    let (mut readers, mut writers) = (0_usize, 0_usize);
    for line in log.lines() {
        match line {
            "+r" => readers += 1,
            "-r" => readers -= 1,
            "+w" => writers += 1,
            _ => writers -= 1,
        }
        assert!(writers == 0 || (writers, readers) == (1, 0), "{log}");
    }
    assert_eq!(log.lines().count(), 24);
}

#[test]
fn reader_waits_for_a_writer_that_waits() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let session = ShellSession::on(&nodes);
    let run = |options: &[&str], script: &str| {
        let arguments = [&["run", "--shared"], options, &["catalog"]].concat();
        dir.command(&session, &arguments, script)
    };
    let reader = Running::of(&mut run(&[], UNTIL_GO));
    await_begun(&dir, 1);
    nodes.iter().for_each(set_intent);
    let refused = Ended::of(&mut run(&["-n"], "echo ran"));
    assert_eq!((refused.code, &*refused.out), (1, ""));
    let reason = "quorlock: catalog is held by readers, and a writer waits for it: ";
    assert!(refused.err.starts_with(reason), "{}", refused.err);

    dir.write("go");
    assert_eq!(reader.end().code, 0);
    let refused = Ended::of(&mut run(&["-n"], "echo ran"));
    assert_eq!((refused.code, &*refused.out), (1, ""));
    let reason =
        "quorlock: catalog: not acquired: a writer waits for the lock, or holds it on too ";
    assert!(refused.err.starts_with(reason), "{}", refused.err);
    let quiet = Ended::of(&mut run(&["-q", "-n", "-E", "9"], "echo ran"));
    assert_eq!((quiet.code, &*quiet.err, &*quiet.out), (9, "", ""));
}

#[test]
fn readers_are_shown_and_released_by_force() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let mut session = ShellSession::on(&nodes);
    let arguments = ["run", "--shared", "--ttl", "8s", "catalog"];
    let reader = Running::of(&mut dir.command(&session, &arguments, UNTIL_GO));
    await_begun(&dir, 1);
    session.run(&["status", "catalog"]);
    session.run(&["status", "--json", "catalog"]);
    session.run(&["release", "catalog", "--force"]);
    let ended = reader.end();
    assert_eq!(ended.code, 124, "{}", ended.err);
    session.run(&["status", "catalog"]);
    session.compare_with("readers.txt");
}

#[test]
fn nested_reader_is_allowed_and_nested_writer_is_refused() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let session = ShellSession::on(&nodes);
    let run = |options: &[&str], script: &str| {
        Ended::of(&mut dir.command(&session, &[&["run"], options, &["a"]].concat(), script))
    };
    for (options, script) in [
        (&["--shared"][..], format!("{QUORLOCK} run a -- true")),
        (&["--shared"], format!("{QUORLOCK} run b a -- true")),
        (&["--shared"], format!("{QUORLOCK} hold a")),
        (&["--shared"], format!("{QUORLOCK} run --shared a -- {QUORLOCK} run a -- true")),
        (&[], format!("{QUORLOCK} run --shared a -- true")),
    ] {
        let ended = run(options, &script);
        assert_eq!(ended.code, 1, "{script}: {}", ended.err);
        let reason = "a is already held by an outer quorlock process: waiting would be";
        assert!(ended.err.contains(reason), "{}", ended.err);
    }
    for script in [
        format!("{QUORLOCK} run --shared a -- true"),
        format!("{QUORLOCK} run b -- {QUORLOCK} run --shared a -- true"),
        format!("{QUORLOCK} run --permits 1 a -- true"),
        format!("QUORLOCK_KEY_PREFIX=x: {QUORLOCK} run a -- true"),
    ] {
        let ended = run(&["--shared"], &script);
        assert_eq!(ended.code, 0, "{script}: {}", ended.err);
    }
}
