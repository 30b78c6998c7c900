//! Measures the latency of acquires and releases on five real servers, with and without a fault: `cargo bench --bench
//! cluster [-- part-of-a-row's-name]`.
//!
//! The last columns show the requirements for rows with an unresponsive node. The 99th percentile of every operation is
//! at most the node timeout plus 20 ms, no operation fails, and no key is left after the node resumes.

use kit::Cluster;
use quorlock::Redlock;
use std::time::{Duration, Instant};

const NODE_TIMEOUT: Duration = Duration::from_millis(50);
const BOUND: Duration = Duration::from_millis(70);

/// The fault of the fifth node. The other nodes have none.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    Killed,
    Stopped,
}

struct Row {
    name: &'static str,
    fault: Fault,
    tasks: usize,
    ttl: Duration,
    /// Whether the client uses all nodes before the fault occurs.
    warm: bool,
}

#[derive(Default)]
struct Measured {
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
        row("one stopped, 64 tasks, warm, ttl 10 s", Fault::Stopped, 64, long, true),
        row("one stopped, 64 tasks, new, ttl 10 s", Fault::Stopped, 64, long, false),
        row("one stopped, 64 tasks, warm, ttl 300 ms", Fault::Stopped, 64, short, true),
        row("one stopped, 64 tasks, new, ttl 300 ms", Fault::Stopped, 64, short, false),
    ]
}

async fn task(redlock: Redlock, key: String, end: Instant) -> Measured {
    let mut measured = Measured::default();
    while Instant::now() < end {
        let started = Instant::now();
        let acquired = redlock.try_acquire(&key).await;
        measured.acquires.push(started.elapsed());
        let Ok(lease) = acquired else {
            measured.failures += 1;
            continue;
        };
        let started = Instant::now();
        let released = lease.release().await;
        measured.releases.push(started.elapsed());
        measured.failures += usize::from(released.is_err());
    }
    measured
}

/// Returns the measurements and the number of keys that are left on the nodes.
async fn run(row: &Row, lasting: Duration) -> (Measured, usize) {
    let cluster = Cluster::start(5);
    let builder = Redlock::builder().nodes(cluster.urls()).node_timeout(NODE_TIMEOUT).ttl(row.ttl);
    let redlock = builder.build().expect("valid settings");
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
        Fault::Stopped => cluster[4].stop(),
    }
    let end = Instant::now() + lasting;
    let tasks =
        (0..row.tasks).map(|i| tokio::spawn(task(redlock.clone(), format!("key/{i}"), end)));
    let mut all = Measured::default();
    for task in tasks.collect::<Vec<_>>() {
        let measured = task.await.expect("no task panics");
        all.acquires.extend(measured.acquires);
        all.releases.extend(measured.releases);
        all.failures += measured.failures;
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

/// Returns p50, p99 and the maximum in milliseconds, and p99 as a duration.
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
        let (measured, left) = runtime.block_on(run(row, lasting));
        #[allow(clippy::cast_precision_loss)] // The count is far below 2^52.
        let rate = measured.releases.len() as f64 / lasting.as_secs_f64();
        let (acquire, slow_acquire) = percentiles(measured.acquires);
        let (release, slow_release) = percentiles(measured.releases);
        let is_bounded = slow_acquire <= BOUND && slow_release <= BOUND;
        println!(
            "| {} | {rate:.0} | {} | {} | {} | {} | {left} |",
            row.name,
            acquire.join(" / "),
            release.join(" / "),
            measured.failures,
            if is_bounded { "yes" } else { "NO" },
        );
    }
}
