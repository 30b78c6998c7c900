//! Drops futures wherever they can be dropped.

use crate::scene::{Scene, idle_tasks};
use crate::stage::{Bell, Stage, eventually, tick};
use std::pin::pin;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

/// No future of these tests waits more often than that.
const MOST_POINTS: usize = 200;

/// Nor longer than that for one thing, in [ticks](tick).
const MOST_TICKS: usize = 200;

/// How long, in real time, one of these tests may take: some take a second.
const MOST_TIME: Duration = Duration::from_mins(2);

/// Where a future is dropped: when it has waited so many times and the rest of the world has gone on
/// for so many ticks since.
#[derive(Clone, Copy, Debug)]
struct Cut {
    points: usize,
    ticks: usize,
}

/// How far it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It was ready before.
    Ready,
    /// It would have been polled next.
    Woken,
    /// It would have gone on waiting.
    Waiting,
}

/// Makes a scene and a future in it, again and again, and drops the future at every await point:
/// not yet polled, then as soon as it waits for the first time, at each step of what the nodes and
/// the timers do then, when it is woken, and so on with each further time that it waits, until it
/// is ready first. There must be so many await points at `least`. Whatever the cut, nothing stays.
///
/// `setup` makes the scene, and returns the future with what it must come to if it is not dropped.
#[allow(clippy::needless_pass_by_value)] // A closure that is written where this is called.
pub(crate) fn dropped_everywhere<F: Future>(least: usize, setup: impl AsyncFn(&Scene) -> F) {
    let stage = Stage::new();
    stage.run(async |nodes| {
        let idle_tasks = idle_tasks(nodes).await;
        let (mut points, mut ticks, mut cuts) = (0, 0, 0);
        let begun = Instant::now();
        loop {
            assert!(points <= MOST_POINTS && ticks <= MOST_TICKS, "it waits on and on");
            assert!(begun.elapsed() < MOST_TIME, "{cuts} places took {MOST_TIME:?}");
            let cut = Cut { points, ticks };
            let _label = Label(cut);
            let scene = Scene::new(nodes);
            let future = setup(&scene).await;
            let end = play(&scene, future, cut).await;
            scene.end(end != End::Ready, idle_tasks).await;
            match end {
                End::Ready => break,
                End::Woken => (points, ticks) = (points + 1, 0),
                End::Waiting => ticks += 1,
            }
            cuts += 1;
        }
        let points = points - 1;
        let name = thread::current().name().unwrap_or_default().to_owned();
        eprintln!("{name}: {points} await points, dropped in {cuts} places");
        assert!(points >= least, "only {points} await points");
    });
}

/// Runs `future` up to `cut`, and drops it there.
async fn play(scene: &Scene, future: impl Future, cut: Cut) -> End {
    let mut future = pin!(future);
    let bell = Bell::rung();
    for points in 1..=cut.points {
        eventually(&scene.nodes, || (!bell.has_rung()).then(|| "it is not woken".into())).await;
        match bell.poll(future.as_mut()) {
            Poll::Ready(_) => return End::Ready,
            Poll::Pending => scene.handle_point(points),
        }
    }
    for quiet in 0..cut.ticks {
        if bell.has_rung() {
            return End::Woken;
        }
        tick(&scene.nodes, quiet).await;
    }
    if bell.has_rung() { End::Woken } else { End::Waiting }
}

/// Says where it was dropped when something went wrong.
struct Label(Cut);

impl Drop for Label {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("this was {:?}", self.0);
        }
    }
}
