//! The thread that connections run on when the program has no runtime.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;
use tokio::task::coop::poll_proceed;

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
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The caller's thread is busy with an async task, which must not wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct InsideRuntime;

impl Background {
    /// Starts a runtime on a thread of its own.
    pub(super) fn start(limit: Duration) -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new().name("quorlock-blocking".to_owned());
        let thread = thread.spawn(move || run(&runtime, stopped, limit))?;
        let thread = Thread { stop: Some(stop), thread: Some(thread) };
        Ok(Self { handle, _thread: Some(Arc::new(thread)) })
    }

    /// Uses a runtime that somebody else runs.
    pub(super) fn on(handle: Handle) -> Self {
        Self { handle, _thread: None }
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Waits for `future` on this thread, unless it belongs to a runtime.
    pub(super) fn wait<F: Future>(&self, future: F) -> Result<F::Output, InsideRuntime> {
        if is_polled() {
            return Err(InsideRuntime);
        }
        Ok(self.handle.block_on(future))
    }
}

impl std::fmt::Debug for Background {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Background")
    }
}

fn run(runtime: &Runtime, stopped: oneshot::Receiver<()>, limit: Duration) {
    // An error says that the sender is gone, which means the same.
    let _ = runtime.block_on(stopped);
    let begun = Instant::now();
    // Tasks end by themselves when nobody can ask them any more and nothing is owed.
    while runtime.metrics().num_alive_tasks() > 0 && begun.elapsed() < limit {
        // The timer is made on the runtime that it belongs to.
        runtime.block_on(async { tokio::time::sleep(POLL).await });
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It cannot panic.
            let _ = thread.join();
        }
    }
}

/// True if this thread is polling an async task. A thread of `spawn_blocking` also knows its
/// runtime, but has no budget of steps: it may wait.
fn is_polled() -> bool {
    if Handle::try_current().is_err() {
        return false;
    }
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
