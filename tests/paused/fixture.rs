//! Servers, and a runtime whose clock advances only when a test says so.

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

/// The number of turns in a row without a poll before time passes: enough to connect to a node and to query it.
const QUIET_TURNS: usize = 8;

/// The maximum number of tasks that a turn polls, since a task may wake itself each time.
const MAX_POLLS: usize = 61;

/// The number of turns between two steps of time: enough to send a request and to receive the reply.
const TURNS_PER_STEP: usize = 2;

/// The number of idle [steps](STEP) before steps grow, so that a test reaches the end of a lease.
const SHORT_STEPS: usize = 12;
const MAX_STEP: Duration = Duration::from_secs(10);

/// Held by the running test: all tests share quorlock's clock.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Three servers and a runtime, for one test.
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
        // Each yield polls one task, the first that was woken, also if another thread woke it.
        runtime.event_interval(1).global_queue_interval(1);
        let runtime = runtime.enable_all().start_paused(true).build().expect("a runtime");
        Self { runtime, nodes: Rc::new(Nodes::start()), _turn: turn }
    }

    /// Runs `test`. Time passes only when it is [advanced](advance).
    pub(crate) fn run<T>(&self, test: impl AsyncFnOnce(&Rc<Nodes>) -> T) -> T {
        self.runtime.block_on(async {
            // A paused clock advances by itself while all tasks wait, even for a reply, but not while a
            // blocking task runs.
            let (end, ended) = mpsc::channel::<()>();
            let blocker = spawn_blocking(move || ended.recv());
            let output = test(&self.nodes).await;
            assert!(!blocker.is_finished(), "the blocking task ran until the end");
            drop(end);
            output
        })
    }
}

/// Advances both clocks.
pub(crate) async fn advance(by: Duration) {
    quorlock_test::advance(by);
    tokio::time::advance(by).await;
}

/// Polls all tasks until none is ready, and waits for the replies to their commands. No time passes on the
/// paused clock.
pub(crate) async fn turn(nodes: &Nodes) {
    let (mut tasks, mut polls) = (Tasks::default(), 0);
    while polls < MAX_POLLS && tasks.poll_next().await {
        polls += 1;
    }
    wait_for_others(nodes);
}

/// Waits for the replies of the nodes and for the alarm thread, however slow the machine is.
fn wait_for_others(nodes: &Nodes) {
    nodes.wait_for_replies();
    let started = Instant::now();
    while !has_rung_alarms() {
        assert!(started.elapsed() < SOON, "an alarm is still ringing after {SOON:?}");
        thread::sleep(Duration::from_micros(20));
    }
}

/// The runtime's tasks, polled one by one.
#[derive(Default)]
struct Tasks {
    /// A task queued behind all tasks that were ready when it was spawned.
    last: Option<JoinHandle<()>>,
}

impl Tasks {
    /// Polls the next task. Returns false if no task is ready.
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

/// Runs everything except the future under test, in the smallest steps: the poll of one task, or a step of time
/// while no task is ready.
#[derive(Default)]
pub(crate) struct Steps {
    tasks: Tasks,
    /// The number of turns in a row without a poll.
    quiet: usize,
    /// The number of steps of time.
    pub(crate) passed: usize,
    /// The number of steps of time since the last [`handle_progress`](Self::handle_progress).
    idle: usize,
}

impl Steps {
    /// Runs one step, or none if `is_woken` becomes true first.
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

    /// Returns to short steps of time, because the future was polled or the test changed something.
    pub(crate) fn handle_progress(&mut self) {
        (self.quiet, self.idle) = (0, 0);
    }
}

/// The length of the step of time after `idle` steps without progress.
fn length(idle: usize) -> Duration {
    let doublings = idle.saturating_sub(SHORT_STEPS).min(16);
    (STEP * (1 << doublings)).min(MAX_STEP)
}

/// Runs one turn. After `quiet` turns without progress, time passes too.
pub(crate) async fn tick(nodes: &Nodes, quiet: usize) {
    turn(nodes).await;
    if let Some(steps) = quiet.checked_sub(QUIET_TURNS) {
        advance(length(steps)).await;
        for _ in 1..TURNS_PER_STEP {
            turn(nodes).await;
        }
    }
}

/// Runs turns and time until `problem` returns `None`.
pub(crate) async fn eventually(nodes: &Nodes, mut problem: impl FnMut() -> Option<String>) {
    let started = Instant::now();
    let mut quiet = 0;
    while let Some(problem) = problem() {
        assert!(started.elapsed() < SOON, "not resolved after {SOON:?}: {problem}");
        tick(nodes, quiet).await;
        quiet += 1;
    }
}

/// Runs turns, without time, until `problem` returns `None`.
pub(crate) async fn at_once(nodes: &Nodes, mut problem: impl FnMut() -> Option<String>) {
    let started = Instant::now();
    while let Some(problem) = problem() {
        assert!(started.elapsed() < SOON, "not resolved after {SOON:?}: {problem}");
        turn(nodes).await;
    }
}

/// Polls `future` to its end, and advances time while it waits.
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

/// A waker that records whether a manually polled future was woken.
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
