//! The one clock of all processes of a run.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Counts sleep. Where there is none that counts from the machine's start, the one that does not.
#[cfg(any(target_os = "linux", target_os = "android"))]
const BOOT: ClockId = ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const BOOT: ClockId = ClockId::Monotonic;

/// Nanoseconds since the machine's start, counting sleep.
pub fn now() -> u64 {
    let time = clock_gettime(BOOT);
    // Neither is negative.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

/// A duration in nanoseconds; 584 years at the most.
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Sleeps until `at` by [`now`].
pub fn sleep_until(at: u64) {
    std::thread::sleep(Duration::from_nanos(at.saturating_sub(now())));
}
