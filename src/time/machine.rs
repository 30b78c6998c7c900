//! The machine's clock: the one that validity is measured with, unless a client is given another.
//!
//! It counts while the machine sleeps, as the nodes' expiry does: `CLOCK_BOOTTIME` on Linux and
//! Android, where `std::time::Instant` does not; `CLOCK_MONOTONIC` on macOS and iOS, where it is
//! another clock than `Instant` reads; elsewhere `Instant`, the best that there is. The wall clock is
//! read for one thing only, a hint at which number fencing counters may go on, and no safety hangs on
//! that.

use crate::protocol::Time;
use std::time::SystemTime;

#[cfg(feature = "test-util")]
pub(crate) use driven::{advance, shift_wall_clock};

/// Reads the clock. Never goes back.
pub(crate) fn now() -> Time {
    let now = system_now();
    #[cfg(feature = "test-util")]
    let now = now.after(driven::ahead());
    now
}

/// The wall clock in microseconds since 1970; 0 before.
pub(crate) fn wall_us() -> u64 {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let wall_us = u64::try_from(since_1970.unwrap_or_default().as_micros()).unwrap_or(u64::MAX);
    #[cfg(feature = "test-util")]
    let wall_us = driven::shifted(wall_us);
    wall_us
}

/// The time of the system's clock when this clock reads `at`.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn on_system(at: Time) -> Time {
    #[cfg(feature = "test-util")]
    let at = at.before(driven::ahead());
    at
}

#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
fn system_now() -> Time {
    use rustix::time::{ClockId, clock_gettime};

    #[cfg(not(target_vendor = "apple"))]
    const COUNTS_SLEEP: ClockId = ClockId::Boottime;
    #[cfg(target_vendor = "apple")]
    const COUNTS_SLEEP: ClockId = ClockId::Monotonic;

    let time = clock_gettime(COUNTS_SLEEP);
    let seconds = u64::try_from(time.tv_sec).expect("time since boot is not negative");
    let nanos = u64::try_from(time.tv_nsec).expect("nanoseconds are not negative");
    Time::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
fn system_now() -> Time {
    use std::sync::LazyLock;
    use std::time::Instant;

    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    Time::default().after(ORIGIN.elapsed())
}

/// Offsets of the clocks, which tests set. No other memory depends on them.
#[cfg(feature = "test-util")]
mod driven {
    use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
    use std::time::Duration;

    /// Maximum of [`AHEAD_NS`], 292 years: no sum of a time and a timeout reaches the end of time.
    const FARTHEST: u64 = u64::MAX / 2;

    static AHEAD_NS: AtomicU64 = AtomicU64::new(0);
    static WALL_SHIFT_US: AtomicI64 = AtomicI64::new(0);

    pub(super) fn ahead() -> Duration {
        Duration::from_nanos(AHEAD_NS.load(Relaxed))
    }

    pub(super) fn shifted(wall_us: u64) -> u64 {
        wall_us.saturating_add_signed(WALL_SHIFT_US.load(Relaxed))
    }

    /// Moves the clock forward for the whole process, up to [`FARTHEST`] in total.
    pub(crate) fn advance(by: Duration) {
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        let add = |ahead: u64| Some(ahead.saturating_add(by).min(FARTHEST));
        let _ = AHEAD_NS.fetch_update(Relaxed, Relaxed, add);
    }

    /// Sets the difference between the wall clock and the system's.
    pub(crate) fn shift_wall_clock(seconds: i64) {
        WALL_SHIFT_US.store(seconds.saturating_mul(1_000_000), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn time_goes_on_and_never_back() {
        let start = now();
        std::thread::sleep(Duration::from_millis(5));
        assert!(now().since(start) >= Duration::from_millis(5));
        assert_eq!(start.since(now()), Duration::ZERO);
    }
}
