//! Blocks threads on futures, and closes a client when its last handle is dropped.

use super::error::InsideRuntime;
use crate::sync::{lock, wait as wait_for};
use std::fmt;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::task::coop::poll_proceed;
use tokio::task::yield_now;

/// Number of cooperative steps that [`is_limited`] tries. The number exceeds the budget of a tokio
/// task, which is 128 steps.
const STEPS: usize = 1 << 10;

/// Value that all handles of a client share. Dropping the last handle closes the client and waits
/// for the pending releases, unless the thread is polling a task.
pub(super) struct CloseOnDrop(pub(super) crate::Redlock);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        let mut closing = pin!(self.0.close());
        if wait(closing.as_mut()).is_err() {
            let _ = begin(closing);
        }
    }
}

impl fmt::Debug for CloseOnDrop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CloseOnDrop")
    }
}

/// Polls `future` once without waiting, so that it sends its commands.
pub(super) fn begin<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Blocks this thread until `future` completes. Returns an error without blocking if the thread is
/// polling a task.
pub(super) fn wait<F: Future>(future: F) -> Result<F::Output, InsideRuntime> {
    if is_polled() { Err(InsideRuntime) } else { Ok(wait_here(future)) }
}

/// Blocks this thread until `future` completes. The caller must have checked that the thread is not
/// polling a task.
pub(super) fn wait_here<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        // Without an end, `drive` returns only with an output.
        if let Some(output) = drive(None, future.as_mut()) {
            return output;
        }
    }
}

/// Blocks this thread until `future` completes, but for at most `limit`. Returns `Ok(None)` if
/// `limit` elapses first. Returns an error without blocking if the thread is polling a task.
pub(super) fn wait_within<F: Future>(
    limit: Duration,
    future: F,
) -> Result<Option<F::Output>, InsideRuntime> {
    if is_polled() {
        return Err(InsideRuntime);
    }
    // If `Instant` cannot represent the end, the wait has no limit.
    Ok(drive(Instant::now().checked_add(limit), pin!(future)))
}

fn drive<F: Future>(end: Option<Instant>, mut future: Pin<&mut F>) -> Option<F::Output> {
    let thread = Arc::new(ThreadWaker::default());
    let waker = Waker::from(thread.clone());
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        if !thread.wait_until(end) {
            return None;
        }
    }
}

/// Waker for a blocked thread. `thread::park` is unsuitable, because it would consume the `unpark`
/// tokens of the application.
#[derive(Default)]
struct ThreadWaker {
    is_woken: Mutex<bool>,
    condition: Condvar,
}

impl ThreadWaker {
    /// Blocks until the waker is woken. Returns false if `end` is reached first.
    fn wait_until(&self, end: Option<Instant>) -> bool {
        let mut has_rung = lock(&self.is_woken);
        while !std::mem::take(&mut *has_rung) {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            has_rung = match left {
                Some(Duration::ZERO) => return false,
                left => wait_for(&self.condition, has_rung, left),
            };
        }
        true
    }
}

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        *lock(&self.is_woken) = true;
        self.condition.notify_one();
    }
}

/// Returns true if this thread must not block, because it is polling an async task. Threads of
/// `spawn_blocking` and tasks inside `block_in_place` also have a current runtime, but may block.
fn is_polled() -> bool {
    Handle::try_current().is_ok() && (is_driver() || is_limited())
}

/// Returns true if this thread drives the tasks of a runtime and no other thread would take over
/// while this thread is blocked. On such a thread, tokio defers the wake-up of [`yield_now`] until
/// other tasks have run. On other threads, `yield_now` wakes its task immediately. The check also
/// detects `unconstrained` tasks.
///
/// Returns false inside `block_on` of a runtime that other threads drive, because blocking this
/// thread stalls no other task.
fn is_driver() -> bool {
    let woken = Arc::new(WakeFlag(AtomicBool::new(false)));
    let waker = Waker::from(woken.clone());
    let is_done = pin!(yield_now()).poll(&mut Context::from_waker(&waker)).is_ready();
    !is_done && !woken.0.load(Ordering::Relaxed)
}

struct WakeFlag(AtomicBool);

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns true if code on this thread has a limited cooperative budget, as in a tokio task.
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
    // Dropping a step restores the budget to its value before that step, so the first step is
    // dropped last.
    while steps.pop().is_some() {}
    is_limited
}
