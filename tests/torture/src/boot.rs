//! The one clock of all processes of a run.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Nanoseconds since the machine's start, counting sleep.
pub(crate) fn now() -> u64 {
    read(ClockId::Boottime)
}

/// Microseconds of the wall clock: what a server without faults says too.
pub(crate) fn wall_micros() -> u64 {
    read(ClockId::Realtime) / 1_000
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).expect("these clocks begin at zero");
    let nanos = u64::try_from(time.tv_nsec).expect("nanoseconds are not negative");
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

/// A duration in nanoseconds; 584 years at the most.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Sleeps until `at` by [`now`].
pub(crate) fn sleep_until(at: u64) {
    std::thread::sleep(Duration::from_nanos(at.saturating_sub(now())));
}
