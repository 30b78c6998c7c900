//! Counts the instructions of this process, if the system permits it (`perf_event_open`).

use std::sync::{Mutex, OnceLock, PoisonError};

static COUNTER: OnceLock<Option<Mutex<imp::Counter>>> = OnceLock::new();

/// Starts to count the instructions of this thread and of threads that it starts later. Threads that are already
/// running are not counted.
pub(crate) fn begin() {
    COUNTER.get_or_init(|| imp::open().map(Mutex::new));
}

/// Returns the number of instructions outside the kernel since [`begin`]. Returns `None` if the system does not count
/// them.
pub(crate) fn count() -> Option<u64> {
    let counter = COUNTER.get()?.as_ref()?;
    imp::read(&mut counter.lock().unwrap_or_else(PoisonError::into_inner))
}

#[cfg(target_os = "linux")]
mod imp {
    use std::io;

    pub(super) use perf_event::Counter;
    use perf_event::events::{Event, Hardware};

    /// Starts a counter of instructions. Returns `None` if counting is not permitted, or if the processor has no
    /// counter, as on most virtual machines.
    pub(super) fn open() -> Option<Counter> {
        count(Hardware::INSTRUCTIONS).ok()
    }

    /// Counts an event in all threads of this process. Child processes are excluded, because the nodes are child
    /// processes.
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
    /// Never exists, because other systems do not support counting.
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

    /// Checks that the counter includes all threads but no other process. The test counts the kernel's task clock,
    /// which works without a hardware counter.
    #[test]
    fn threads_are_counted_but_not_other_processes() {
        let mut counter = match imp::count(Software::TASK_CLOCK) {
            Ok(counter) => counter,
            Err(error) => {
                // The system does not permit counting, or the kernel does not support it.
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
