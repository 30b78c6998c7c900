//! A process that is forked from this one, and goes on in the middle of it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use fork::{Fork, fork, waitpid, waitpid_nohang};
use rustix::process::{Pid, Signal, kill_process};

/// The pause between two looks at a process that is to end.
const PAUSE: Duration = Duration::from_millis(2);

/// Forks, does `work` in the child, and waits for it to end. True if it did not panic.
///
/// The child has the memory of this process, and of its threads only the one that called this: what
/// others had locked stays locked there. Call it in a process that has few of them, such as a
/// [`Rerun`](crate::Rerun), whose end is the child's as well. Nothing is dropped in the child when
/// `work` is done.
///
/// # Panics
///
/// When the child has not ended within `limit`: it hangs, and is killed.
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
        if let Some(status) = waitpid_nohang(pid).expect("it is a child, and not reaped") {
            return status == 0;
        }
        if begun.elapsed() > limit {
            let known = Pid::from_raw(pid).expect("a process id is positive");
            // It fails only if it has just ended.
            let _ = kill_process(known, Signal::KILL);
            let _ = waitpid(pid);
            panic!("the forked process has not ended in {limit:?}");
        }
        thread::sleep(PAUSE);
    }
}
