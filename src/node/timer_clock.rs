//! What paces connections: tokio's clock and timers, as the rules of [`protocol`](crate::protocol) are told
//! them.

use crate::protocol::Time;
#[cfg(feature = "test-util")]
use crate::time::{Clock, Wakeup};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// What the clock reads at its origin: a runtime whose time stands still may be further back.
const ORIGIN: Time = Time::from_nanos(1 << 60);

/// Thirty years: the same as never.
const AGE: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

/// The clock of timers, and of what only paces connections. A test can let it stand still, and no safety
/// hangs on it. Cheap to clone.
#[derive(Clone)]
pub(super) enum TimerClock {
    Tokio {
        origin: Instant,
    },
    /// The client's own, where that is none of the machine's.
    #[cfg(feature = "test-util")]
    Client(Clock),
}

/// What time it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// By the client's clock, which leases are measured with.
    pub(super) ours: Time,
    /// By the timers.
    pub(super) timer: Time,
}

/// Waits until a time on a [`TimerClock`].
pub(super) enum Timer {
    Tokio(Pin<Box<Sleep>>),
    #[cfg(feature = "test-util")]
    Client {
        at: Time,
        wakeup: Wakeup,
    },
}

impl TimerClock {
    pub(super) fn new() -> Self {
        Self::Tokio { origin: Instant::now() }
    }

    /// Reads the clock.
    pub(super) fn now(&self) -> Time {
        match self {
            Self::Tokio { origin } => time(*origin, Instant::now()),
            #[cfg(feature = "test-util")]
            Self::Client(clock) => clock.now(),
        }
    }

    /// Waits until it reads `at`.
    pub(super) fn sleep_until(&self, at: Time) -> Timer {
        match self {
            Self::Tokio { origin } => {
                Timer::Tokio(Box::pin(tokio::time::sleep_until(instant(*origin, at))))
            }
            #[cfg(feature = "test-util")]
            Self::Client(clock) => Timer::Client { at, wakeup: Wakeup::at(clock, at) },
        }
    }

    /// What comes of `task`; `None` if it takes longer than `limit`.
    pub(super) async fn timeout<T>(
        &self,
        limit: Duration,
        task: impl Future<Output = T>,
    ) -> Option<T> {
        match self {
            Self::Tokio { .. } => tokio::time::timeout(limit, task).await.ok(),
            #[cfg(feature = "test-util")]
            Self::Client(_) => tokio::select! {
                biased;
                done = task => Some(done),
                () = self.sleep_until(self.now().after(limit)) => None,
            },
        }
    }

    /// Lets `timer` end at `at`.
    pub(super) fn reset(&self, timer: &mut Timer, at: Time) {
        match (self, &mut *timer) {
            (Self::Tokio { origin }, Timer::Tokio(sleep)) => {
                sleep.as_mut().reset(instant(*origin, at));
            }
            #[cfg(feature = "test-util")]
            _ => *timer = self.sleep_until(at),
        }
    }

    /// True if the time of `timer` has come.
    #[cfg_attr(not(feature = "test-util"), allow(clippy::unused_self))] // The machine needs no look.
    pub(super) fn is_over(&self, timer: &Timer) -> bool {
        match timer {
            Timer::Tokio(sleep) => sleep.is_elapsed(),
            #[cfg(feature = "test-util")]
            Timer::Client { at, .. } => *at <= self.now(),
        }
    }
}

/// What the clock reads at `at`.
fn time(origin: Instant, at: Instant) -> Time {
    match at.checked_duration_since(origin) {
        Some(after) => ORIGIN.after(after),
        None => ORIGIN.before(origin.saturating_duration_since(at)),
    }
}

/// When the clock reads `time`.
fn instant(origin: Instant, time: Time) -> Instant {
    let instant = if time >= ORIGIN {
        origin.checked_add(time.since(ORIGIN))
    } else {
        origin.checked_sub(ORIGIN.since(time))
    };
    instant.unwrap_or_else(|| origin + AGE)
}

impl Future for Timer {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match self.get_mut() {
            Self::Tokio(sleep) => sleep.as_mut().poll(cx),
            #[cfg(feature = "test-util")]
            Self::Client { wakeup, .. } => Pin::new(wakeup).poll(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back_also_before_the_origin() {
        let origin = Instant::now();
        for nanos in [0, 1, 999_999_999, 5_000_000_001] {
            let span = Duration::from_nanos(nanos);
            let later = origin + span;
            assert_eq!(time(origin, later), ORIGIN.after(span));
            assert_eq!(instant(origin, time(origin, later)), later);
            let earlier = origin.checked_sub(span).unwrap_or(origin);
            let before = origin - earlier;
            assert_eq!(time(origin, earlier).after(before), ORIGIN);
            assert_eq!(instant(origin, time(origin, earlier)), earlier);
        }
        let never = instant(origin, Time::END);
        assert!(never > origin + AGE / 2);
    }
}
