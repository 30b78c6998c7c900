//! The one clock that validity is measured with.
//!
//! On Linux and Android this is `CLOCK_BOOTTIME`: it counts while the machine sleeps, as the
//! nodes' expiry does; `std::time::Instant` (`CLOCK_MONOTONIC`) does not. macOS' and the BSDs'
//! `Instant` is used elsewhere. The wall clock is never read.

use crate::protocol::Time;

/// Reads the clock. Never goes back.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn now() -> Time {
    use rustix::time::{ClockId, clock_gettime};

    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).expect("time since boot is not negative");
    let nanos = u64::try_from(time.tv_nsec).expect("nanoseconds are not negative");
    Time::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// Reads the clock. Never goes back.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn now() -> Time {
    use std::sync::LazyLock;
    use std::time::Instant;

    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    Time::default().after(ORIGIN.elapsed())
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
