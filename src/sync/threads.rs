//! The library's own threads.

use std::cell::Cell;
use std::io;
use std::thread;

thread_local! {
    static IS_SHARED: Cell<bool> = const { Cell::new(false) };
}

/// Starts a thread on which all signals are blocked that a process receives from outside. The program's signal handlers
/// then run on the program's own threads.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = thread::Builder::new().name(name.to_owned());
    // A thread inherits the mask of the thread that starts it.
    with_signals_blocked(|| thread.spawn(body).map(drop))
}

/// Starts a thread that serves all clients of the process. User code must not run there, except wakers.
pub(crate) fn spawn_shared(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    spawn(name, || {
        IS_SHARED.set(true);
        body();
    })
}

/// Returns true on a thread that serves all clients of the process.
pub(crate) fn is_shared() -> bool {
    IS_SHARED.get()
}

#[cfg(unix)]
fn with_signals_blocked<T>(work: impl FnOnce() -> T) -> T {
    use nix::sys::signal::{SigSet, SigmaskHow, Signal};

    let mut blocked = SigSet::all();
    // These signals report a defect of the thread itself. If they were blocked, the system would end the process without
    // running the handler that prints the cause.
    for fault in [
        Signal::SIGABRT,
        Signal::SIGBUS,
        Signal::SIGFPE,
        Signal::SIGILL,
        Signal::SIGSEGV,
        Signal::SIGSYS,
        Signal::SIGTRAP,
    ] {
        blocked.remove(fault);
    }
    let before = blocked.thread_swap_mask(SigmaskHow::SIG_SETMASK);
    let done = work();
    if let Ok(before) = before {
        let _ = before.thread_set_mask();
    }
    done
}

#[cfg(not(unix))]
fn with_signals_blocked<T>(work: impl FnOnce() -> T) -> T {
    work()
}
