//! The boot clock, which all processes of a run share.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Unlike `CLOCK_MONOTONIC`, `CLOCK_BOOTTIME` includes the time during which the machine sleeps.
/// Systems without it use the monotonic clock.
#[cfg(any(target_os = "linux", target_os = "android"))]
const BOOT: ClockId = ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const BOOT: ClockId = ClockId::Monotonic;

/// Returns the time since the machine was booted, in nanoseconds. On Linux and Android, this
/// includes the time during which the machine slept.
pub fn now() -> u64 {
    let time = clock_gettime(BOOT);
    // The clock is never negative.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

/// Converts a duration to nanoseconds. Durations above 584 years become `u64::MAX`.
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Blocks the thread until the boot clock reads `at` nanoseconds.
pub fn sleep_until(at: u64) {
    std::thread::sleep(Duration::from_nanos(at.saturating_sub(now())));
}
