//! One thread for the whole process that rings alarms.
//!
//! Leases end by this timer, not by tokio's: a task that blocks can hold up tokio's timers for all
//! workers, and they stand still while the machine sleeps. A wake-up from this thread does not.

use crate::clock;
use crate::protocol::Time;
use crate::sleeper::Sleeper;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

/// What an alarm rings.
pub(crate) trait Ring: Send + Sync {
    /// Called on the timer's thread, soon after the alarm was due; must not block. Returns when to
    /// ring again.
    fn ring(self: Arc<Self>, now: Time) -> Option<Time>;
}

/// An alarm that was set; it is cancelled when this is dropped.
pub(crate) struct Alarm(u64);

impl Alarm {
    /// Rings `bell` at `at`, and then whenever it asks to be rung again.
    pub(crate) fn set(at: Time, bell: Weak<dyn Ring>) -> Self {
        let timer = &*TIMER;
        let id = {
            let mut book = timer.book();
            book.last_id += 1;
            let id = book.last_id;
            book.enter(id, at, bell);
            id
        };
        timer.start();
        timer.sleeper.wake();
        Self(id)
    }

    /// Rings at `at` at the latest.
    pub(crate) fn hasten(&self, at: Time) {
        let mut book = TIMER.book();
        // While it rings it is in nobody's book, and is entered anew with what it answers.
        if let Some(due) = book.due.get(&self.0).copied()
            && at < due
            && let Some(bell) = book.bells.remove(&(due, self.0))
        {
            book.enter(self.0, at, bell);
            drop(book);
            TIMER.sleeper.wake();
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        let mut book = TIMER.book();
        if let Some(due) = book.due.remove(&self.0) {
            book.bells.remove(&(due, self.0));
        }
    }
}

/// Looks at the clock anew: it was moved.
#[cfg(feature = "test-util")]
pub(crate) fn wake() {
    TIMER.sleeper.wake();
}

static TIMER: LazyLock<Timer> = LazyLock::new(|| Timer {
    book: Mutex::default(),
    sleeper: Sleeper::new(),
    is_running: AtomicBool::new(false),
});

struct Timer {
    book: Mutex<Book>,
    sleeper: Sleeper,
    is_running: AtomicBool,
}

/// The alarms, by time and by id.
#[derive(Default)]
struct Book {
    bells: BTreeMap<(Time, u64), Weak<dyn Ring>>,
    due: HashMap<u64, Time>,
    last_id: u64,
}

impl Book {
    fn enter(&mut self, id: u64, at: Time, bell: Weak<dyn Ring>) {
        self.due.insert(id, at);
        self.bells.insert((at, id), bell);
    }

    /// The next alarm that is due at `now`. It stays known by its id, so that it can be cancelled.
    fn take_due(&mut self, now: Time) -> Option<(u64, Weak<dyn Ring>)> {
        let first = self.bells.first_entry().filter(|first| first.key().0 <= now)?;
        let ((_, id), bell) = first.remove_entry();
        Some((id, bell))
    }
}

impl Timer {
    /// Starts the thread, if it does not run. If the system refuses one, the next alarm tries again.
    fn start(&self) {
        if self.is_running.swap(true, Ordering::AcqRel) {
            return;
        }
        let thread = thread::Builder::new().name("quorlock-timer".to_owned());
        let is_running = thread.spawn(|| TIMER.run()).is_ok();
        self.is_running.store(is_running, Ordering::Release);
    }

    fn run(&self) {
        loop {
            loop {
                let now = clock::now();
                let Some((id, bell)) = self.book().take_due(now) else { break };
                let again = bell.upgrade().and_then(|bell| bell.ring(now));
                let mut book = self.book();
                match again {
                    // Not if it was cancelled meanwhile.
                    Some(at) if book.due.contains_key(&id) => book.enter(id, at, bell),
                    Some(_) => {}
                    None => drop(book.due.remove(&id)),
                }
            }
            let next = self.book().bells.keys().next().map(|(at, _)| *at);
            self.sleeper.sleep_until(next);
        }
    }

    /// No code panics while it holds the lock.
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    struct Bell {
        rung: Mutex<Sender<Time>>,
        again: Mutex<Vec<Time>>,
    }

    impl Ring for Bell {
        fn ring(self: Arc<Self>, now: Time) -> Option<Time> {
            self.rung.lock().unwrap().send(now).unwrap();
            self.again.lock().unwrap().pop()
        }
    }

    fn bell(again: Vec<Time>) -> (Arc<Bell>, Receiver<Time>) {
        let (rung, heard) = channel();
        (Arc::new(Bell { rung: Mutex::new(rung), again: Mutex::new(again) }), heard)
    }

    fn weak(bell: &Arc<Bell>) -> Weak<dyn Ring> {
        let bell: Arc<dyn Ring> = bell.clone();
        Arc::downgrade(&bell)
    }

    const SOON: Duration = Duration::from_secs(20);

    #[test]
    fn rings_in_time_and_again_when_asked() {
        let first = clock::now().after(Duration::from_millis(30));
        let second = first.after(Duration::from_millis(30));
        let (bell, heard) = bell(vec![second]);
        let _alarm = Alarm::set(first, weak(&bell));
        assert!(heard.recv_timeout(SOON).unwrap() >= first);
        assert!(heard.recv_timeout(SOON).unwrap() >= second);
        assert!(heard.recv_timeout(Duration::from_millis(50)).is_err(), "and not a third time");
    }

    #[test]
    fn a_later_alarm_does_not_hold_up_an_earlier_one() {
        let (late, _) = bell(vec![]);
        let (early, heard) = bell(vec![]);
        let _late = Alarm::set(clock::now().after(Duration::from_hours(1)), weak(&late));
        let _early = Alarm::set(clock::now().after(Duration::from_millis(20)), weak(&early));
        heard.recv_timeout(SOON).unwrap();
    }

    #[test]
    fn a_cancelled_alarm_is_silent_and_a_hastened_one_early() {
        let (bell, heard) = bell(vec![]);
        let far = clock::now().after(Duration::from_hours(1));
        drop(Alarm::set(clock::now().after(Duration::from_millis(20)), weak(&bell)));
        assert!(heard.recv_timeout(Duration::from_millis(100)).is_err());
        let alarm = Alarm::set(far, weak(&bell));
        alarm.hasten(clock::now());
        assert!(heard.recv_timeout(SOON).unwrap() < far);
    }
}
