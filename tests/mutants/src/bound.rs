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

/// Result of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandResult {
    /// End of the command.
    pub ended: End,
    /// Its standard output and standard error.
    pub output: String,
    /// Time it took.
    pub took: Duration,
}

/// End of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The command exited with this code; `None` if a signal ended it.
    With(Option<i32>),
    /// The time limit passed, and the command was killed.
    TimedOut,
}

/// Runs `command` with its output in the file at `output`. After `bound` it kills the command and
/// its child processes.
///
/// # Errors
/// If the command cannot be started or killed, or the file cannot be written or read.
pub fn run_bounded(
    command: &mut Command,
    bound: Duration,
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
        if started.elapsed() >= bound {
            if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                kill_process_group(group, Signal::KILL)?;
            }
            child.wait()?;
            break End::TimedOut;
        }
        thread::sleep(POLL_INTERVAL);
    };
    let output = String::from_utf8_lossy(&fs::read(output)?).into_owned();
    Ok(CommandResult { ended, output, took: started.elapsed() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, bound: Duration) -> CommandResult {
        let output =
            std::env::temp_dir().join(format!("quorlock-bound-{:?}", thread::current().id()));
        let result = run_bounded(Command::new("sh").args(["-c", script]), bound, &output);
        fs::remove_file(output).expect("the output file exists");
        result.expect("sh starts")
    }

    #[test]
    fn command_within_its_bound_returns_code_and_output() {
        let result = shell("echo out; echo err >&2; exit 3", Duration::from_mins(1));
        assert_eq!((result.ended, result.output.as_str()), (End::With(Some(3)), "out\nerr\n"));
    }

    #[test]
    fn timeout_kills_the_command_and_its_children() {
        let result = shell("sleep 600 & wait", Duration::from_millis(100));
        assert_eq!(result.ended, End::TimedOut);
        assert!(result.took < Duration::from_mins(1));
    }
}
