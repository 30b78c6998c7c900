//! A child process of the caller's own making.

use std::os::unix::process::CommandExt;
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::process::Process;

/// How often one that is to end is looked at.
const PAUSE: Duration = Duration::from_millis(2);

/// A process started by the caller, for example a client of the servers, that cannot outlive it.
///
/// It leads a process group of its own, so a Ctrl-C in the terminal does not reach it: it is ended
/// by the reaper. It should also end when its standard input does, which covers the moment before
/// the reaper knows of it.
///
/// Dropping it kills it, also when it is stopped.
#[derive(Debug)]
#[must_use = "a child that is dropped ends"]
pub struct Child {
    process: Process,
}

/// The pipes to and from a [`Child`].
#[derive(Debug)]
pub struct Pipes {
    /// What it reads; closed when this is dropped.
    pub stdin: ChildStdin,
    /// What it prints.
    pub stdout: ChildStdout,
    /// What it complains about.
    pub stderr: ChildStderr,
}

impl Child {
    /// Starts it, with its standard streams piped.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    #[track_caller]
    pub fn spawn(command: &mut Command) -> (Self, Pipes) {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.process_group(0).spawn().expect("cannot start a process");
        let pipes = Pipes {
            stdin: child.stdin.take().expect("stdin is piped"),
            stdout: child.stdout.take().expect("stdout is piped"),
            stderr: child.stderr.take().expect("stderr is piped"),
        };
        (Self { process: Process::watch(child) }, pipes)
    }

    /// The number of the process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Stops it (SIGSTOP) and returns when none of its threads runs any more, or it has ended.
    #[track_caller]
    pub fn stop(&self) {
        self.process.stop();
    }

    /// Lets it continue (SIGCONT).
    #[track_caller]
    pub fn cont(&self) {
        self.process.cont();
    }

    /// How it ended: its exit code, or the number of the signal that ended it, negated. `None` while
    /// it runs or is stopped.
    #[must_use]
    pub fn exit_code(&self) -> Option<i32> {
        self.process.exit_code()
    }

    /// Waits until it has ended, for at most `limit`; then as [`exit_code`](Self::exit_code).
    #[must_use]
    pub fn wait(&self, limit: Duration) -> Option<i32> {
        let start = Instant::now();
        loop {
            let code = self.exit_code();
            if code.is_some() || start.elapsed() >= limit {
                return code;
            }
            thread::sleep(PAUSE);
        }
    }
}
