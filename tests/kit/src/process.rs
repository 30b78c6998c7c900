//! Child processes that do not outlive this one.

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

/// A child starts as this shell, which replaces itself by the program after it has read a line:
/// 1. The test process forks a child.
/// 2. The test process is killed before it could report the child to the reaper.
/// 3. The reaper does not know the child.
///
/// In step 3, `read` reaches the end of its input, and the shell exits.
const GATE: &str = r#"read -r go && exec "$0" "$@" </dev/null"#;

/// Maximum time for a signal to take effect.
const SIGNAL_LIMIT: Duration = Duration::from_secs(20);

/// Program, arguments, environment and working directory.
#[derive(Debug)]
pub(crate) struct Program<'a> {
    pub(crate) name: &'a OsStr,
    pub(crate) args: &'a [OsString],
    pub(crate) env: &'a [(OsString, OsString)],
    pub(crate) dir: &'a Path,
}

/// A child process that leads a process group, running or ended. Dropping it kills the group with
/// SIGKILL and reaps the child.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
}

impl Process {
    /// Starts `program`, with both of its outputs appended to `log`.
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
        // Fails only if the child has ended, which `has_exited` detects.
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

    /// Returns true if the process has ended. Does not reap it, so its id is not reused.
    pub(crate) fn has_exited(&self) -> bool {
        !matches!(self.status(), Ok(None))
    }

    /// The exit code, or the negated signal that ended the process. `None` while it exists.
    pub(crate) fn exit_code(&self) -> Option<i32> {
        let status = self.status().expect("the child is not reaped")?;
        status.exit_status().or_else(|| status.terminating_signal().map(|signal| -signal))
    }

    fn status(&self) -> rustix::io::Result<Option<WaitIdStatus>> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(self.pid()), options)
    }

    /// Sends SIGSTOP to the group. Returns when all threads of the process have stopped, or it has
    /// ended.
    #[track_caller]
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
        let is_still = || self.is_stopped() || self.has_exited();
        eventually(SIGNAL_LIMIT, "a process has stopped after SIGSTOP", is_still);
    }

    /// Sends SIGCONT to the group. Returns when the process is no longer stopped.
    #[track_caller]
    pub(crate) fn cont(&self) {
        self.signal(Signal::CONT);
        eventually(SIGNAL_LIMIT, "a process has continued after SIGCONT", || !self.is_stopped());
    }

    /// Returns true if the process is stopped by SIGSTOP.
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
        // The order matters. Killed first, so that the process does not remain if this process ends
        // in between. Removed from the reaper's list before it is reaped, because its id can be
        // reused after that.
        let _ = kill_process_group(self.pid(), Signal::KILL);
        reaper::forget_process(self.id());
        let _ = self.child.wait();
    }
}

/// The state letter of each thread: the field after the name in parentheses. The name may contain
/// parentheses.
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
    fn program_starts_only_after_the_go_line() {
        assert_eq!(output(Stdio::null()), b"");
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        writer.write_all(b"go\n").expect("the pipe has room");
        assert_eq!(output(reader.into()), b"started\n");
    }
}
