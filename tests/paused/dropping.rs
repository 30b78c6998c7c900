//! Drops a future at every point of its execution, and checks that no key and no pending work remains.

use crate::fixture::{Fixture, Steps, WakeFlag};
use crate::scenario::{Scenario, idle_tasks};
use std::pin::pin;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

const MAX_POINTS: usize = 1_000;

/// The maximum real time of one test. The slowest test usually takes about a second.
const MAX_TIME: Duration = Duration::from_mins(2);

/// Checks that a future leaves neither a key nor pending work, wherever it is dropped. Also checks that the future has
/// at least `least` drop points.
///
/// The scenario is repeated. In each repetition, the future is dropped one point later, until it completes before the
/// drop point. The first point is before the first poll. The other points are after each poll of the future, each poll
/// of a task, and each clock step. The future is polled whenever it is woken.
///
/// `setup` prepares the scenario and returns the future. If the future is not dropped, it asserts its own result.
#[allow(clippy::needless_pass_by_value)] // Callers pass a closure.
pub(crate) fn drop_at_every_point<F: Future>(least: usize, setup: impl AsyncFn(&Scenario) -> F) {
    let fixture = Fixture::new();
    fixture.run(async |nodes| {
        let idle_tasks = idle_tasks(nodes).await;
        let started = Instant::now();
        let mut points = 0;
        loop {
            assert!(points <= MAX_POINTS, "the future does not complete");
            assert!(started.elapsed() < MAX_TIME, "{points} points took {MAX_TIME:?}");
            let _label = Label(points);
            let scenario = Scenario::new(nodes);
            let future = setup(&scenario).await;
            let is_dropped = run_to(&scenario, future, points).await;
            scenario.check_and_close(is_dropped, idle_tasks).await;
            if !is_dropped {
                break;
            }
            points += 1;
        }
        let name = thread::current().name().unwrap_or_default().to_owned();
        eprintln!("{name}: dropped at {points} points");
        assert!(points >= least, "only {points} points");
    });
}

/// Runs `future` up to drop point `last`, and drops the future there. Returns false if the future completes earlier.
async fn run_to(scenario: &Scenario, future: impl Future, last: usize) -> bool {
    let mut future = pin!(future);
    let (flag, mut steps) = (WakeFlag::woken(), Steps::default());
    for _ in 0..last {
        if flag.is_woken() {
            match flag.poll(future.as_mut()) {
                Poll::Ready(_) => return false,
                Poll::Pending => steps.handle_progress(),
            }
        } else {
            steps.next(&scenario.nodes, || flag.is_woken()).await;
        }
        if scenario.run_due_actions(steps.passed) {
            steps.handle_progress();
        }
    }
    true
}

struct Label(usize);

impl Drop for Label {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("dropped at point {}", self.0);
        }
    }
}
