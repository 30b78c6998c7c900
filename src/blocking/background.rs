//! The thread that runs connections if the program has no runtime.

use super::error::InsideRuntime;
use crate::sync::{lock, wait};
use std::mem;
use std::pin::{Pin, pin};
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;
use tokio::task::coop::poll_proceed;
use tokio::task::yield_now;

/// Interval at which a stopping runtime checks whether all releases are delivered.
const POLL: Duration = Duration::from_millis(1);

/// More than tokio's cooperative budget of a task (128 steps).
const STEPS: usize = 1 << 10;

/// A runtime shared by blocking callers. Dropping the last clone waits until pending releases are
/// delivered, within a limit.
#[derive(Clone)]
pub(super) struct Background {
    handle: Handle,
    /// `None` if the application supplied the runtime.
    _thread: Option<Arc<Thread>>,
}

struct Thread {
    /// Id of the process that started it: a forked child does not have the thread.
    process: u32,
    stop: Option<oneshot::Sender<()>>,
    running: Option<JoinHandle<()>>,
}

impl Background {
    /// Starts a runtime on a dedicated thread. When stopped, it delivers pending releases for at
    /// most `limit`.
    pub(super) fn start(limit: Duration) -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new().name("quorlock-blocking".to_owned());
        let thread = thread.spawn(move || run(runtime, stopped, limit))?;
        let thread = Thread { process: process::id(), stop: Some(stop), running: Some(thread) };
        Ok(Self { handle, _thread: Some(Arc::new(thread)) })
    }

    /// Uses the application's runtime, which other threads must drive.
    pub(super) fn on(handle: Handle) -> Self {
        Self { handle, _thread: None }
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Polls `future` once, so that it sends its commands, without waiting.
    pub(super) fn begin<F: Future>(&self, future: Pin<&mut F>) -> Poll<F::Output> {
        let _entered = self.handle.enter();
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    /// Blocks this thread on `future`, unless the thread is polling a task.
    pub(super) fn wait<F: Future>(&self, future: F) -> Result<F::Output, InsideRuntime> {
        if is_polled() { Err(InsideRuntime) } else { Ok(self.wait_here(future)) }
    }

    /// Blocks this thread on `future`. The caller must have checked that the thread is not polling
    /// a task.
    pub(super) fn wait_here<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        loop {
            // Without an end, `drive` returns only with an output.
            if let Some(output) = self.drive(None, future.as_mut()) {
                return output;
            }
        }
    }

    /// Blocks this thread on `future` for at most `limit`, unless the thread is polling a task.
    pub(super) fn wait_within<F: Future>(
        &self,
        limit: Duration,
        future: F,
    ) -> Result<Option<F::Output>, InsideRuntime> {
        if is_polled() {
            return Err(InsideRuntime);
        }
        // An end that `Instant` cannot represent means no limit.
        Ok(self.drive(Instant::now().checked_add(limit), pin!(future)))
    }

    fn drive<F: Future>(&self, end: Option<Instant>, mut future: Pin<&mut F>) -> Option<F::Output> {
        // Futures create their timers on the entered runtime. (`Handle::block_on` panics on threads
        // that tokio considers part of a runtime.)
        let _entered = self.handle.enter();
        let bell = Arc::new(Bell::default());
        let waker = Waker::from(bell.clone());
        let mut context = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return Some(output);
            }
            if !bell.wait_until(end) {
                return None;
            }
        }
    }
}

/// Wakes the waiting thread. (`thread::park` would consume tokens of the application's own
/// `unpark`.)
#[derive(Default)]
struct Bell {
    has_rung: Mutex<bool>,
    rings: Condvar,
}

impl Bell {
    /// Returns true once it was woken, false at the `end`.
    fn wait_until(&self, end: Option<Instant>) -> bool {
        let mut has_rung = lock(&self.has_rung);
        while !std::mem::take(&mut *has_rung) {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            has_rung = match left {
                Some(Duration::ZERO) => return false,
                left => wait(&self.rings, has_rung, left),
            };
        }
        true
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        *lock(&self.has_rung) = true;
        self.rings.notify_one();
    }
}

impl std::fmt::Debug for Background {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Background")
    }
}

fn run(runtime: Runtime, stopped: oneshot::Receiver<()>, limit: Duration) {
    // An error means that the sender was dropped, which is also a stop.
    let _ = runtime.block_on(stopped);
    let begun = Instant::now();
    // Tasks end once no client can send commands and no release is pending.
    while runtime.metrics().num_alive_tasks() > 0 && begun.elapsed() < limit {
        // Inside `async`, because the timer must be created on this runtime.
        runtime.block_on(async { tokio::time::sleep(POLL).await });
    }
    // Dropping a runtime waits for its blocking threads, and a DNS lookup on one of them can take
    // as long as the resolver allows.
    runtime.shutdown_background();
}

impl Drop for Thread {
    fn drop(&mut self) {
        if self.process != process::id() {
            // The thread exists only in the parent process: do not stop or join it here.
            mem::forget((self.stop.take(), self.running.take()));
            return;
        }
        drop(self.stop.take());
        if let Some(running) = self.running.take() {
            // The thread does not panic.
            let _ = running.join();
        }
    }
}

/// True if this thread must not block, because it is polling an async task. Threads of
/// `spawn_blocking` and tasks inside `block_in_place` also have a current runtime, but may block.
fn is_polled() -> bool {
    Handle::try_current().is_ok() && (is_driver() || is_limited())
}

/// True if this thread drives a runtime's tasks and no other thread takes over. On such a thread,
/// tokio defers the waker of [`yield_now`] until other tasks have run; elsewhere it wakes at once.
/// This also detects `unconstrained` tasks.
///
/// A thread in `block_on` of a runtime that other threads drive does not count: blocking it stalls
/// no other task.
fn is_driver() -> bool {
    let woken = Arc::new(Woken(AtomicBool::new(false)));
    let waker = Waker::from(woken.clone());
    let is_done = pin!(yield_now()).poll(&mut Context::from_waker(&waker)).is_ready();
    !is_done && !woken.0.load(Ordering::Relaxed)
}

/// Records a wake.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// True if this thread has a limited cooperative budget, as tasks do.
fn is_limited() -> bool {
    let mut steps = Vec::with_capacity(STEPS);
    let mut context = Context::from_waker(Waker::noop());
    let mut is_limited = false;
    while steps.len() < STEPS && !is_limited {
        match poll_proceed(&mut context) {
            Poll::Ready(step) => steps.push(step),
            Poll::Pending => is_limited = true,
        }
    }
    // Each dropped step restores the budget from before it was taken, so the first is dropped last.
    while steps.pop().is_some() {}
    is_limited
}
