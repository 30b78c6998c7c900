//! Tests of `run`, `lead` and `hold` as process 1, for example in a container. The kernel makes process 1 the parent of
//! all orphans.

use crate::running::{ScriptFiles, variables, wrapped};
use crate::shell_session::{Ended, ShellSession};
use kit::Cluster;
use rustix::process::{getpid, set_child_subreaper};
use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// This environment variable passes the script to `exec_quorlock_as_subreaper`.
const SCRIPT: &str = "QUORLOCK_TEST_ORPHANS";

/// Not a test but a helper: executes `quorlock` in a process that adopts orphaned descendants (a child subreaper).
#[test]
#[ignore = "it is run by the test of this file, in a process of its own"]
fn exec_quorlock_as_subreaper() {
    let script = env::var(SCRIPT).expect("it is set");
    set_child_subreaper(Some(getpid())).expect("Linux has it");
    let mut command = Command::new(env!("CARGO_BIN_EXE_quorlock"));
    command.args(["run", "r", "--", "/bin/sh", "-c", &script]).env_remove(SCRIPT);
    panic!("{}", command.exec());
}

/// Returns a command that runs `command` as process 1 of a new PID namespace. Returns `None` if this user may not
/// create namespaces.
fn as_process_1(command: &Command) -> Option<Command> {
    const NAMESPACE: [&str; 4] = ["--pid", "--fork", "--mount-proc", "--kill-child"];
    let tried = Command::new("unshare").args(NAMESPACE).arg("true").output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        eprintln!("skipped: unshare --pid needs root, on Linux");
        return None;
    }
    Some(wrapped("unshare", &NAMESPACE, command))
}

/// A script that creates 100 orphans, each in a new session. When all of them have ended, the script writes the number
/// of remaining zombies to a file.
const ORPHANS: &str =
    "i=0; while [ $i -lt 100 ]; do (setsid sh -c 'echo x >> $D/ended' &); i=$((i+1)); done
    while [ $(wc -l < $D/ended) -lt 100 ]; do sleep 0.05; done
    i=0; while [ $i -lt 100 ]; do
        left=$(grep -l '^State:.Z' /proc/[0-9]*/status 2> /dev/null | wc -l)
        [ $left -ne 0 ] || break; sleep 0.05; i=$((i+1))
    done
    echo $left > $D/zombies; ";

#[test]
fn process_1_reaps_orphans_while_its_command_runs() {
    for verb in [["run", "r"], ["lead", "r"]] {
        let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
        let command = dir.command(&ShellSession::on(&nodes), &verb, &format!("{ORPHANS} exit 7"));
        let Some(mut command) = as_process_1(&command) else { return };
        let ended = Ended::of(&mut command);
        assert_eq!(ended.code, 7, "{verb:?}: {}", ended.err);
        assert_eq!(dir.number("zombies"), 0, "{verb:?}");
    }
}

#[test]
fn process_1_reaps_orphans_while_it_holds_a_lock() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let session = ShellSession::on(&nodes);
    let quorlock = env!("CARGO_BIN_EXE_quorlock");
    let script = format!("({ORPHANS} kill -TERM 1) & exec {quorlock} hold r");
    let given = dir.command(&session, &[], "");
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", &script]).env_clear();
    shell.envs(variables(&given));
    let Some(mut command) = as_process_1(&shell) else { return };
    let ended = Ended::of(&mut command);
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert_eq!(dir.number("zombies"), 0);
}

/// The orphans end at the same time as the command and wake the reaper, which must leave the command's exit status to
/// tokio.
#[test]
fn process_1_returns_the_exit_code_of_a_command_with_orphans() {
    let (nodes, dir) = (Cluster::start(1), ScriptFiles::new());
    let script = "for i in 1 2 3 4 5 6 7 8 9; do (true &); done; exit 7";
    for _ in 0..10 {
        let command = dir.command(&ShellSession::on(&nodes), &["run", "r"], script);
        let Some(mut command) = as_process_1(&command) else { return };
        let ended = Ended::of(&mut command);
        assert_eq!(ended.code, 7, "{}", ended.err);
    }
}

#[test]
fn zombies_of_the_group_do_not_delay_the_end() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let mut command = Command::new(env::current_exe().expect("it has a path"));
    command.args(["--ignored", "--exact", "orphans::exec_quorlock_as_subreaper", "--nocapture"]);
    let given = dir.command(&ShellSession::on(&nodes), &[], "");
    command.envs(variables(&given));
    // The child process of the subshell becomes an orphan, and ends before the command does.
    let script = "(sh -c 'echo $$ > $D/orphan' &); while [ ! -s $D/orphan ]; do sleep 0.05; done; \
                  while [ \"$(cut -d' ' -f3 /proc/$(cat $D/orphan)/stat)\" != Z ]; do sleep 0.05; done; \
                  exit 5";
    let ended = Ended::of(command.env(SCRIPT, script));
    assert_eq!((ended.code, &*ended.err), (5, ""));
    assert!(nodes.is_empty());
}
