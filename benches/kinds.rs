//! Compares the kinds of locks with a plain acquire: `cargo bench --bench kinds [-- part-of-a-row's-name]`.
//!
//! Each task has its own locks, so all of them are free. Both sides alternate every half second on the same five
//! servers, so they run under the same load. A cycle is an acquire and a release. The last lines show how well tasks
//! share the permits of a semaphore, and how long a writer waits for a lock that readers hold.

use kit::{Cluster, Rerun};
use quorlock::{Acquire, Redlock};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

const PAIRS: usize = 16;
const SLICE: Duration = Duration::from_millis(500);
const TASKS: [usize; 3] = [1, 64, 512];
const WAIT: Duration = Duration::from_secs(10);

#[derive(Clone, Copy)]
enum Kind {
    Plain,
    /// One of ten resources.
    Any,
    /// A permit of a semaphore with ten permits.
    Permit,
    Read,
    Write,
}

const KINDS: [(&str, Kind); 4] = [
    ("acquire_any", Kind::Any),
    ("semaphore", Kind::Permit),
    ("read", Kind::Read),
    ("write", Kind::Write),
];

impl Kind {
    /// Returns a function that starts an acquire of the task's lock.
    fn of_task(self, redlock: &Redlock, task: usize) -> Box<dyn Fn() -> Acquire + Send> {
        let (redlock, name) = (redlock.clone(), format!("key/{task}"));
        let good = "a valid name";
        match self {
            Self::Plain => Box::new(move || redlock.acquire(&name)),
            Self::Any => {
                let names: Vec<_> = (0..10).map(|number| format!("any/{task}/{number}")).collect();
                Box::new(move || redlock.acquire_any(&names))
            }
            Self::Permit => {
                let semaphore = redlock.semaphore(format!("semaphore/{task}"), 10).expect(good);
                Box::new(move || semaphore.acquire())
            }
            Self::Read | Self::Write => {
                let lock = redlock.rw_lock(&name).expect(good);
                let is_reader = matches!(self, Self::Read);
                Box::new(move || if is_reader { lock.read() } else { lock.write() })
            }
        }
    }
}

/// Returns the numbers of cycles and of failed ones in one slice.
async fn play(redlock: &Redlock, kind: Kind, tasks: usize) -> (usize, usize) {
    let end = Instant::now() + SLICE;
    let each = (0..tasks).map(|task| {
        let acquire = kind.of_task(redlock, task);
        tokio::spawn(async move {
            let (mut cycles, mut failed) = (0, 0);
            while Instant::now() < end {
                let is_done = match acquire().wait(WAIT).await {
                    Ok(lease) => lease.release().await.is_ok(),
                    Err(_) => false,
                };
                if is_done { cycles += 1 } else { failed += 1 }
            }
            (cycles, failed)
        })
    });
    let each = futures::future::try_join_all(each).await.expect("no task panics");
    each.into_iter().fold((0, 0), |sum, task| (sum.0 + task.0, sum.1 + task.1))
}

fn percentile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let place = (share * values.len().saturating_sub(1) as f64).round() as usize;
    values.get(place).copied().unwrap_or(f64::NAN)
}

#[allow(clippy::cast_precision_loss)] // Counts are below 2^53.
fn run(name: &str, kind: Kind, tasks: usize, runtime: &Runtime) {
    let cluster = Cluster::start(5);
    let redlock = Redlock::builder().nodes(cluster.urls()).build().expect("valid settings");
    let (mut plain, mut other, mut ratios, mut failures) = (vec![], vec![], vec![], [0, 0]);
    for pair in 0..=PAIRS {
        let [base, rival] =
            [Kind::Plain, kind].map(|kind| runtime.block_on(play(&redlock, kind, tasks)));
        // The first pair is a warm-up.
        if pair > 0 {
            plain.push(base.0 as f64 / SLICE.as_secs_f64());
            other.push(rival.0 as f64 / SLICE.as_secs_f64());
            ratios.push(rival.0 as f64 / base.0.max(1) as f64);
            failures = [failures[0] + base.1, failures[1] + rival.1];
        }
    }
    println!(
        "| {name}, {tasks} tasks | {:.0} | {:.0} | {:.2}x ({:.2} to {:.2}) | {} / {} |",
        percentile(&mut plain, 0.5),
        percentile(&mut other, 0.5),
        percentile(&mut ratios, 0.5),
        percentile(&mut ratios, 0.0),
        percentile(&mut ratios, 1.0),
        failures[0],
        failures[1],
    );
}

