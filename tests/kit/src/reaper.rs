//! The reaper: a child process that cleans up after a test process which could not do so itself.
//!
//! It is a shell that reads from a pipe which processes and directories exist. When the last write
//! end of the pipe is closed, which the kernel does for a process however it ends, the shell kills
//! the processes and removes the directories that are still listed. There is one reaper per test
//! process, started with the first server.
//!
//! - The write end is close-on-exec (as all pipes of `std` are), so no server keeps it open after
//!   the test process.
//! - The reaper leads a process group of its own and ignores the signals of a terminal: a Ctrl-C,
//!   or a test runner that kills the group of a test which hangs, ends the test process but not the
//!   reaper.
//! - A process is taken off the list before it is reaped, while its id cannot belong to another
//!   process yet. At the end of the test process the kernel closes the pipe before it hands the
//!   children over to be reaped by others.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};

/// Lines in: `+ pid N`, `- pid N`, `+ dir PATH`, `- dir PATH`. The list is kept in the positional
/// parameters. Each server leads a process group, so `kill -9 -N` also ends what it forked. Only a
/// directory whose last component was made by [`crate::scratch`] is removed.
const SCRIPT: &str = r#"
trap '' HUP INT QUIT TERM
while read -r sign kind name; do
  case $sign in
    +) set -- "$@" "$kind $name" ;;
    -) for entry do shift; [ "$entry" = "$kind $name" ] || set -- "$@" "$entry"; done ;;
  esac
done
for entry do
  case $entry in "pid "[1-9]*) kill -9 "-${entry#pid }" ;; esac
done
c='[A-Za-z0-9]'
for entry do
  case $entry in
    "dir /"*/quorlock-kit-$c$c$c$c$c$c) rm -rf "${entry#dir }" || rm -rf "${entry#dir }" ;;
  esac
done
"#;

static REAPER: LazyLock<Mutex<ChildStdin>> = LazyLock::new(|| Mutex::new(start()));

/// Lists the leader of a process group, to be killed with its group if this process ends first.
///
/// # Panics
///
/// When the reaper does not run: nothing may be started that nobody would clean up.
pub(crate) fn watch_process(pid: u32) {
    tell("+ pid", pid.to_string().as_ref()).expect("the reaper has been killed");
}

/// Takes a process off the list. Must be called before the process is waited for.
pub(crate) fn forget_process(pid: u32) {
    // Called in destructors; without a reaper there is no list.
    let _ = tell("- pid", pid.to_string().as_ref());
}

/// Lists a directory, to be removed if this process ends first.
///
/// # Panics
///
/// When the reaper does not run.
pub(crate) fn watch_dir(dir: &Path) {
    tell("+ dir", dir.as_os_str()).expect("the reaper has been killed");
}

/// Takes a directory off the list, after it has been removed.
pub(crate) fn forget_dir(dir: &Path) {
    let _ = tell("- dir", dir.as_os_str());
}

fn tell(what: &str, name: &OsStr) -> std::io::Result<()> {
    let line = [what.as_bytes(), b" ", name.as_bytes(), b"\n"].concat();
    // One write under the lock, and shorter than PIPE_BUF: a line is in the pipe as a whole or not
    // at all.
    REAPER.lock().unwrap_or_else(PoisonError::into_inner).write_all(&line)
}

#[expect(clippy::zombie_processes, reason = "the reaper outlives this process")]
fn start() -> ChildStdin {
    let mut reaper = Command::new("sh")
        .args(["-c", SCRIPT])
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::piped())
        // Not inherited: whoever reads the output of the tests to its end must not wait for the
        // reaper.
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("cannot start the reaper: is there an `sh` on the PATH?");
    reaper.stdin.take().expect("stdin is piped")
}
