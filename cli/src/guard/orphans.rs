//! Reaps orphans if quorlock is process 1, for example in a container. The kernel makes process 1 the parent of all
//! orphans.

use crate::exit::{Code, Failure};
use rustix::process::{Pid, WaitOptions, getpid, waitpid};
use std::fs;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

/// The process ID of the guarded command, which must be left to tokio to reap. The mutex stays locked while the command
/// is started, so that `reap_ended` never reaps the command.
static COMMAND: Mutex<Option<Pid>> = Mutex::new(None);

fn command() -> MutexGuard<'static, Option<Pid>> {
    COMMAND.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn spawn(command_line: &mut Command) -> io::Result<Child> {
    let mut known = command();
    let child = command_line.spawn()?;
    *known = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    Ok(child)
}

/// Must be called after the guarded command was reaped, because the kernel may reuse the command's process ID for an
/// orphan.
pub(super) fn forget_command() {
    *command() = None;
}

/// If quorlock is process 1, spawns a task that reaps orphans.
pub(crate) fn reap() -> Result<(), Failure> {
    if !getpid().is_init() {
        return Ok(());
    }
    let mut ended = signal(SignalKind::child()).map_err(|error| {
        Failure::new(Code::FAILED, format!("cannot install a handler for SIGCHLD: {error}"))
    })?;
    tokio::spawn(async move {
        // Children may have ended before the signal handler was installed.
        reap_ended();
        while ended.recv().await.is_some() {
            reap_ended();
        }
    });
    Ok(())
}

fn reap_ended() {
    let command = command();
    for pid in zombies().filter(|pid| Some(*pid) != *command) {
        // `waitpid` cannot reap a process whose threads are still running. The next SIGCHLD triggers another attempt.
        let _ = waitpid(Some(pid), WaitOptions::NOHANG);
    }
}

/// Returns the ended children of process 1. A `waitpid` for any child would also reap the guarded command.
fn zombies() -> impl Iterator<Item = Pid> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter_map(Pid::from_raw).filter(|pid| {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
        stat.is_ok_and(|stat| is_zombie_of_init(&stat))
    })
}

/// Parses `stat`, the content of `/proc/ID/stat`. The process name, in parentheses, can contain spaces and parentheses.
fn is_zombie_of_init(stat: &str) -> bool {
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with("Z 1 "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zombie_of_process_1_is_recognised_by_state_and_parent() {
        for (stat, is_one) in [
            ("7 (sh) Z 1 7 7 0", true),
            ("7 (a) Z 1 b) Z 1 7 7 0", true),
            ("7 (a) Z 1 b) S 1 7 7 0", false),
            ("7 (sh) Z 12 7 7 0", false),
            ("7 (sh) S 1 7 7 0", false),
            ("", false),
        ] {
            assert_eq!(is_zombie_of_init(stat), is_one, "{stat}");
        }
    }
}
