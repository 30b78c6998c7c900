//! Instructions of this process, if the system permits counting them (`perf_event_open`).

use std::sync::{Mutex, OnceLock, PoisonError};

/// The counter, if the system has one.
static COUNTER: OnceLock<Option<Mutex<imp::Counter>>> = OnceLock::new();

/// Starts counting for this thread and for threads that it starts later. Call this before starting others.
pub(crate) fn begin() {
    COUNTER.get_or_init(|| imp::open().map(Mutex::new));
}

/// Instructions so far, outside of the kernel. `None` if they are not counted.
pub(crate) fn count() -> Option<u64> {
    let counter = COUNTER.get()?.as_ref()?;
    imp::read(&mut counter.lock().unwrap_or_else(PoisonError::into_inner))
}

#[cfg(target_os = "linux")]
mod imp {
    use std::io;

    pub(super) use perf_event::Counter;
    use perf_event::events::{Event, Hardware};

    /// Returns `None` without permission, or if the processor has no counter, as on most virtual machines.
    pub(super) fn open() -> Option<Counter> {
        count(Hardware::INSTRUCTIONS).ok()
    }

    /// Includes threads, but not started processes, because the nodes must not be counted.
    pub(super) fn count(event: impl Event) -> io::Result<Counter> {
        let mut builder = perf_event::Builder::new(event);
        let mut counter = builder.inherit(true).inherit_thread(true).build()?;
        counter.enable()?;
        Ok(counter)
    }

    pub(super) fn read(counter: &mut Counter) -> Option<u64> {
        counter.read().ok()
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    /// Other systems have no counter.
    pub(super) enum Counter {}

    pub(super) fn open() -> Option<Counter> {
        None
    }

    pub(super) fn read(counter: &mut Counter) -> Option<u64> {
        match *counter {}
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::ErrorKind;
    use std::process::Command;
    use std::thread;

    use perf_event::events::Software;

    use super::imp;

    /// Uses the kernel's task clock, which works without a hardware counter.
    #[test]
    fn threads_are_counted_but_not_other_processes() {
        let mut counter = match imp::count(Software::TASK_CLOCK) {
            Ok(counter) => counter,
            Err(error) => {
                // Counting is not permitted here, or not supported by the kernel.
                let kinds = [ErrorKind::PermissionDenied, ErrorKind::Unsupported];
                return assert!(kinds.contains(&error.kind()), "{error}");
            }
        };
        let mut nanos = || imp::read(&mut counter).expect("the counter is open");
        let before = nanos();
        let busy = || (0..20_000_000_u32).map(std::hint::black_box).for_each(|_| ());
        thread::spawn(busy).join().expect("no panic");
        let thread = nanos() - before;
        let script = "i=0; while [ $i -lt 1000000 ]; do i=$((i+1)); done";
        let before = nanos();
        assert!(Command::new("sh").args(["-c", script]).status().is_ok_and(|it| it.success()));
        let process = nanos() - before;
        assert!(thread > 1_000_000 && process < thread, "{thread} and {process} ns");
    }
}
