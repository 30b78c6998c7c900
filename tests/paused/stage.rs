//! Servers, and a runtime whose time stands still unless it is moved.

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

/// So many times in a row the rest of the world gets a turn, and time stands still meanwhile: as
/// long as it takes to connect to a node and to ask it. Then time passes as well.
const QUIET: usize = 8;

/// Maximum number of tasks that a turn polls: a task may wake itself each time.
const MOST_POLLS: usize = 61;

/// Between two steps of time: enough to send something and to take the reply.
const TURNS: usize = 2;

/// Time passes in [steps](STEP); when nothing has come of so many, in longer and longer ones, so that
/// the end of a lease comes in sight.
const SHORT_STEPS: usize = 12;
const LONGEST_STEP: Duration = Duration::from_secs(10);

/// The clock that quorlock reads is one for all tests.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Three servers and a runtime, for one test.
pub(crate) struct Stage {
    // In the order in which they end.
    runtime: Runtime,
    nodes: Rc<Nodes>,
    _turn: MutexGuard<'static, ()>,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let mut runtime = Builder::new_current_thread();
        // A yield polls one task: the first that was woken, also by another thread.
        runtime.event_interval(1).global_queue_interval(1);
        let runtime = runtime.enable_all().start_paused(true).build().expect("a runtime");
        Self { runtime, nodes: Rc::new(Nodes::start()), _turn: turn }
    }

    /// Runs `play`. Time stands still unless it is [moved](advance).
    pub(crate) fn run<T>(&self, play: impl AsyncFnOnce(&Rc<Nodes>) -> T) -> T {
        self.runtime.block_on(async {
            // A paused clock moves on by itself while all tasks wait, if it be for a reply; but not
            // while a blocking task runs.
            let (end, ended) = mpsc::channel::<()>();
            let brake = spawn_blocking(move || ended.recv());
            let output = play(&self.nodes).await;
            assert!(!brake.is_finished(), "it held until the end");
            drop(end);
            output
        })
    }
}

/// Moves both clocks.
pub(crate) async fn advance(by: Duration) {
    quorlock_test::advance(by);
    tokio::time::advance(by).await;
}

/// Polls all tasks until none is ready, and waits for the replies to their commands. Takes no time by the paused clock.
pub(crate) async fn turn(nodes: &Nodes) {
    let (mut tasks, mut polls) = (Tasks::default(), 0);
    while polls < MOST_POLLS && tasks.poll_next().await {
        polls += 1;
    }
    wait_for_others(nodes);
}

/// Waits for the replies of the nodes, and for the thread that rings alarms, however busy the machine is.
fn wait_for_others(nodes: &Nodes) {
    nodes.wait_for_replies();
    let begun = Instant::now();
    while !has_rung_alarms() {
        assert!(begun.elapsed() < SOON, "an alarm rings for {SOON:?}");
        thread::sleep(Duration::from_micros(20));
    }
}

/// The tasks of the runtime, polled one by one.
#[derive(Default)]
struct Tasks {
    /// Task behind all tasks that were ready when it was spawned.
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

/// Everything except the future under test, in the smallest steps: the poll of one task, or a step of time while no
/// task is ready.
#[derive(Default)]
pub(crate) struct Steps {
    tasks: Tasks,
    /// Number of turns in a row without a poll.
    quiet: usize,
    /// Number of steps of time.
    pub(crate) passed: usize,
    /// Number of steps of time since the last [`handle_progress`](Self::handle_progress).
    idle: usize,
}

impl Steps {
    /// Takes one step, or none if `is_woken` returns true before.
    pub(crate) async fn next(&mut self, nodes: &Nodes, is_woken: impl Fn() -> bool) {
        while !self.tasks.poll_next().await {
            if is_woken() {
                return;
            }
            wait_for_others(nodes);
            self.quiet += 1;
            if self.quiet > QUIET {
                self.quiet -= TURNS;
                advance(length(self.idle)).await;
                (self.passed, self.idle) = (self.passed + 1, self.idle + 1);
                return;
            }
        }
        self.quiet = 0;
    }

    /// The future was polled, or the test has changed something: time passes in short steps again.
    pub(crate) fn handle_progress(&mut self) {
        (self.quiet, self.idle) = (0, 0);
    }
}

/// Length of a step of time that follows this number of `idle` ones.
fn length(idle: usize) -> Duration {
    let doublings = idle.saturating_sub(SHORT_STEPS).min(16);
    (STEP * (1 << doublings)).min(LONGEST_STEP)
}

/// Lets the rest of the world go on a little. `quiet` is for how many of these nothing has come of
/// it: when there is nothing else to wait for, time passes.
pub(crate) async fn tick(nodes: &Nodes, quiet: usize) {
    turn(nodes).await;
    if let Some(steps) = quiet.checked_sub(QUIET) {
        advance(length(steps)).await;
        for _ in 1..TURNS {
            turn(nodes).await;
        }
    }
}

/// Lets everything go on until nothing is amiss any more.
pub(crate) async fn eventually(nodes: &Nodes, mut amiss: impl FnMut() -> Option<String>) {
    let begun = Instant::now();
    let mut quiet = 0;
    while let Some(amiss) = amiss() {
        assert!(begun.elapsed() < SOON, "still so after {SOON:?}: {amiss}");
        tick(nodes, quiet).await;
        quiet += 1;
    }
}

/// Lets everything go on, without time, until nothing is amiss any more.
pub(crate) async fn at_once(nodes: &Nodes, mut amiss: impl FnMut() -> Option<String>) {
    let begun = Instant::now();
    while let Some(amiss) = amiss() {
        assert!(begun.elapsed() < SOON, "still so after {SOON:?}: {amiss}");
        turn(nodes).await;
    }
}

/// Runs `future` to its end, and time with it.
pub(crate) async fn finish<F: Future>(nodes: &Nodes, future: F) -> F::Output {
    let mut future = pin!(future);
    let bell = Bell::rung();
    loop {
        match bell.poll(future.as_mut()) {
            Poll::Ready(output) => return output,
            Poll::Pending => {
                eventually(nodes, || (!bell.has_rung()).then(|| "it is not woken".into())).await;
            }
        }
    }
}

/// Whether a future that is polled by hand wants to be polled.
pub(crate) struct Bell(AtomicBool);

impl Bell {
    pub(crate) fn rung() -> Arc<Self> {
        Arc::new(Self(AtomicBool::new(true)))
    }

    pub(crate) fn has_rung(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    pub(crate) fn poll<F: Future>(self: &Arc<Self>, future: Pin<&mut F>) -> Poll<F::Output> {
        self.0.store(false, Ordering::SeqCst);
        let waker = Waker::from(self.clone());
        future.poll(&mut Context::from_waker(&waker))
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}
