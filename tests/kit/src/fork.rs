//! Work in a forked process.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use fork::{Fork, fork, waitpid, waitpid_nohang};
use rustix::process::{Pid, Signal, kill_process};

const PAUSE: Duration = Duration::from_millis(2);

/// Forks this process, runs `work` in the child, and waits until the child ends. Returns true if
/// `work` did not panic.
///
/// The child has a copy of this process's memory, but only the calling thread. Mutexes that other
/// threads had locked stay locked. Call this function in a process with few threads, such as a
/// [`Rerun`](crate::Rerun), whose end also ends the child. The child does not run destructors after
/// `work`.
///
/// # Panics
///
/// Kills the child and panics if the child has not ended within `limit`.
#[track_caller]
pub fn forked(limit: Duration, work: impl FnOnce()) -> bool {
    let pid = match fork().expect("the system forks") {
        Fork::Child => {
            let done = catch_unwind(AssertUnwindSafe(work));
            process::exit(i32::from(done.is_err()));
        }
        Fork::Parent(pid) => pid,
    };
    let begun = Instant::now();
    loop {
        if let Some(status) = waitpid_nohang(pid).expect("the child is not reaped") {
            return status == 0;
        }
        if begun.elapsed() > limit {
            let known = Pid::from_raw(pid).expect("a process id is positive");
            // An error means that the process has just ended.
            let _ = kill_process(known, Signal::KILL);
            let _ = waitpid(pid);
            panic!("the forked process has not ended in {limit:?}");
        }
        thread::sleep(PAUSE);
    }
}
