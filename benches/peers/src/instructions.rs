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
    pub(super) use perf_event::Counter;
    use perf_event::events::{Event, Hardware};

    /// `None` without a counter in the processor, as on most virtual machines, and without permission.
    pub(super) fn open() -> Option<Counter> {
        count(Hardware::INSTRUCTIONS)
    }

    /// Threads are followed, processes that are started are not: the nodes are no part of this one.
    pub(super) fn count(event: impl Event) -> Option<Counter> {
        let mut builder = perf_event::Builder::new(event);
        let mut counter = builder.inherit(true).inherit_thread(true).build().ok()?;
        counter.enable().ok()?;
        Some(counter)
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
    use perf_event::events::Software;

    use super::imp;

    /// Works also where the processor counts nothing: the kernel's own clock of a task is such a counter.
    #[test]
    fn other_threads_are_counted_once_they_are_started() {
        let Some(mut counter) = imp::count(Software::TASK_CLOCK) else {
            return; // Not permitted here.
        };
        let before = imp::read(&mut counter).expect("it was opened");
        let busy = || {
            let begun = std::time::Instant::now();
            while begun.elapsed() < std::time::Duration::from_millis(20) {
                std::hint::spin_loop();
            }
        };
        std::thread::spawn(busy).join().expect("no panic");
        let after = imp::read(&mut counter).expect("it was opened");
        assert!(after - before > 1_000_000, "{before} to {after} ns");
    }
}
