//! The reaper: a child process that cleans up if the test process ends without doing so.
//!
//! The reaper is a shell that reads the processes and directories from a pipe. When a process ends
//! for any reason, the kernel closes its write end of the pipe. After the last write end is closed,
//! the shell kills the listed processes and removes the listed directories. Each test process has
//! one reaper, started with the first server.
//!
//! - The write end is close-on-exec (like all pipes of `std`), so servers do not keep it open.
//! - The reaper leads its own process group and ignores the signals of a terminal. A Ctrl-C, or a
//!   test runner that kills the group of a hung test, ends the test process but not the reaper.
//! - A process is removed from the list before it is reaped, while its ID cannot be reused. When
//!   the test process ends, the kernel closes the pipe before other processes can reap its
//!   children.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};

/// The reaper's program. Its input lines are `+ pid N`, `- pid N`, `+ dir PATH` and `- dir PATH`.
/// The shell's positional parameters hold the list of processes and directories. Each listed
/// process leads a group, so `kill -9 -N` also ends its children. The reaper removes only
/// directories whose names have the form that [`crate::scratch`] creates.
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

/// Adds the leader of a process group to the reaper's list.
///
/// # Panics
///
/// Panics if the reaper does not run, because no process may be started without cleanup.
pub(crate) fn watch_process(pid: u32) {
    send("+ pid", pid.to_string().as_ref()).expect("the reaper has been killed");
}

/// Removes a process from the reaper's list. Must be called before the process is reaped.
pub(crate) fn forget_process(pid: u32) {
    // Called in destructors, so errors are ignored. Without a reaper, no list exists.
    let _ = send("- pid", pid.to_string().as_ref());
}

/// Adds a directory to the reaper's list.
///
/// # Panics
///
/// Panics if the reaper does not run.
pub(crate) fn watch_dir(dir: &Path) {
    send("+ dir", dir.as_os_str()).expect("the reaper has been killed");
}

/// Removes a directory from the reaper's list. Must be called after the directory was deleted.
pub(crate) fn forget_dir(dir: &Path) {
    let _ = send("- dir", dir.as_os_str());
}

fn send(entry: &str, name: &OsStr) -> std::io::Result<()> {
    let line = [entry.as_bytes(), b" ", name.as_bytes(), b"\n"].concat();
    // The line is one write under the mutex, shorter than PIPE_BUF, so it is written completely or
    // not at all.
    REAPER.lock().unwrap_or_else(PoisonError::into_inner).write_all(&line)
}

#[expect(clippy::zombie_processes, reason = "the reaper outlives this process")]
fn start() -> ChildStdin {
    let mut reaper = Command::new("sh")
        .args(["-c", SCRIPT])
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::piped())
        // The outputs are not inherited, because a reader of the test's output must not wait for
        // the reaper.
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("cannot start the reaper: is there an `sh` on the PATH?");
    reaper.stdin.take().expect("stdin is piped")
}
