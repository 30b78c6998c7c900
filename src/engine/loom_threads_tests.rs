//! Threads and tasks for loom tests.

use super::memory_tests::MemoryClient;
use loom::model::Builder;
use loom::sync::Notify;
use loom::thread::JoinHandle;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Wake, Waker};
use tokio::runtime::{Handle, Runtime};

/// Stack size of a thread, in words.
const STACK: usize = 1 << 17;

/// Runs `test` for every interleaving of its threads with at most `preemptions` preemptions.
pub(super) fn check(preemptions: usize, test: impl Fn() + Send + Sync + 'static) {
    let mut model = Builder::new();
    model.preemption_bound = Some(preemptions);
    model.max_branches = 20_000;
    let test = Arc::new(test);
    // The thread that loom starts has a small stack.
    model.check(move || {
        let test = test.clone();
        spawn(move || test()).join().expect("no panic");
    });
}

pub(super) fn spawn<T: Send + 'static>(
    thread: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let builder = loom::thread::Builder::new().stack_size(STACK);
    builder.spawn(thread).expect("threads of loom are always available")
}

#[derive(Default)]
struct Thread(Notify);

impl Wake for Thread {
    fn wake(self: Arc<Self>) {
        self.0.notify();
    }
}

/// Polls `future` on this thread until it is ready. If a wake-up is missing, loom reports that the thread sleeps
/// indefinitely.
pub(super) fn block_on<F: Future>(future: F) -> F::Output {
    let thread = Arc::<Thread>::default();
    let waker = Waker::from(thread.clone());
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread.0.wait();
    }
}

/// Runs the client's task on this thread until the client is closed or the task is replaced. Returns false if the
/// client already has a task.
pub(super) fn serve(client: &MemoryClient) -> bool {
    let task = client.engine.next_task(runtime()).unwrap_or_default();
    let Some(task) = task else { return false };
    block_on(poll_fn(|cx| task.poll(cx)));
    true
}

/// A runtime that is never driven, so that it runs no tasks.
pub(super) fn runtime() -> Handle {
    static RUNTIME: LazyLock<Runtime> =
        LazyLock::new(|| tokio::runtime::Builder::new_current_thread().build().expect("a runtime"));
    RUNTIME.handle().clone()
}
