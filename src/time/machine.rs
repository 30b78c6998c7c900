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
use driven::Driven;
#[cfg(feature = "test-util")]
pub(crate) use driven::{advance, shift_wall_clock};

/// A source of time.
trait Source {
    /// Time since some origin. Never goes back.
    fn now(&self) -> Time;

    /// Microseconds since 1970 by the wall clock; 0 before.
    fn wall_us(&self) -> u64;

    /// What the system's clock reads when this one reads `at`.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn on_system(&self, at: Time) -> Time;
}

#[cfg(not(feature = "test-util"))]
static CLOCK: System = System;
#[cfg(feature = "test-util")]
static CLOCK: Driven = Driven::new();

/// Reads the clock. Never goes back.
pub(crate) fn now() -> Time {
    CLOCK.now()
}

/// The wall clock in microseconds since 1970; 0 before.
pub(crate) fn wall_us() -> u64 {
    CLOCK.wall_us()
}

/// What the system's clock reads when ours reads `at`.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn on_system(at: Time) -> Time {
    CLOCK.on_system(at)
}

/// The clocks of the operating system.
struct System;

impl Source for System {
    #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
    fn now(&self) -> Time {
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
    fn now(&self) -> Time {
        use std::sync::LazyLock;
        use std::time::Instant;

        static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
        Time::default().after(ORIGIN.elapsed())
    }

    fn wall_us(&self) -> u64 {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        u64::try_from(since_1970.unwrap_or_default().as_micros()).unwrap_or(u64::MAX)
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn on_system(&self, at: Time) -> Time {
        at
    }
}

/// Time that tests drive.
#[cfg(feature = "test-util")]
mod driven {
    use super::{CLOCK, Source, System};
    use crate::protocol::Time;
    use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
    use std::time::Duration;

    /// So far from the end of time that no sum of a time and a timing comes near it: 292 years.
    const FARTHEST: u64 = u64::MAX / 2;

    /// The system's clocks, moved. No other memory hangs on it: who learns of a move from its caller
    /// reads it, too.
    pub(crate) struct Driven {
        ahead_ns: AtomicU64,
        wall_shift_us: AtomicI64,
    }

    impl Driven {
        pub(super) const fn new() -> Self {
            Self { ahead_ns: AtomicU64::new(0), wall_shift_us: AtomicI64::new(0) }
        }
    }

    impl Source for Driven {
        fn now(&self) -> Time {
            let ahead = self.ahead_ns.load(Ordering::Relaxed);
            Time::from_nanos(System.now().as_nanos().saturating_add(ahead))
        }

        fn wall_us(&self) -> u64 {
            System.wall_us().saturating_add_signed(self.wall_shift_us.load(Ordering::Relaxed))
        }

        #[cfg(any(target_os = "linux", target_os = "android"))]
        fn on_system(&self, at: Time) -> Time {
            let ahead = self.ahead_ns.load(Ordering::Relaxed);
            System.on_system(Time::from_nanos(at.as_nanos().saturating_sub(ahead)))
        }
    }

    /// Moves the clock forward for the whole process, up to [`FARTHEST`] in all.
    pub(crate) fn advance(by: Duration) {
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        let add = |ahead: u64| Some(ahead.saturating_add(by).min(FARTHEST));
        let _ = CLOCK.ahead_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Lets the wall clock differ from the system's by so much.
    pub(crate) fn shift_wall_clock(seconds: i64) {
        CLOCK.wall_shift_us.store(seconds.saturating_mul(1_000_000), Ordering::Relaxed);
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
