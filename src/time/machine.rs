//! The machine's clock. The validity of leases is measured with this clock, unless a client was given another clock.
//!
//! The clock counts the time during which the machine is suspended, as the nodes' key expiry does:
//!
//! - Linux and Android: `CLOCK_BOOTTIME`. `std::time::Instant` does not count suspended time there.
//! - macOS and iOS: `CLOCK_MONOTONIC`, which is not the clock that `Instant` reads there.
//! - Other systems: `Instant`, the best clock available.
//!
//! The wall clock suggests a number from which fencing counters can continue, and determines the periods of scheduled
//! jobs. The safety of locks does not depend on the wall clock.

use crate::protocol::Time;
use std::time::SystemTime;

#[cfg(feature = "test-util")]
pub(crate) use driven::{advance, shift_wall_clock};

/// Returns the current time. The clock never goes backwards.
pub(crate) fn now() -> Time {
    let now = system_now();
    #[cfg(feature = "test-util")]
    let now = now.after(driven::ahead());
    now
}

/// Returns the wall-clock time in microseconds since 1970, or 0 before 1970.
pub(crate) fn wall_us() -> u64 {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let wall_us = u64::try_from(since_1970.unwrap_or_default().as_micros()).unwrap_or(u64::MAX);
    #[cfg(feature = "test-util")]
    let wall_us = driven::shifted(wall_us);
    wall_us
}

/// Converts the time `at` on this clock to the time on the system's clock. The clocks differ only if a test has
/// advanced this clock.
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

/// Clock offsets set by tests. `Relaxed` suffices, because no other memory depends on them.
#[cfg(feature = "test-util")]
mod driven {
    use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
    use std::time::Duration;

    /// The maximum of [`AHEAD_NS`], 292 years, so that the sum of a time and a timeout never reaches `Time::END`.
    const FARTHEST: u64 = u64::MAX / 2;

    static AHEAD_NS: AtomicU64 = AtomicU64::new(0);
    static WALL_SHIFT_US: AtomicI64 = AtomicI64::new(0);

    pub(super) fn ahead() -> Duration {
        Duration::from_nanos(AHEAD_NS.load(Relaxed))
    }

    pub(super) fn shifted(wall_us: u64) -> u64 {
        wall_us.saturating_add_signed(WALL_SHIFT_US.load(Relaxed))
    }

    /// Advances the clock of the whole process, up to [`FARTHEST`] in total.
    pub(crate) fn advance(by: Duration) {
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        let add = |ahead: u64| Some(ahead.saturating_add(by).min(FARTHEST));
        let _ = AHEAD_NS.fetch_update(Relaxed, Relaxed, add);
    }

    /// Makes this library's wall clock differ from the system's wall clock by `seconds`. Replaces any earlier
    /// difference.
    pub(crate) fn shift_wall_clock(seconds: i64) {
        WALL_SHIFT_US.store(seconds.saturating_mul(1_000_000), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn clock_is_monotonic_and_advances() {
        let start = now();
        std::thread::sleep(Duration::from_millis(5));
        assert!(now().since(start) >= Duration::from_millis(5));
        assert_eq!(start.since(now()), Duration::ZERO);
    }
}
