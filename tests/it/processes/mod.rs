//! Several processes that want the same lock.

mod drawing;
mod late;
mod skewed;
mod thawed;
mod work;

use crate::ms;
use work::{Scene, percentile};

/// How this program is told to be a child.
const CHILD: &[&str] = &["--ignored", "--exact", "processes::worker", "--nocapture"];

/// In fair shares. It is about 2 on a machine that has time; the benchmarks tell.
const LONGEST_WAIT: f64 = 6.0;

#[tokio::test]
#[ignore = "runs as a child process of the tests below"]
async fn worker() {
    work::work().await;
}

#[test]
fn a_hundred_tasks_in_four_processes_take_turns_at_a_cost_that_does_not_grow_with_them() {
    let few = Scene::new(CHILD).crowd(20, ms(3_000));
    let many = Scene::new(CHILD).crowd(100, ms(12_000));
    let costs = [few.orders_per_turn, many.orders_per_turn];
    println!("commands per turn and node: {costs:.1?}");
    assert!(costs.iter().all(|cost| *cost <= 40.0), "commands per turn and node: {costs:?}");
    assert!(costs[1] <= 2.0 * costs[0], "the cost grows with the tasks: {costs:?}");
    let (waits, fair) = (many.waits(), many.fair_share());
    let late = percentile(&waits, 99);
    let unfairness = late.div_duration_f64(fair);
    println!("fair share {fair:?}, p99 {late:?}: {unfairness:.2}");
    assert!(unfairness <= LONGEST_WAIT, "p99 {late:?} is {unfairness:.2} fair shares ({fair:?})");
}

/// Without an order among the processes, one of two got 2 to 5 % of the turns: it rested while the other one passed the
/// lock on in its own queue.
#[test]
fn processes_that_queue_for_one_lock_get_similar_numbers_of_turns() {
    for (processes, hold) in [(2, 20), (2, 2), (4, 10)] {
        let crowd = Scene::new(CHILD).crowd_of(processes, 10 * processes, ms(hold), ms(4_000));
        let turns = crowd.turns_by_process();
        println!("{processes} processes, {hold} ms: {turns:?}");
        assert!(
            3 * turns[0] >= turns[processes - 1],
            "{processes} processes, {hold} ms: {turns:?}"
        );
    }
}

#[tokio::test]
async fn a_release_wakes_a_waiter_in_another_process() {
    let took = Scene::new(CHILD).hand_over(60).await;
    let (half, most) = (percentile(&took, 50), percentile(&took, 95));
    println!("hand-over between processes: p50 {half:?}, p95 {most:?}");
    assert!(half < ms(200), "{took:?}");
}
