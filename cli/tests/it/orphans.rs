//! `run` as process 1, as in a container: orphans come to it.

use crate::running::Notes;
use crate::scene::{Ended, Scene};
use kit::Cluster;
use rustix::process::{getpid, set_child_subreaper};
use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Where the script is that is to be run.
const SCRIPT: &str = "QUORLOCK_TEST_ORPHANS";

/// This program becomes `quorlock`, to which the orphans below it come.
#[test]
#[ignore = "it is run by the test of this file, in a process of its own"]
fn becomes_quorlock() {
    let script = env::var(SCRIPT).expect("it is told");
    set_child_subreaper(Some(getpid())).expect("Linux has it");
    let mut command = Command::new(env!("CARGO_BIN_EXE_quorlock"));
    command.args(["run", "r", "--", "/bin/sh", "-c", &script]).env_remove(SCRIPT);
    panic!("{}", command.exec());
}

#[test]
fn what_has_ended_is_not_taken_for_running() {
    let (nodes, dir) = (Cluster::start(3), Notes::new());
    let mut command = Command::new(env::current_exe().expect("it has a path"));
    command.args(["--ignored", "--exact", "orphans::becomes_quorlock", "--nocapture"]);
    let given = dir.command(&Scene::on(&nodes), &[], "");
    command.envs(given.get_envs().filter_map(|(name, value)| Some((name, value?))));
    // The subshell's child is an orphan, and has ended before the command does.
    let script = "(sh -c 'echo $$ > $D/orphan' &); while [ ! -s $D/orphan ]; do sleep 0.05; done; \
                  while [ \"$(cut -d' ' -f3 /proc/$(cat $D/orphan)/stat)\" != Z ]; do sleep 0.05; done; \
                  exit 5";
    let ended = Ended::of(command.env(SCRIPT, script));
    assert_eq!((ended.code, &*ended.err), (5, ""));
    assert!(nodes.is_empty());
}
