//! Instructions of this process, where the system lets it count them (`perf_event_open`).

use std::sync::{Mutex, OnceLock, PoisonError};

/// The counter, if there can be one.
static COUNTER: OnceLock<Option<Mutex<imp::Counter>>> = OnceLock::new();

/// Counts from now on, for this thread and all that it starts: call it before there are others.
pub(crate) fn begin() {
    COUNTER.get_or_init(|| imp::open().map(Mutex::new));
}

/// How many there were so far, outside of the kernel; `None` where nobody counts.
pub(crate) fn count() -> Option<u64> {
    let counter = COUNTER.get()?.as_ref()?;
    imp::read(&mut counter.lock().unwrap_or_else(PoisonError::into_inner))
}

#[cfg(target_os = "linux")]
mod imp {
    use std::io;

    pub(super) use perf_event::Counter;
    use perf_event::events::{Event, Hardware};

    /// `None` without a counter in the processor, as on most virtual machines, and without permission.
    pub(super) fn open() -> Option<Counter> {
        count(Hardware::INSTRUCTIONS).ok()
    }

    /// Threads are followed, processes that are started are not: the nodes are no part of this one.
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
    /// There is none.
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

    /// Works also where the processor counts nothing: the kernel's own clock of a task is such a counter.
    #[test]
    fn threads_are_counted_and_other_processes_are_not() {
        let mut counter = match imp::count(Software::TASK_CLOCK) {
            Ok(counter) => counter,
            Err(error) => {
                // Nobody may count here, or the kernel is too old for it.
                let kinds = [ErrorKind::PermissionDenied, ErrorKind::Unsupported];
                return assert!(kinds.contains(&error.kind()), "{error}");
            }
        };
        let mut nanos = || imp::read(&mut counter).expect("it was opened");
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
