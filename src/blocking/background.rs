//! The thread that connections run on when the program has no runtime.

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

/// How often a runtime that ends looks whether all is delivered.
const POLL: Duration = Duration::from_millis(1);

/// More than the steps that a task may take before it has to yield (tokio gives it 128).
const STEPS: usize = 1 << 10;

/// A runtime that blocking callers share. The last one to let go of it waits until what it still has
/// to deliver is delivered, within a limit.
#[derive(Clone)]
pub(super) struct Background {
    handle: Handle,
    /// None if the runtime is the user's own.
    _thread: Option<Arc<Thread>>,
}

struct Thread {
    /// The process that it runs in.
    process: u32,
    stop: Option<oneshot::Sender<()>>,
    running: Option<JoinHandle<()>>,
}

impl Background {
    /// Starts a runtime on a thread of its own.
    pub(super) fn start(limit: Duration) -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new().name("quorlock-blocking".to_owned());
        let thread = thread.spawn(move || run(runtime, stopped, limit))?;
        let thread = Thread { process: process::id(), stop: Some(stop), running: Some(thread) };
        Ok(Self { handle, _thread: Some(Arc::new(thread)) })
    }

    /// Uses a runtime that somebody else runs.
    pub(super) fn on(handle: Handle) -> Self {
        Self { handle, _thread: None }
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Lets `future` take its first step without waiting: what it sends is sent.
    pub(super) fn begin<F: Future>(&self, future: Pin<&mut F>) -> Poll<F::Output> {
        let _entered = self.handle.enter();
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    /// Waits for `future` on this thread, unless it is polling a task.
    pub(super) fn wait<F: Future>(&self, future: F) -> Result<F::Output, InsideRuntime> {
        if is_polled() { Err(InsideRuntime) } else { Ok(self.wait_here(future)) }
    }

    /// Waits for `future` on this thread, which is known to be no task's.
    pub(super) fn wait_here<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        loop {
            // Without an end it waits for what comes.
            if let Some(output) = self.drive(None, future.as_mut()) {
                return output;
            }
        }
    }

    /// Waits for `future` for so long at the most, unless this thread is polling a task.
    pub(super) fn wait_within<F: Future>(
        &self,
        limit: Duration,
        future: F,
    ) -> Result<Option<F::Output>, InsideRuntime> {
        if is_polled() {
            return Err(InsideRuntime);
        }
        // What is beyond all instants is waited for without an end.
        Ok(self.drive(Instant::now().checked_add(limit), pin!(future)))
    }

    fn drive<F: Future>(&self, end: Option<Instant>, mut future: Pin<&mut F>) -> Option<F::Output> {
        // Timers are made on the runtime that they belong to. (tokio's own way to wait panics where it
        // believes that this thread is a runtime's.)
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

/// Wakes the thread that waits for it. (`park` would take what the program's own `unpark` leaves.)
#[derive(Default)]
struct Bell {
    has_rung: Mutex<bool>,
    rings: Condvar,
}

impl Bell {
    /// True if it has rung, false if it has not by the `end`.
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
    // An error says that the sender is gone, which means the same.
    let _ = runtime.block_on(stopped);
    let begun = Instant::now();
    // Tasks end by themselves when nobody can ask them any more and nothing is owed.
    while runtime.metrics().num_alive_tasks() > 0 && begun.elapsed() < limit {
        // The timer is made on the runtime that it belongs to.
        runtime.block_on(async { tokio::time::sleep(POLL).await });
    }
    // A runtime that is dropped waits for its blocking threads, and one of them may be searching for
    // the address of a node for as long as the resolver likes.
    runtime.shutdown_background();
}

impl Drop for Thread {
    fn drop(&mut self) {
        if self.process != process::id() {
            // It was not forked with us: there is nothing to wait for, and nothing that could be told to stop.
            mem::forget((self.stop.take(), self.running.take()));
            return;
        }
        drop(self.stop.take());
        if let Some(running) = self.running.take() {
            // It cannot panic.
            let _ = running.join();
        }
    }
}

/// True if this thread must not wait: it is polling an async task. A thread of `spawn_blocking` also
/// knows its runtime, but may wait, and so may a task inside of `block_in_place`.
fn is_polled() -> bool {
    Handle::try_current().is_ok() && (is_driver() || is_limited())
}

/// True if a runtime runs its tasks on this thread, and on no other in its place. It tells that by
/// what it does with a waker of [`yield_now`]: it keeps it until its other tasks have had their turn,
/// and elsewhere it is woken at once. This also tells tasks that are `unconstrained`.
///
/// A thread that calls `block_on` beside the threads that drive the runtime does not count: if it
/// waits, nobody else has to.
fn is_driver() -> bool {
    let woken = Arc::new(Woken(AtomicBool::new(false)));
    let waker = Waker::from(woken.clone());
    let is_done = pin!(yield_now()).poll(&mut Context::from_waker(&waker)).is_ready();
    !is_done && !woken.0.load(Ordering::Relaxed)
}

/// Takes note of being woken.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// True if this thread has a budget of steps, as tasks have.
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
    // Each gives its step back; the first one taken comes last.
    while steps.pop().is_some() {}
    is_limited
}
