//! Tests of signals that `run` forwards to its command.

use crate::running::{
    Running, ScriptFiles, eventually, pid, with_default_signals, with_ignored_signals, wrapped,
};
use crate::shell_session::{Ended, ShellSession};
use kit::Cluster;
use rustix::process::{Signal, kill_process};

#[test]
fn signals_are_forwarded_to_the_command() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let session = ShellSession::on(&nodes);
    let script = "for s in HUP INT QUIT USR1 USR2; do trap \"echo $s >> $D/heard\" $s; done; \
                  trap 'echo TERM >> $D/heard; exit 4' TERM; echo > $D/ready; n=0; \
                  while [ $n -lt 600 ]; do sleep 0.05; n=$((n + 1)); done";
    let mut command = with_default_signals(&dir.command(&session, &["run", "r"], script));
    let running = Running::of(&mut command);
    eventually("the traps are set", || dir.has("ready"));
    let signals = [
        (Signal::HUP, "HUP"),
        (Signal::INT, "INT"),
        (Signal::QUIT, "QUIT"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
        (Signal::TERM, "TERM"),
    ];
    for (signal, name) in signals {
        running.send(signal);
        eventually(name, || dir.read("heard").ends_with(&format!("{name}\n")));
    }
    assert_eq!(running.end().code, 4);
    assert!(nodes.is_empty());
}

#[test]
fn ignored_signals_stay_ignored() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let session = ShellSession::on(&nodes);
    let script = "echo $$ > $D/child; while [ ! -e $D/go ]; do sleep 0.05; done; exit 6";
    let plain = dir.command(&session, &["run", "r"], script);
    // These signals are ignored under nohup(1), and in background jobs of a shell.
    let running = Running::of(&mut with_ignored_signals("HUP,INT,QUIT", &plain));
    let child = dir.number("child");
    for signal in [Signal::HUP, Signal::INT, Signal::QUIT] {
        running.send(signal);
        kill_process(pid(child), signal).expect("it runs");
    }
    dir.write("go");
    assert_eq!(running.end().code, 6);
}

/// If a process ignores CHLD, the kernel discards the exit statuses of its children. quorlock may inherit this setting.
#[test]
fn exit_code_is_known_although_sigchld_was_ignored() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let session = ShellSession::on(&nodes);
    for verb in ["run", "lead"] {
        let plain = dir.command(&session, &[verb, "r"], "exit 5");
        let ended = Ended::of(&mut with_ignored_signals("CHLD", &plain));
        assert_eq!((ended.code, &*ended.err), (5, ""), "{verb}");
    }
}

/// Without a terminal, no other process sends INT and QUIT to the command.
#[test]
fn foreground_signals_are_forwarded_without_a_terminal() {
    let (nodes, dir) = (Cluster::start(3), ScriptFiles::new());
    let session = ShellSession::on(&nodes);
    let script = "for s in HUP INT QUIT USR1 TERM; do trap \"echo $s >> $D/heard\" $s; done; \
                  echo $PPID > $D/quorlock; echo > $D/ready; n=0; \
                  while [ ! -e $D/go ] && [ $n -lt 600 ]; do sleep 0.05; n=$((n + 1)); done; exit 4";
    let command = dir.command(&session, &["run", "--foreground", "r"], script);
    let _running =
        Running::of(&mut wrapped("setsid", &["--wait"], &with_default_signals(&command)));
    eventually("the traps are set", || dir.has("ready"));
    let heard = |name: &str| dir.read("heard").matches(name).count();
    for (number, (signal, name)) in (0..).zip([
        (Signal::HUP, "HUP"),
        (Signal::INT, "INT"),
        (Signal::QUIT, "QUIT"),
        (Signal::USR1, "USR1"),
        (Signal::TERM, "TERM"),
    ]) {
        let quorlock = dir.number("quorlock");
        kill_process(pid(quorlock), signal).expect("it runs");
        eventually(name, || heard(name) == 1);
        assert_eq!(dir.read("heard").lines().count(), number + 1);
    }
    dir.write("go");
}
