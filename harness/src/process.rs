//! A process that cannot outlive the torturer.

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process_group, waitid,
};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How often one that is to end is looked at.
const PAUSE: Duration = Duration::from_millis(2);

/// A child. It leads a process group of its own, so the signals of a terminal do not reach it, and is killed with its
/// group when this is dropped, also when it is stopped.
///
/// Where the torturer itself is killed, a child that reads its standard input sees the end of it; and of one that is
/// stopped, the group is orphaned then, which POSIX sends HUP and CONT.
#[derive(Debug)]
pub struct Process(Child);

/// The pipes to and from a process.
#[derive(Debug)]
pub(crate) struct Pipes {
    /// What it reads; closed when this is dropped.
    pub(crate) stdin: ChildStdin,
    /// What it prints.
    pub(crate) stdout: ChildStdout,
    /// What it complains about.
    pub(crate) stderr: ChildStderr,
}

impl Process {
    /// Starts it.
    ///
    /// # Errors
    ///
    /// Those of the operating system.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        command.process_group(0).spawn().map(Self)
    }

    /// Starts it, with its standard streams piped.
    pub(crate) fn with_pipes(command: &mut Command) -> io::Result<(Self, Pipes)> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = Self::spawn(command)?;
        let Child { stdin, stdout, stderr, .. } = &mut process.0;
        let lacks = || io::Error::other("a pipe is missing");
        let pipes = Pipes {
            stdin: stdin.take().ok_or_else(lacks)?,
            stdout: stdout.take().ok_or_else(lacks)?,
            stderr: stderr.take().ok_or_else(lacks)?,
        };
        Ok((process, pipes))
    }

    /// What it complains about, where that is piped; once.
    pub fn stderr(&mut self) -> Option<ChildStderr> {
        self.0.stderr.take()
    }

    /// Stops it (SIGSTOP) and returns when it has stopped, or ended.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
        // One that has ended is left to be reaped.
        let either = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while matches!(waitid(WaitId::Pid(self.pid()), either), Err(Errno::INTR)) {}
    }

    /// Lets it continue (SIGCONT).
    pub(crate) fn cont(&self) {
        self.signal(Signal::CONT);
    }

    /// Waits until it has ended, for at most `limit`; `None` while it runs.
    pub fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let begun = Instant::now();
        loop {
            // Nobody else reaps it.
            match self.0.try_wait() {
                Ok(Some(status)) => return Some(status),
                _ if begun.elapsed() >= limit => return None,
                _ => thread::sleep(PAUSE),
            }
        }
    }

    /// Its exit code, or the number of the signal that ended it, negated, once it has ended.
    pub(crate) fn code(status: ExitStatus) -> i32 {
        status.code().unwrap_or_else(|| -status.signal().unwrap_or(0))
    }

    fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let looked: rustix::io::Result<Option<WaitIdStatus>> =
            waitid(WaitId::Pid(self.pid()), options);
        !matches!(looked, Ok(None))
    }

    fn signal(&self, signal: Signal) {
        // Until it is reaped, its number is its own.
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
        // Reaped already, or dead in a moment.
        let _ = self.0.wait();
    }
}
