//! The one clock that validity is measured with.
//!
//! On Linux and Android this is `CLOCK_BOOTTIME`: it counts while the machine sleeps, as the
//! nodes' expiry does; `std::time::Instant` (`CLOCK_MONOTONIC`) does not. macOS' and the BSDs'
//! `Instant` is used elsewhere. The wall clock is read for one thing only, a hint at which number
//! fencing counters may go on, and no safety hangs on that.

use crate::protocol::Time;
use std::time::SystemTime;

/// Reads the clock. Never goes back.
pub(crate) fn now() -> Time {
    Time::from_nanos(system().as_nanos().saturating_add(ahead()))
}

/// The wall clock in microseconds since 1970; 0 before.
pub(crate) fn wall_us() -> u64 {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX)
}

/// What the system's clock reads when ours reads `at`.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn on_system(at: Time) -> Time {
    Time::from_nanos(at.as_nanos().saturating_sub(ahead()))
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn system() -> Time {
    use rustix::time::{ClockId, clock_gettime};

    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).expect("time since boot is not negative");
    let nanos = u64::try_from(time.tv_nsec).expect("nanoseconds are not negative");
    Time::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn system() -> Time {
    use std::sync::LazyLock;
    use std::time::Instant;

    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    Time::default().after(ORIGIN.elapsed())
}

/// How far ahead of the system's our clock is, in nanoseconds: only tests move it.
#[cfg(not(feature = "test-util"))]
const fn ahead() -> u64 {
    0
}

#[cfg(feature = "test-util")]
pub(crate) use ahead::advance;
#[cfg(feature = "test-util")]
use ahead::ahead;

#[cfg(feature = "test-util")]
mod ahead {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    /// So far from the end of time that no sum of a time and a timing comes near it: 292 years.
    const FARTHEST: u64 = u64::MAX / 2;

    static AHEAD: AtomicU64 = AtomicU64::new(0);

    // No other memory hangs on it: who learns of an advance from its caller reads it, too.
    pub(super) fn ahead() -> u64 {
        AHEAD.load(Ordering::Relaxed)
    }

    /// Moves the clock forward for the whole process, up to [`FARTHEST`] in all.
    pub(crate) fn advance(by: Duration) {
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        let add = |ahead: u64| Some(ahead.saturating_add(by).min(FARTHEST));
        let _ = AHEAD.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
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
