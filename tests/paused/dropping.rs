//! Drops futures at every moment.

use crate::scene::{Scene, idle_tasks};
use crate::stage::{Bell, Stage, Steps};
use std::pin::pin;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

/// Maximum number of moments of one future.
const MOST_MOMENTS: usize = 1_000;

/// How long, in real time, one of these tests may take: some take a second.
const MOST_TIME: Duration = Duration::from_mins(2);

/// Makes a scene and a future in it, again and again, and drops the future one moment later each time: before its first
/// poll, then after each poll of the future, each poll of a task, and each step of time, until the future is ready first.
/// The future is polled whenever it is woken. Checks that the future leaves no key and no pending work at any moment, and
/// that there are at `least` this many moments.
///
/// `setup` makes the scene, and returns the future with what it must come to if it is not dropped.
#[allow(clippy::needless_pass_by_value)] // A closure that is written where this is called.
pub(crate) fn dropped_everywhere<F: Future>(least: usize, setup: impl AsyncFn(&Scene) -> F) {
    let stage = Stage::new();
    stage.run(async |nodes| {
        let idle_tasks = idle_tasks(nodes).await;
        let begun = Instant::now();
        let mut moments = 0;
        loop {
            assert!(moments <= MOST_MOMENTS, "it waits on and on");
            assert!(begun.elapsed() < MOST_TIME, "{moments} moments took {MOST_TIME:?}");
            let _label = Label(moments);
            let scene = Scene::new(nodes);
            let future = setup(&scene).await;
            let is_dropped = play(&scene, future, moments).await;
            scene.end(is_dropped, idle_tasks).await;
            if !is_dropped {
                break;
            }
            moments += 1;
        }
        let name = thread::current().name().unwrap_or_default().to_owned();
        eprintln!("{name}: dropped at {moments} moments");
        assert!(moments >= least, "only {moments} moments");
    });
}

/// Runs `future` up to the moment with the number `last`, and drops it. Returns false if it was ready before.
async fn play(scene: &Scene, future: impl Future, last: usize) -> bool {
    let mut future = pin!(future);
    let (bell, mut steps) = (Bell::rung(), Steps::default());
    for _ in 0..last {
        if bell.has_rung() {
            match bell.poll(future.as_mut()) {
                Poll::Ready(_) => return false,
                Poll::Pending => steps.handle_progress(),
            }
        } else {
            steps.next(&scene.nodes, || bell.has_rung()).await;
        }
        if scene.play_cues(steps.passed) {
            steps.handle_progress();
        }
    }
    true
}

/// Says where it was dropped when something went wrong.
struct Label(usize);

impl Drop for Label {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("it was dropped at moment {}", self.0);
        }
    }
}
