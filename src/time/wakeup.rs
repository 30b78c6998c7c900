//! A task's own alarm.

use super::clock::Clock;
use super::ring::Ring;
use super::timer::Alarm;
use crate::protocol::Time;
use crate::sync::lock;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Resolves at a time on our clock, by the clock's alarms: also while the runtime's timers are held up.
pub(crate) struct Wakeup {
    bell: Arc<Bell>,
    _alarm: Alarm,
}

#[derive(Default)]
struct Bell(Mutex<State>);

#[derive(Default)]
struct State {
    has_rung: bool,
    task: Option<Waker>,
}

impl Wakeup {
    pub(crate) fn at(clock: &Clock, at: Time) -> Self {
        let bell = Arc::new(Bell::default());
        let this: Arc<dyn Ring> = bell.clone();
        let weak: Weak<dyn Ring> = Arc::downgrade(&this);
        Self { bell, _alarm: clock.set_alarm(at, weak) }
    }
}

impl Clock {
    /// Awaits `task` for at most `limit`. Returns its output, and the rest of `limit`.
    pub(crate) async fn timeout<T>(
        &self,
        limit: Duration,
        task: impl Future<Output = T>,
    ) -> Option<(T, Duration)> {
        let end = self.now().after(limit);
        tokio::select! {
            biased;
            output = task => Some((output, end.since(self.now()))),
            () = Wakeup::at(self, end) => None,
        }
    }
}

impl Bell {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }
}

impl Ring for Bell {
    fn ring(self: Arc<Self>, _now: Time) -> Option<Time> {
        let task = {
            let mut state = self.state();
            state.has_rung = true;
            state.task.take()
        };
        if let Some(task) = task {
            task.wake();
        }
        None
    }
}

impl Future for Wakeup {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let task = cx.waker().clone();
        let mut state = self.bell.state();
        if state.has_rung {
            return Poll::Ready(());
        }
        let before = state.task.replace(task);
        drop(state);
        drop(before);
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::sync::mpsc::{Sender, channel};
    use std::task::Wake;

    struct Task(Sender<()>);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.send(()).expect("somebody listens");
        }
    }

    #[test]
    fn the_task_that_polled_it_last_is_woken() {
        // It is rung below: however busy the machine is, it does not ring before that.
        let far = Clock::Machine.now().after(Duration::from_hours(1));
        let mut wakeup = pin!(Wakeup::at(&Clock::Machine, far));
        let [(first, early), (second, late)] = [(); 2].map(|()| {
            let (told, heard) = channel();
            (Waker::from(Arc::new(Task(told))), heard)
        });
        for waker in [&first, &second] {
            assert!(wakeup.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
        }
        wakeup.bell.clone().ring(far);
        late.recv_timeout(Duration::from_secs(20)).expect("it rings");
        assert!(wakeup.as_mut().poll(&mut Context::from_waker(&first)).is_ready());
        assert!(early.try_recv().is_err(), "it has nothing to do with it any more");
    }
}
