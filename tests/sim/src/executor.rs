//! A tokio runtime that runs on demand until it has no more work.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use tokio::runtime::{Builder, Handle, Runtime};

/// The number of polls between two checks for timers and I/O. The number is high, because the
/// runtimes use neither.
const POLLS_BETWEEN_TIMER_CHECKS: u32 = 1 << 20;

/// A tokio runtime of a simulated process. The simulation's thread runs it on demand. The runtime's
/// own clock is paused and unused.
pub(crate) struct Executor {
    runtime: Runtime,
    idle: Arc<Idle>,
}

/// A flag that shows whether a runtime has run out of work. It is set just before the runtime would
/// block its thread.
#[derive(Default)]
struct Idle {
    is_idle: AtomicBool,
    root: Mutex<Option<Waker>>,
}

impl Idle {
    fn root(&self) -> std::sync::MutexGuard<'_, Option<Waker>> {
        self.root.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Executor {
    pub(crate) fn new() -> Self {
        let idle = Arc::<Idle>::default();
        let sleeper = idle.clone();
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .event_interval(POLLS_BETWEEN_TIMER_CHECKS)
            .on_thread_park(move || {
                sleeper.is_idle.store(true, Ordering::Relaxed);
                if let Some(root) = sleeper.root().as_ref() {
                    root.wake_by_ref();
                }
            })
            .build()
            .expect("a runtime");
        Self { runtime, idle }
    }

    pub(crate) fn handle(&self) -> &Handle {
        self.runtime.handle()
    }

    /// Polls all woken tasks, including tasks that are woken by these polls, until no woken task is
    /// left.
    pub(crate) fn run(&self) {
        self.idle.is_idle.store(false, Ordering::Relaxed);
        let mut is_first = true;
        self.runtime.block_on(poll_fn(|cx| {
            if std::mem::take(&mut is_first) {
                *self.idle.root() = Some(cx.waker().clone());
                return Poll::Pending;
            }
            let is_idle = self.idle.is_idle.load(Ordering::Relaxed);
            if is_idle { Poll::Ready(()) } else { Poll::Pending }
        }));
        // Breaks the reference cycle with the runtime.
        *self.idle.root() = None;
    }
}
