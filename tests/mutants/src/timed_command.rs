//! Commands with a time limit.

use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The result of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandResult {
    /// The exit code, or the timeout.
    pub ended: End,
    /// The standard output and standard error of the command.
    pub output: String,
}

/// The outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// An exit with this code, or termination by a signal if `None`.
    With(Option<i32>),
    /// The expiry of the time limit, after which the command was killed.
    TimedOut,
}

/// Runs `command` and writes its output to the file at `output`. After `timeout`, kills the command and its child
/// processes.
///
/// # Errors
/// Returns an error if the command cannot be started or killed, or if the file cannot be written or read.
pub fn run_with_timeout(
    command: &mut Command,
    timeout: Duration,
    output: &Path,
) -> io::Result<CommandResult> {
    let started = Instant::now();
    let file = File::create(output)?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).process_group(0);
    let mut child = command.spawn()?;
    let ended = loop {
        if let Some(status) = child.try_wait()? {
            break End::With(status.code());
        }
        if started.elapsed() >= timeout {
            if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                kill_process_group(group, Signal::KILL)?;
            }
            child.wait()?;
            break End::TimedOut;
        }
        thread::sleep(POLL_INTERVAL);
    };
    let output = String::from_utf8_lossy(&fs::read(output)?).into_owned();
    Ok(CommandResult { ended, output })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, timeout: Duration) -> CommandResult {
        let (process, thread) = (std::process::id(), thread::current().id());
        let output = std::env::temp_dir().join(format!("quorlock-timeout-{process}-{thread:?}"));
        let result = run_with_timeout(Command::new("sh").args(["-c", script]), timeout, &output);
        fs::remove_file(output).expect("the output file exists");
        result.expect("sh starts")
    }

    #[test]
    fn command_within_its_bound_returns_code_and_output() {
        let result = shell("echo out; echo err >&2; exit 3", Duration::from_mins(1));
        assert_eq!((result.ended, result.output.as_str()), (End::With(Some(3)), "out\nerr\n"));
    }

    #[test]
    fn command_is_killed_after_its_bound() {
        let result = shell("sleep 600 & wait", Duration::from_millis(100));
        assert_eq!(result.ended, End::TimedOut);
    }
}
