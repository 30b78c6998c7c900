//! The clock that all processes of a run share.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// `CLOCK_BOOTTIME` includes the time during which the machine sleeps. Other systems use the
/// monotonic clock.
#[cfg(any(target_os = "linux", target_os = "android"))]
const BOOT: ClockId = ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const BOOT: ClockId = ClockId::Monotonic;

/// Time since the start of the machine in nanoseconds, including sleep.
pub fn now() -> u64 {
    let time = clock_gettime(BOOT);
    // The clock is never negative.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

/// A duration in nanoseconds, at most 584 years.
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Sleeps until the boot clock reads `at`.
pub fn sleep_until(at: u64) {
    std::thread::sleep(Duration::from_nanos(at.saturating_sub(now())));
}
