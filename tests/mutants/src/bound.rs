//! Commands that may not take for ever.

use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const LOOK: Duration = Duration::from_millis(20);

/// What became of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Played {
    /// How it ended.
    pub ended: Ended,
    /// All that it printed.
    pub output: String,
    /// How long it took.
    pub took: Duration,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With this code; `None` if a signal ended it.
    With(Option<i32>),
    /// It was ended, as its time was over.
    TimeOver,
}

/// Runs `command`, which may take so long, and whose output goes through the file at `output`. If its time is
/// over, it is ended with all that it has started.
///
/// # Errors
/// If it cannot be started.
pub fn play(command: &mut Command, bound: Duration, output: &Path) -> io::Result<Played> {
    let begun = Instant::now();
    let file = File::create(output)?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).process_group(0);
    let mut child = command.spawn()?;
    let ended = loop {
        if let Some(status) = child.try_wait()? {
            break Ended::With(status.code());
        }
        if begun.elapsed() >= bound {
            if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                kill_process_group(group, Signal::KILL)?;
            }
            child.wait()?;
            break Ended::TimeOver;
        }
        thread::sleep(LOOK);
    };
    let output = String::from_utf8_lossy(&fs::read(output)?).into_owned();
    Ok(Played { ended, output, took: begun.elapsed() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, bound: Duration) -> Played {
        let output =
            std::env::temp_dir().join(format!("quorlock-bound-{:?}", thread::current().id()));
        let played = play(Command::new("sh").args(["-c", script]), bound, &output);
        fs::remove_file(output).expect("it was written");
        played.expect("there is a shell")
    }

    #[test]
    fn what_ends_in_time_tells_how() {
        let played = shell("echo out; echo err >&2; exit 3", Duration::from_mins(1));
        assert_eq!((played.ended, played.output.as_str()), (Ended::With(Some(3)), "out\nerr\n"));
    }

    #[test]
    fn what_takes_too_long_is_ended_with_all_that_it_has_started() {
        let played = shell("sleep 600 & wait", Duration::from_millis(100));
        assert_eq!(played.ended, Ended::TimeOver);
        assert!(played.took < Duration::from_mins(1));
    }
}
