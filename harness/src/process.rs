//! Child processes that do not outlive the torture program.

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process_group, waitid,
};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(2);

/// A child process with a process group of its own, so that signals from a terminal do not reach
/// the child. Dropping a `Process` kills the group, even if it is stopped.
///
/// If the torture program itself is killed, a child that reads standard input reaches end of file.
/// If the child is stopped, the kernel sends SIGHUP and SIGCONT to its orphaned process group, as
/// POSIX requires.
#[derive(Debug)]
pub struct Process(Child);

#[derive(Debug)]
pub(crate) struct Pipes {
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: ChildStdout,
    pub(crate) stderr: ChildStderr,
}

impl Process {
    /// Starts the command in a new process group.
    ///
    /// # Errors
    ///
    /// Returns an error if the operating system cannot start the process.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        command.process_group(0).spawn().map(Self)
    }

    pub(crate) fn with_pipes(command: &mut Command) -> io::Result<(Self, Pipes)> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = Self::spawn(command)?;
        let Child { stdin, stdout, stderr, .. } = &mut process.0;
        let missing = || io::Error::other("a pipe is missing");
        let pipes = Pipes {
            stdin: stdin.take().ok_or_else(missing)?,
            stdout: stdout.take().ok_or_else(missing)?,
            stderr: stderr.take().ok_or_else(missing)?,
        };
        Ok((process, pipes))
    }

    /// Takes the pipe of standard error. Returns `None` if standard error is not piped, or if the
    /// pipe was already taken.
    pub fn stderr(&mut self) -> Option<ChildStderr> {
        self.0.stderr.take()
    }

    /// Sends SIGSTOP, and returns when the process has stopped or ended.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
        // With `NOWAIT`, an ended process can still be reaped later.
        let either = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while matches!(waitid(WaitId::Pid(self.pid()), either), Err(Errno::INTR)) {}
    }

    pub(crate) fn cont(&self) {
        self.signal(Signal::CONT);
    }

    /// Waits until the process has ended. Returns `None` if it is still running after `limit`.
    pub fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let begun = Instant::now();
        loop {
            // `try_wait` does not fail, because only this object reaps the process.
            match self.0.try_wait() {
                Ok(Some(status)) => return Some(status),
                _ if begun.elapsed() >= limit => return None,
                _ => thread::sleep(PAUSE),
            }
        }
    }

    /// Returns the exit code. If a signal ended the process, returns the negated number of the
    /// signal.
    pub(crate) fn code(status: ExitStatus) -> i32 {
        status.code().unwrap_or_else(|| -status.signal().unwrap_or(0))
    }

    fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status: rustix::io::Result<Option<WaitIdStatus>> =
            waitid(WaitId::Pid(self.pid()), options);
        !matches!(status, Ok(None))
    }

    fn signal(&self, signal: Signal) {
        // The pid cannot be reused before the process is reaped.
        let _ = kill_process_group(self.pid(), signal);
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.has_ended() {
            self.signal(Signal::KILL);
        }
        // Reaps the process, unless `wait` already did.
        let _ = self.0.wait();
    }
}