/// Prints the waits of a writer for a lock that 50 readers of another client hold for 10 ms each, again and again.
async fn wait_for_readers(cluster: &Cluster) {
    const READERS: usize = 50;
    const HOLD: Duration = Duration::from_millis(10);
    let [reading, writing] = [(); 2].map(|()| {
        let redlock = Redlock::builder().nodes(cluster.urls()).build().expect("valid settings");
        redlock.rw_lock("shared").expect("a valid name")
    });
    let end = Instant::now() + SHARING;
    let readers = (0..READERS).map(|_| {
        let lock = reading.clone();
        tokio::spawn(async move {
            let mut reads = 0;
            while Instant::now() < end {
                if let Ok(lease) = lock.read().wait(WAIT).await {
                    tokio::time::sleep(HOLD).await;
                    reads += usize::from(lease.release().await.is_ok());
                }
            }
            reads
        })
    });
    let readers = futures::future::try_join_all(readers.collect::<Vec<_>>());
    let mut waits_ms = Vec::new();
    while Instant::now() < end {
        let begun = Instant::now();
        if let Ok(lease) = writing.write().wait(WAIT).await {
            waits_ms.push(begun.elapsed().as_secs_f64() * 1e3);
            drop(lease);
        }
        tokio::time::sleep(2 * HOLD).await;
    }
    let reads: usize = readers.await.expect("no task panics").iter().sum();
    let [half, most, all] = [0.5, 0.99, 1.0].map(|share| percentile(&mut waits_ms, share));
    println!(
        "\na writer among {READERS} readers of {HOLD:?}: {} waits, p50 {half:.1} ms, p99 {most:.1} ms, at most \
         {all:.1} ms; {reads} reads",
        waits_ms.len()
    );
}

const NODES: &str = "QUORLOCK_KINDS_NODES";
const PERMITS: usize = 10;
const PROCESSES: usize = 4;
const TASKS_PER_PROCESS: usize = 10;
const PERMIT_HOLD: Duration = Duration::from_millis(10);
const SHARING: Duration = Duration::from_secs(10);

/// Holds a permit again and again in each task of this process. Prints a line for each hold: the wait and the hold in ms.
async fn hold_permits(nodes: &str) {
    let redlock = Redlock::builder().nodes(nodes.split(',')).build().expect("valid settings");
    let semaphore = redlock.semaphore("shared", PERMITS).expect("a valid name");
    let end = Instant::now() + SHARING;
    let tasks = (0..TASKS_PER_PROCESS).map(|_| {
        let semaphore = semaphore.clone();
        tokio::spawn(async move {
            let mut holds = Vec::new();
            while Instant::now() < end {
                let asked = Instant::now();
                if let Ok(lease) = semaphore.acquire().wait(WAIT).await {
                    let granted = Instant::now();
                    tokio::time::sleep(PERMIT_HOLD).await;
                    holds.push((granted - asked, granted.elapsed()));
                    drop(lease);
                }
            }
            holds
        })
    });
    let each = futures::future::try_join_all(tasks.collect::<Vec<_>>()).await;
    for (wait, hold) in each.expect("no task panics").into_iter().flatten() {
        println!("{} {}", wait.as_secs_f64() * 1e3, hold.as_secs_f64() * 1e3);
    }
    let _ = redlock.close().await;
}

/// Prints how well four processes with ten tasks each use ten permits.
#[allow(clippy::cast_precision_loss)] // Counts are below 2^53.
fn share_permits(cluster: &Cluster) {
    let nodes = cluster.urls().join(",");
    let children = [(); PROCESSES].map(|()| Rerun::start(&[], &[(NODES, &nodes)]));
    let (mut waits_ms, mut holds_ms) = (Vec::new(), Vec::new());
    for child in &children {
        child.finish(10 * SHARING);
        for line in child.output().lines() {
            let (wait, hold) = line.split_once(' ').expect("a wait and a hold");
            waits_ms.push(wait.parse().expect("a number"));
            holds_ms.push(hold.parse::<f64>().expect("a number"));
        }
    }
    let turns = waits_ms.len() as f64;
    let available_ms = SHARING.as_secs_f64() * 1e3 * PERMITS as f64;
    let held_ms: f64 = holds_ms.iter().sum();
    let [half, most] = [0.5, 0.99].map(|share| percentile(&mut waits_ms, share));
    println!(
        "\n{PERMITS} permits, {PROCESSES} processes of {TASKS_PER_PROCESS} tasks, holds of {PERMIT_HOLD:?} (measured: \
         {:.1} ms): {turns} turns, wait p50 {half:.1} ms, p99 {most:.1} ms; permits in use {:.0} % of the time \
         ({:.0} % for holds of {PERMIT_HOLD:?})",
        held_ms / turns,
        held_ms / available_ms * 100.0,
        turns * PERMIT_HOLD.as_secs_f64() * 1e5 / available_ms,
    );
}

fn main() {
    let part = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let part = part.unwrap_or_default();
    let runtime = Runtime::new().expect("a runtime");
    if let Ok(nodes) = std::env::var(NODES) {
        return runtime.block_on(hold_permits(&nodes));
    }
    println!("| case | plain cycles/s | cycles/s | rate | failed |\n|---|---|---|---|---|");
    for (name, kind) in KINDS.into_iter().filter(|(name, _)| name.contains(&part)) {
        for tasks in TASKS {
            run(name, kind, tasks, &runtime);
        }
    }
    if "shared semaphore".contains(&part) {
        share_permits(&Cluster::start(5));
    }
    if "writer among readers".contains(&part) {
        runtime.block_on(wait_for_readers(&Cluster::start(5)));
    }
}
