//! What acquire and release take on five real servers, healthy and not, in percentiles:
//! `cargo bench --bench cluster [-- part-of-a-row's-name]`.
//!
//! The last columns are what must hold with a node that hangs: every operation ends within the node
//! timeout + 20 ms at the 99th percentile, none fails, and once the node goes on, no key is left.

use kit::Cluster;
use quorlock::Redlock;
use std::time::{Duration, Instant};

const NODE_TIMEOUT: Duration = Duration::from_millis(50);
const BOUND: Duration = Duration::from_millis(70);

/// What is done to the fifth node.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    Killed,
    Hung,
}

struct Row {
    name: &'static str,
    fault: Fault,
    tasks: usize,
    ttl: Duration,
    /// True if the client has used all nodes before the fault.
    warm: bool,
}

/// What one task saw.
#[derive(Default)]
struct Seen {
    acquires: Vec<Duration>,
    releases: Vec<Duration>,
    failures: usize,
}

fn rows() -> Vec<Row> {
    let (short, long) = (Duration::from_millis(300), Duration::from_secs(10));
    let row = |name, fault, tasks, ttl, warm| Row { name, fault, tasks, ttl, warm };
    vec![
        row("healthy, 1 task", Fault::None, 1, long, true),
        row("healthy, 64 tasks", Fault::None, 64, long, true),
        row("healthy, 512 tasks", Fault::None, 512, long, true),
        row("one killed, 64 tasks, warm", Fault::Killed, 64, long, true),
        row("one killed, 64 tasks, new", Fault::Killed, 64, long, false),
        row("one hung, 64 tasks, warm, ttl 10 s", Fault::Hung, 64, long, true),
        row("one hung, 64 tasks, new, ttl 10 s", Fault::Hung, 64, long, false),
        row("one hung, 64 tasks, warm, ttl 300 ms", Fault::Hung, 64, short, true),
        row("one hung, 64 tasks, new, ttl 300 ms", Fault::Hung, 64, short, false),
    ]
}

async fn task(redlock: Redlock, key: String, end: Instant) -> Seen {
    let mut seen = Seen::default();
    while Instant::now() < end {
        let begun = Instant::now();
        let acquired = redlock.try_acquire(&key).await;
        seen.acquires.push(begun.elapsed());
        let Ok(lease) = acquired else {
            seen.failures += 1;
            continue;
        };
        let begun = Instant::now();
        let released = lease.release().await;
        seen.releases.push(begun.elapsed());
        seen.failures += usize::from(released.is_err());
    }
    seen
}

/// Runs the tasks of a row for so long; returns what they saw, and how many keys are left.
async fn run(row: &Row, lasting: Duration) -> (Seen, usize) {
    let cluster = Cluster::start(5);
    let builder = Redlock::builder().nodes(cluster.urls()).node_timeout(NODE_TIMEOUT).ttl(row.ttl);
    let redlock = builder.build().expect("these settings can work");
    if row.warm {
        for _ in 0..50 {
            if let Ok(lease) = redlock.try_acquire("warm").await {
                let _ = lease.release().await;
            }
        }
    }
    match row.fault {
        Fault::None => {}
        Fault::Killed => cluster[4].kill(),
        Fault::Hung => cluster[4].stop(),
    }
    let end = Instant::now() + lasting;
    let tasks =
        (0..row.tasks).map(|i| tokio::spawn(task(redlock.clone(), format!("key/{i}"), end)));
    let mut all = Seen::default();
    for task in tasks.collect::<Vec<_>>() {
        let seen = task.await.expect("no task panics");
        all.acquires.extend(seen.acquires);
        all.releases.extend(seen.releases);
        all.failures += seen.failures;
    }
    cluster[4].is_stopped().then(|| cluster[4].cont());
    let settled = Instant::now() + Duration::from_secs(5);
    while !cluster.is_empty() && Instant::now() < settled {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    (all, cluster.keys_per_node().concat().len())
}

fn ms(duration: Duration) -> String {
    format!("{:.2}", duration.as_secs_f64() * 1e3)
}

/// p50, p99 and the maximum, in milliseconds.
fn percentiles(mut durations: Vec<Duration>) -> ([String; 3], Duration) {
    durations.sort_unstable();
    let last = durations.len().saturating_sub(1);
    let at = |share: usize| durations.get(last * share / 100).copied().unwrap_or_default();
    ([ms(at(50)), ms(at(99)), ms(at(100))], at(99))
}

fn main() {
    let only = std::env::args().skip(1).find(|arg| !arg.starts_with("--")).unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    println!("five nodes, node timeout {NODE_TIMEOUT:?}; milliseconds as p50 / p99 / max");
    println!("| case | cycles/s | acquire | release | failed | p99 <= 70 ms | keys left |");
    println!("|---|---|---|---|---|---|---|");
    let lasting = Duration::from_secs(3);
    for row in rows().iter().filter(|row| row.name.contains(&only)) {
        let (seen, left) = runtime.block_on(run(row, lasting));
        #[allow(clippy::cast_precision_loss)] // far below 2^52
        let rate = seen.releases.len() as f64 / lasting.as_secs_f64();
        let (acquire, slow_acquire) = percentiles(seen.acquires);
        let (release, slow_release) = percentiles(seen.releases);
        let is_bounded = slow_acquire <= BOUND && slow_release <= BOUND;
        println!(
            "| {} | {rate:.0} | {} | {} | {} | {} | {left} |",
            row.name,
            acquire.join(" / "),
            release.join(" / "),
            seen.failures,
            if is_bounded { "yes" } else { "NO" },
        );
    }
}
