//! Child processes that do not outlive this process.

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

/// Shell script that each child runs first. It waits for a line from the test process, and then
/// replaces itself with the program. The test process writes the line after it has reported the
/// child to the reaper. If the test process is killed before it writes the line, `read` reaches the
/// end of its input, and the shell exits.
const GATE: &str = r#"read -r go && exec "$0" "$@" </dev/null"#;

const SIGNAL_LIMIT: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(crate) struct Program<'a> {
    pub(crate) name: &'a OsStr,
    pub(crate) args: &'a [OsString],
    pub(crate) env: &'a [(OsString, OsString)],
    pub(crate) dir: &'a Path,
}

/// A child process that leads a process group, running or ended. Dropping this value kills the
/// group with SIGKILL and reaps the child.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
}

impl Process {
    /// Starts `program`. Both outputs of the process are appended to `log`.
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
        // An error means that the child has ended, which `has_exited` detects.
        let _ = gate.write_all(b"go\n");
        process
    }

    /// Takes ownership of a child that leads a process group, and reports the child to the reaper.
    pub(crate) fn watch(child: Child) -> Self {
        let process = Self { child };
        reaper::watch_process(process.id());
        process
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns true if the process has ended. Does not reap the process, so its ID is not reused.
    pub(crate) fn has_exited(&self) -> bool {
        !matches!(self.status(), Ok(None))
    }

    /// Returns the exit code, or the negated number of the signal that ended the process. Returns
    /// `None` while the process runs or is stopped.
    pub(crate) fn exit_code(&self) -> Option<i32> {
        let status = self.status().expect("the child is not reaped")?;
        status.exit_status().or_else(|| status.terminating_signal().map(|signal| -signal))
    }

    fn status(&self) -> rustix::io::Result<Option<WaitIdStatus>> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(self.pid()), options)
    }

    /// Sends SIGSTOP to the group. Returns when all threads of the process have stopped or the
    /// process has ended.
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
        // The order matters. The child is killed first, so that it does not remain if this process
        // ends before the next steps. The child is removed from the reaper's list before it is
        // reaped, because its ID can be reused afterwards.
        let _ = kill_process_group(self.pid(), Signal::KILL);
        reaper::forget_process(self.id());
        let _ = self.child.wait();
    }
}

/// Returns the state letter of each thread of the process. In `stat`, the letter follows the name
/// in parentheses, and the name may also contain parentheses.
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
