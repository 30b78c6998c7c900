//! Child processes of tests.

use std::os::unix::process::CommandExt;
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::process::Process;

const PAUSE: Duration = Duration::from_millis(2);

/// A process that a test starts, such as a client of the servers. The process does not outlive the
/// test.
///
/// The process leads its own process group, so a Ctrl-C in the terminal does not reach it. The
/// reaper ends the process instead. The program should also exit at the end of its standard input,
/// in case the test ends before the process is reported to the reaper.
///
/// Dropping a `Child` kills the process, even if the process is stopped.
#[derive(Debug)]
#[must_use = "a child that is dropped ends"]
pub struct Child {
    process: Process,
}

/// The pipes of a [`Child`].
#[derive(Debug)]
pub struct Pipes {
    /// The standard input. Dropping it closes the pipe.
    pub stdin: ChildStdin,
    /// The standard output, which the test must read to its end.
    pub stdout: ChildStdout,
    /// The standard error, which the test must read to its end.
    pub stderr: ChildStderr,
}

impl Child {
    /// Starts the command with piped standard streams.
    ///
    /// # Panics
    ///
    /// Panics if the process cannot be started.
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

    /// Returns the process ID.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Stops the process (SIGSTOP). Returns when all threads of the process have stopped or the
    /// process has ended.
    #[track_caller]
    pub fn stop(&self) {
        self.process.stop();
    }

    /// Continues the process (SIGCONT).
    #[track_caller]
    pub fn cont(&self) {
        self.process.cont();
    }

    /// Returns the exit code, or the negated number of the signal that ended the process. Returns
    /// `None` while the process runs or is stopped.
    #[must_use]
    pub fn exit_code(&self) -> Option<i32> {
        self.process.exit_code()
    }

    /// Waits for at most `limit` until the process has ended. Returns the result of
    /// [`exit_code`](Self::exit_code).
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
