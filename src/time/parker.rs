//! Puts the timer thread to sleep until a given time on the machine's clock, or until another thread wakes it.

#[cfg(any(target_os = "linux", target_os = "android"))]
use boottime::Fds;

use super::machine;
use crate::protocol::Time;
use crate::sync::{lock, wait};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// The longest sleep on the condition variable before the timer thread reads the clock again.
const MAX_SLEEP: Duration = Duration::from_secs(60);

/// Puts one thread to sleep. Any other thread can wake it.
#[derive(Default)]
pub(crate) struct Parker {
    /// The descriptors to sleep on. `None` if the system provides no descriptors that count suspended time.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fds: Option<Fds>,
    is_woken: Mutex<bool>,
    condition: Condvar,
}

impl Parker {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(crate) fn new() -> Self {
        Self { fds: Fds::open().ok(), ..Self::default() }
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Sleeps until `at`, or until another thread calls [`wake`](Self::wake). Without `at`, only a wake-up ends the
    /// sleep. Returns immediately if `wake` was called before the sleep. May also return early.
    pub(crate) fn sleep_until(&self, at: Option<Time>) {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        if let Some(fds) = &self.fds
            && fds.sleep_until(at).is_ok()
        {
            return;
        }
        let left = at.map_or(MAX_SLEEP, |at| at.since(machine::now()).min(MAX_SLEEP));
        let mut is_woken = lock(&self.is_woken);
        if !*is_woken {
            is_woken = wait(&self.condition, is_woken, Some(left));
        }
        *is_woken = false;
    }

    pub(crate) fn wake(&self) {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        if let Some(fds) = &self.fds {
            fds.wake();
        }
        *lock(&self.is_woken) = true;
        self.condition.notify_one();
    }
}

/// A sleep that uses file descriptors. Its timer runs on `CLOCK_BOOTTIME` and fires as soon as a suspended machine
/// resumes.
#[cfg(any(target_os = "linux", target_os = "android"))]
mod boottime {
    use super::machine;
    use crate::protocol::Time;
    use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
    use rustix::fd::OwnedFd;
    use rustix::io::{Errno, read, write};
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };

    pub(super) struct Fds {
        timer: OwnedFd,
        event_fd: OwnedFd,
    }

    impl Fds {
        pub(super) fn open() -> Result<Self, Errno> {
            let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
            let timer = timerfd_create(TimerfdClockId::Boottime, flags)?;
            let event_fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            Ok(Self { timer, event_fd })
        }

        pub(super) fn sleep_until(&self, at: Option<Time>) -> Result<(), Errno> {
            const SECOND: u64 = 1_000_000_000;
            // Zero disarms the timer. An alarm is never due at boot, so 1 ns can replace a time of zero.
            let nanos = at.map_or(0, |at| machine::on_system(at).as_nanos().max(1));
            let it_value = Timespec {
                tv_sec: i64::try_from(nanos / SECOND).expect("fits: 2^64 / 10^9"),
                tv_nsec: i64::try_from(nanos % SECOND).expect("below 10^9"),
            };
            let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
            let spec = Itimerspec { it_interval, it_value };
            timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &spec)?;
            let mut fds = [
                PollFd::new(&self.timer, PollFlags::IN),
                PollFd::new(&self.event_fd, PollFlags::IN),
            ];
            match poll(&mut fds, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(other) => return Err(other),
            }
            let mut count = [0; 8];
            // The read fails if only the timer fired, because the eventfd then has no count.
            let _ = read(&self.event_fd, &mut count);
            Ok(())
        }

        pub(super) fn wake(&self) {
            // The write fails only if 2^64 wake-ups have not been read.
            let _ = write(&self.event_fd, &1_u64.to_ne_bytes());
        }
    }
}
