//! Redis servers, and a runtime whose clock only advances when a test advances it.

use crate::nodes::Nodes;
use crate::{SOON, STEP};
use quorlock::test_util::has_rung_alarms;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinHandle, spawn_blocking, yield_now};

/// The clocks advance after this number of consecutive turns in which no task was polled. In a turn, all ready tasks
/// are polled, and the nodes reply. Within this many turns, the client can connect to a node and query it.
const QUIET_TURNS: usize = 8;

/// The maximum number of polls in a turn. Without this limit, a task that always wakes itself would keep the turn from
/// ending.
const MAX_POLLS: usize = 61;

/// The number of turns between two clock steps. The client can send a request and receive the reply within this many
/// turns.
const TURNS_PER_STEP: usize = 2;

/// Clock steps become longer after this number of [steps](STEP) without progress, so that a test reaches the end of a
/// lease.
const SHORT_STEPS: usize = 12;
const MAX_STEP: Duration = Duration::from_secs(10);

/// Held by the running test, because all tests share quorlock's clock.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

pub(crate) struct Fixture {
    // Fields are dropped in this order.
    runtime: Runtime,
    nodes: Rc<Nodes>,
    _turn: MutexGuard<'static, ()>,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let mut runtime = Builder::new_current_thread();
        // With these intervals, each yield polls one task: the task that was woken first, even if another
        // thread woke it.
        runtime.event_interval(1).global_queue_interval(1);
        let runtime = runtime.enable_all().start_paused(true).build().expect("a runtime");
        Self { runtime, nodes: Rc::new(Nodes::start()), _turn: turn }
    }

    /// Runs `test` on a runtime whose clock only advances when the test calls [`advance`].
    pub(crate) fn run<T>(&self, test: impl AsyncFnOnce(&Rc<Nodes>) -> T) -> T {
        self.runtime.block_on(async {
            // Tokio advances a paused clock automatically while all tasks wait, even for a reply. A running
            // blocking task prevents this.
            let (end, ended) = mpsc::channel::<()>();
            let blocker = spawn_blocking(move || ended.recv());
            let output = test(&self.nodes).await;
            assert!(!blocker.is_finished(), "the blocking task ran until the end");
            drop(end);
            output
        })
    }
}

pub(crate) async fn advance(by: Duration) {
    quorlock_test::advance(by);
    tokio::time::advance(by).await;
}

/// Runs one turn: polls tasks until none is ready, and waits for the replies to their commands. The clocks do not
/// advance.
pub(crate) async fn poll_until_idle(nodes: &Nodes) {
    let (mut tasks, mut polls) = (Tasks::default(), 0);
    while polls < MAX_POLLS && tasks.poll_next().await {
        polls += 1;
    }
    wait_for_others(nodes);
}

/// Waits in real time until the nodes have replied and the alarm thread has fired the alarms that are due.
fn wait_for_others(nodes: &Nodes) {
    nodes.wait_for_replies();
    let started = Instant::now();
    while !has_rung_alarms() {
        assert!(started.elapsed() < SOON, "an alarm is still ringing after {SOON:?}");
        thread::sleep(Duration::from_micros(20));
    }
}

#[derive(Default)]
struct Tasks {
    /// A marker task. It is queued after all tasks that were ready when it was spawned.
    last: Option<JoinHandle<()>>,
}

impl Tasks {
    async fn poll_next(&mut self) -> bool {
        loop {
            let is_new = self.last.is_none();
            let last = self.last.get_or_insert_with(|| tokio::spawn(async {}));
            yield_now().await;
            if !last.is_finished() {
                return true;
            }
            self.last = None;
            if is_new {
                return false;
            }
        }
    }
}

/// Runs everything except the future under test, in the smallest possible steps. A step polls one task. If no task is
/// ready, a step advances the clocks instead.
#[derive(Default)]
pub(crate) struct Steps {
    tasks: Tasks,
    quiet: usize,
    pub(crate) passed: usize,
    idle: usize,
}

impl Steps {
    /// Runs one step. If no task is ready and `is_woken` returns true, returns without a step.
    pub(crate) async fn next(&mut self, nodes: &Nodes, is_woken: impl Fn() -> bool) {
        while !self.tasks.poll_next().await {
            if is_woken() {
                return;
            }
            wait_for_others(nodes);
            self.quiet += 1;
            if self.quiet > QUIET_TURNS {
                self.quiet -= TURNS_PER_STEP;
                advance(length(self.idle)).await;
                (self.passed, self.idle) = (self.passed + 1, self.idle + 1);
                return;
            }
        }
        self.quiet = 0;
    }

    /// Makes the clock steps short again, because the future was polled or the test changed something.
    pub(crate) fn handle_progress(&mut self) {
        (self.quiet, self.idle) = (0, 0);
    }
}

/// Returns the length of the clock step that follows `idle` steps without progress.
fn length(idle: usize) -> Duration {
    let doublings = idle.saturating_sub(SHORT_STEPS).min(16);
    (STEP * (1 << doublings)).min(MAX_STEP)
}

/// Runs one turn. `quiet` is the number of preceding turns without progress. If it is at least [`QUIET_TURNS`], also
/// advances the clocks.
pub(crate) async fn tick(nodes: &Nodes, quiet: usize) {
    poll_until_idle(nodes).await;
    if let Some(steps) = quiet.checked_sub(QUIET_TURNS) {
        advance(length(steps)).await;
        for _ in 1..TURNS_PER_STEP {
            poll_until_idle(nodes).await;
        }
    }
}

/// Runs turns and advances the clocks until `problem` returns `None`.
pub(crate) async fn eventually(nodes: &Nodes, mut problem: impl FnMut() -> Option<String>) {
    let started = Instant::now();
    let mut quiet = 0;
    while let Some(problem) = problem() {
        assert!(started.elapsed() < SOON, "not resolved after {SOON:?}: {problem}");
        tick(nodes, quiet).await;
        quiet += 1;
    }
}

pub(crate) async fn eventually_without_time(
    nodes: &Nodes,
    mut problem: impl FnMut() -> Option<String>,
) {
    let started = Instant::now();
    while let Some(problem) = problem() {
        assert!(started.elapsed() < SOON, "not resolved after {SOON:?}: {problem}");
        poll_until_idle(nodes).await;
    }
}

/// Polls `future` until it completes, and advances the clocks while it waits. Returns its output.
pub(crate) async fn finish<F: Future>(nodes: &Nodes, future: F) -> F::Output {
    let mut future = pin!(future);
    let flag = WakeFlag::woken();
    loop {
        match flag.poll(future.as_mut()) {
            Poll::Ready(output) => return output,
            Poll::Pending => {
                eventually(nodes, || (!flag.is_woken()).then(|| "the future is not woken".into()))
                    .await;
            }
        }
    }
}

pub(crate) struct WakeFlag(AtomicBool);

impl WakeFlag {
    pub(crate) fn woken() -> Arc<Self> {
        Arc::new(Self(AtomicBool::new(true)))
    }

    pub(crate) fn is_woken(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    pub(crate) fn poll<F: Future>(self: &Arc<Self>, future: Pin<&mut F>) -> Poll<F::Output> {
        self.0.store(false, Ordering::SeqCst);
        let waker = Waker::from(self.clone());
        future.poll(&mut Context::from_waker(&waker))
    }
}

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}
