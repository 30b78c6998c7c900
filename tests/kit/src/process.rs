//! A child process that cannot outlive this one.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process_group, waitid,
};

use crate::{eventually, reaper};

/// A child starts as this shell, which becomes the wanted program (the same process) when told to:
/// 1. the test process forks a child;
/// 2. it is killed, before it could tell the reaper of the child;
/// 3. nobody knows of the child.
///
/// Here, at 3, the child's `read` meets the end of the file, and it exits.
const GATE: &str = r#"read -r go && exec "$0" "$@" </dev/null"#;

/// How long a signal may take to show its effect.
const SIGNAL_LIMIT: Duration = Duration::from_secs(20);

/// What to run, and where.
#[derive(Debug)]
pub(crate) struct Program<'a> {
    pub(crate) name: &'a OsStr,
    pub(crate) args: &'a [OsString],
    pub(crate) env: &'a [(OsString, OsString)],
    pub(crate) dir: &'a Path,
}

/// A running or ended child, the leader of a process group. Dropping it kills the group with
/// SIGKILL and reaps the child.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
}

impl Process {
    /// Starts `program` with its output, both kinds, appended to `log`.
    pub(crate) fn spawn(program: &Program<'_>, log: File) -> Self {
        let stderr = log.try_clone().expect("cannot duplicate a file descriptor");
        let mut child = Command::new("sh")
            .args(["-c", GATE])
            .arg(program.name)
            .args(program.args)
            .envs(program.env.iter().map(|(name, value)| (name, value)))
            .current_dir(program.dir)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(log)
            .stderr(stderr)
            .spawn()
            .expect("cannot start a process: is there an `sh` on the PATH?");
        let mut gate = child.stdin.take().expect("stdin is piped");
        let process = Self::watch(child);
        // Fails only when the child is gone, which `has_exited` will show.
        let _ = gate.write_all(b"go\n");
        process
    }

    /// Takes over a child that leads a process group.
    pub(crate) fn watch(child: Child) -> Self {
        let process = Self { child };
        reaper::watch_process(process.id());
        process
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether the process has ended. Does not reap it, so its id stays its own.
    pub(crate) fn has_exited(&self) -> bool {
        !matches!(self.look(), Ok(None))
    }

    /// The exit code, or the signal that ended it, negated; `None` before.
    pub(crate) fn exit_code(&self) -> Option<i32> {
        let status = self.look().expect("it is a child, and not reaped")?;
        status.exit_status().or_else(|| status.terminating_signal().map(|signal| -signal))
    }

    fn look(&self) -> rustix::io::Result<Option<WaitIdStatus>> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(self.pid()), options)
    }

    /// Sends SIGSTOP to the group and returns when no thread of the process runs any more, or it has
    /// ended.
    #[track_caller]
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
        let is_still = || self.is_stopped() || self.has_exited();
        eventually(SIGNAL_LIMIT, "a process has stopped after SIGSTOP", is_still);
    }

    /// Sends SIGCONT to the group and returns when the process is not stopped any more.
    #[track_caller]
    pub(crate) fn cont(&self) {
        self.signal(Signal::CONT);
        eventually(SIGNAL_LIMIT, "a process has continued after SIGCONT", || !self.is_stopped());
    }

    /// Whether the process is stopped (by SIGSTOP).
    pub(crate) fn is_stopped(&self) -> bool {
        if cfg!(target_os = "linux") {
            let states = thread_states(self.id());
            !states.is_empty() && states.iter().all(|state| *state == 'T')
        } else {
            let id = self.id().to_string();
            let ps = Command::new("ps").args(["-o", "state=", "-p", &id]).output();
            ps.is_ok_and(|ps| ps.stdout.trim_ascii().starts_with(b"T"))
        }
    }

    #[track_caller]
    fn signal(&self, signal: Signal) {
        if let Err(error) = kill_process_group(self.pid(), signal) {
            panic!("cannot send {signal:?} to process {}: {error}", self.id());
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The order matters: dying first, so that none is left if this process ends in the next
        // line; forgotten before reaped, so that the reaper never knows an id which may be reused.
        let _ = kill_process_group(self.pid(), Signal::KILL);
        reaper::forget_process(self.id());
        let _ = self.child.wait();
    }
}

/// The state letter of each thread: the field after the name in parentheses, which may contain
/// parentheses itself.
fn thread_states(process: u32) -> Vec<char> {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else {
        return Vec::new();
    };
    threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok())
        .filter_map(|stat| stat.rsplit_once(") ")?.1.chars().next())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(stdin: Stdio) -> Vec<u8> {
        let mut sh = Command::new("sh");
        let sh = sh.args(["-c", GATE, "echo", "started"]).stdin(stdin);
        sh.output().expect("sh runs").stdout
    }

    #[test]
    fn a_program_does_not_start_without_being_told_to() {
        assert_eq!(output(Stdio::null()), b"");
        let (told, mut teller) = std::io::pipe().expect("a pipe");
        teller.write_all(b"go\n").expect("the pipe has room");
        assert_eq!(output(told.into()), b"started\n");
    }
}
