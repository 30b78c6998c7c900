//! Measures the cost of many held leases, and of losses, hand-overs and waits: `cargo bench --bench leases [--
//! part-of-a-row's-name] [seconds]`. The seconds are the duration of the rows without a fixed duration.
//!
//! The benchmark exits with an error if a lease is lost without a cause, a loss is reported late, renewals use half a
//! core, or waiters send too many commands. Results that depend on the machine's load are only printed.

#[path = "../tests/it/processes/work.rs"]
mod work;

use futures::future::try_join_all;
use kit::{Cluster, Server};
use quorlock::{Lease, Redlock};
use rustix::time::{ClockId, clock_gettime};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use work::{Scenario, percentile};

const LEASES: usize = 10_000;
const EARLY_LEASES: usize = 1_000;
/// The number of concurrent acquires. The limit keeps a burst of acquires from dominating the measured memory usage.
const BATCH: usize = 500;
const MAX_CORES: f64 = 0.5;

/// The maximum number of probes per second for a lock with waiters. Normally, only the head of the queue sends one. If
/// the machine delays the head, the next waiter sends another.
const MAX_PROBES: f64 = 2.0;

const STOPS: u32 = 10;
const LEASES_PER_STOP: usize = 10;
const WORKERS: usize = 4;
/// The time between the client's report of a loss and the end of the validity, in milliseconds.
const LOSS_LEAD_MS: f64 = 2.0;

struct Verdict {
    text: String,
    is_good: bool,
    /// Whether a bad result makes the benchmark fail. False for results that depend on the machine's load.
    is_required: bool,
}

struct Row {
    name: &'static str,
    requirement: &'static str,
    seconds: u64,
    run: fn(&Runtime, Duration) -> Verdict,
}

fn rows() -> [Row; 6] {
    let row = |name, requirement, seconds, run| Row { name, requirement, seconds, run };
    [
        row("10,000 leases are renewed", "none lost, CPU < 0.5 cores", 60, hold_many),
        row("100 losses, 5 nodes stopped", "none late", 0, report_losses),
        row("hand-over between two processes", "p50 < 2 ms", 0, hand_over),
        row("100 tasks in 4 processes", "p99 <= 3 fair competes", 30, compete),
        row(
            "10,000 wait for a lock each",
            "<= 2 probes/s, per lock and node",
            30,
            wait_for_many_locks,
        ),
        row("10,000 wait for one lock", "<= 2 probes/s and node", 30, wait_for_one_lock),
    ]
}

fn hold_many(runtime: &Runtime, lasting: Duration) -> Verdict {
    let cluster = Cluster::start(5);
    // Leases are renewed in large batches, for which a busy machine needs more than 50 ms.
    let builder = Redlock::builder().nodes(cluster.urls()).ttl(Duration::from_secs(10));
    let redlock = builder.node_timeout(Duration::from_millis(500)).build();
    let redlock = redlock.expect("valid settings");
    // The cost per lease excludes connections, buffers and threads, which exist after the first leases have been
    // renewed.
    let mut leases = runtime.block_on(acquire(&redlock, "early", EARLY_LEASES));
    std::thread::sleep(Duration::from_secs(5));
    let before = resident_bytes();
    leases.extend(runtime.block_on(acquire(&redlock, "lease", LEASES - EARLY_LEASES)));
    let (sent, cpu, started) = (lock_commands(&cluster), process_cpu(), Instant::now());
    std::thread::sleep(lasting);
    let lasted = started.elapsed();
    let cores = process_cpu().saturating_sub(cpu).div_duration_f64(lasted);
    let bytes = resident_bytes().saturating_sub(before) / (LEASES - EARLY_LEASES);
    let sent = (lock_commands(&cluster) - sent) / cluster.len() as u64 / lasted.as_secs().max(1);
    let lost = leases.iter().filter(|lease| !lease.is_valid()).count();
    let kept = cluster.iter().map(|node| node.keys().len()).min().unwrap_or(0);
    Verdict {
        text: format!(
            "{lost} lost in {lasting:?}, {kept} keys on every node; {cores:.3} cores, {bytes} bytes per \
             lease, {sent} commands/s and node"
        ),
        is_good: lost == 0 && cores < MAX_CORES,
        is_required: true,
    }
}

async fn acquire(redlock: &Redlock, name: &str, many: usize) -> Vec<Lease> {
    let mut leases = Vec::with_capacity(many);
    while leases.len() < many {
        let numbers = leases.len()..many.min(leases.len() + BATCH);
        let acquire = |i| redlock.acquire(format!("{name}/{i}")).wait(Duration::from_secs(60));
        let batch = numbers.map(|i| acquire(i).auto_extend(Duration::from_secs(60 * 60)));
        leases.extend(try_join_all(batch).await.expect("the locks are free"));
    }
    leases
}

/// Measures how early losses are reported while all nodes are stopped and all worker threads except one are blocked.
///
/// To show how much the machine delays threads at that moment, a plain thread per lease wakes a task when the loss
/// should be reported. Losses count only if all these tasks were woken at least `LOSS_LEAD_MS / 2` before the end of
/// the validity.
fn report_losses(_: &Runtime, _: Duration) -> Verdict {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(WORKERS).enable_all().build().expect("a runtime");
    let cluster = Cluster::start(5);
    let builder = Redlock::builder().nodes(cluster.urls()).ttl(Duration::from_secs(2));
    let redlock = builder.node_timeout(Duration::from_millis(200)).build();
    let redlock = redlock.expect("valid settings");
    let (mut losses, mut threads) = (Vec::new(), Vec::new());
    let (mut count, mut late) = (0, 0);
    for stop in 0..STOPS {
        let leases = runtime.block_on(acquire(&redlock, &format!("stop/{stop}"), LEASES_PER_STOP));
        // Each iteration stops the nodes at a different time between two renewals.
        std::thread::sleep(Duration::from_secs(1) + Duration::from_millis(67) * stop);
        cluster.servers().iter().for_each(Server::stop);
        // Extensions that were already sent may still count. After this pause, no extension can count.
        std::thread::sleep(Duration::from_millis(300));
        let blockers = block_workers(&runtime);
        let woken: Vec<_> =
            leases.iter().map(|lease| wake(&runtime, lease.valid_until())).collect();
        let lost = leases.into_iter().map(|lease| {
            runtime.spawn(async move {
                let valid_until = lease.valid_until();
                lease.lost().await;
                left(valid_until)
            })
        });
        let lost: Vec<_> = lost.collect();
        let both = futures::future::try_join(try_join_all(lost), try_join_all(woken));
        let (lost, woken) = runtime.block_on(both).expect("no task panics");
        if woken.iter().all(|left| *left >= LOSS_LEAD_MS / 2.0) {
            count += lost.len();
            late += lost.iter().filter(|left| **left < 0.0).count();
        }
        losses.extend(lost);
        threads.extend(woken);
        cluster.servers().iter().for_each(Server::cont);
        runtime.block_on(try_join_all(blockers)).expect("no task panics");
    }
    Verdict {
        text: format!(
            "{late} of {count} losses late while threads were in time; reported before the end: {}; threads: {}",
            spread(&mut losses),
            spread(&mut threads),
        ),
        is_good: late == 0 && count > 0,
        is_required: true,
    }
}

fn spread(ms: &mut [f64]) -> String {
    ms.sort_unstable_by(f64::total_cmp);
    let at = |share: usize| ms[(ms.len() - 1) * share / 100];
    format!("{:.2} / {:.2} / {:.2} / {:.2} ms", at(0), at(5), at(50), at(100))
}

/// Spawns a task that a plain thread wakes when the client should report a loss before `end`. The task returns the
/// milliseconds that are left until `end`.
fn wake(runtime: &Runtime, end: Instant) -> JoinHandle<f64> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let at = end
            .checked_sub(Duration::from_secs_f64(LOSS_LEAD_MS / 1e3))
            .expect("later than the boot");
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        sender.send(())
    });
    runtime.spawn(async move {
        receiver.await.expect("the thread sends");
        left(end)
    })
}

/// Returns the milliseconds until `end`, or a negative number after `end`.
fn left(end: Instant) -> f64 {
    let now = Instant::now();
    let (left, over) = (end.saturating_duration_since(now), now.saturating_duration_since(end));
    (left.as_secs_f64() - over.as_secs_f64()) * 1e3
}

/// Blocks all worker threads except one for 2 s, which is longer than the leases remain valid. Returns when the threads
/// are blocked.
fn block_workers(runtime: &Runtime) -> Vec<JoinHandle<()>> {
    let blocked = Arc::new(AtomicUsize::new(0));
    let block = |_| {
        let blocked = blocked.clone();
        runtime.spawn(async move {
            blocked.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_secs(2));
        })
    };
    let blockers = (1..WORKERS).map(block).collect();
    while blocked.load(Ordering::Relaxed) < WORKERS - 1 {
        std::thread::sleep(Duration::from_millis(1));
    }
    blockers
}

/// Measures how long a hand-over to a waiter in another process takes. Only a notification from the nodes can wake the
/// waiter.
fn hand_over(runtime: &Runtime, _: Duration) -> Verdict {
    let took = runtime.block_on(Scenario::new(&[]).hand_over(300));
    let (half, most) = (percentile(&took, 50), percentile(&took, 95));
    let (worst, last) = (percentile(&took, 99), percentile(&took, 100));
    Verdict {
        text: format!("p50 {half:.2?}, p95 {most:.2?}, p99 {worst:.2?}, max {last:.2?}"),
        is_good: half < Duration::from_millis(2),
        is_required: false,
    }
}

fn compete(_: &Runtime, lasting: Duration) -> Verdict {
    let measured = Scenario::new(&[]).run_four_processes(100, lasting);
    let (waits, fair) = (measured.waits(), measured.fair_share());
    let shares = |percent| percentile(&waits, percent).div_duration_f64(fair);
    let (half, late, last) = (shares(50), shares(99), shares(100));
    let (turns, commands) = (measured.turns_by_process(), measured.commands_per_turn);
    Verdict {
        text: format!(
            "p50 {half:.2}, p99 {late:.2}, max {last:.2} fair shares of {fair:.2?}; turns of each \
             process: {turns:?}; {commands:.1} commands per turn and node"
        ),
        is_good: late <= 3.0,
        is_required: false,
    }
}

fn wait_for_many_locks(runtime: &Runtime, lasting: Duration) -> Verdict {
    wait(runtime, lasting, LEASES)
}

fn wait_for_one_lock(runtime: &Runtime, lasting: Duration) -> Verdict {
    wait(runtime, lasting, 1)
}

/// Measures the cost of [`LEASES`] tasks that wait for `count` locks. Another client holds the locks until the end.
fn wait(runtime: &Runtime, lasting: Duration, count: usize) -> Verdict {
    let cluster = Cluster::start(5);
    let hour = Duration::from_secs(60 * 60);
    let client = || {
        let builder = Redlock::builder().nodes(cluster.urls()).max_ttl(hour).ttl(hour);
        builder.node_timeout(Duration::from_millis(500)).build().expect("valid settings")
    };
    let (holder, waiter) = (client(), client());
    let lock = |i| holder.acquire(format!("lock/{i}")).wait(Duration::from_secs(60)).into_future();
    let mut held = Vec::with_capacity(count);
    while held.len() < count {
        let batch = (held.len()..count.min(held.len() + BATCH)).map(lock);
        held.extend(runtime.block_on(try_join_all(batch)).expect("the locks are free"));
    }
    let before = resident_bytes();
    let waiting: Vec<_> = (0..LEASES)
        .map(|i| {
            runtime.spawn(waiter.acquire(format!("lock/{}", i % count)).wait(hour).into_future())
        })
        .collect();
    // After this pause, the first attempts have ended and pushes are armed.
    std::thread::sleep(Duration::from_secs(15));
    let bytes = resident_bytes().saturating_sub(before) / LEASES;
    let (sent, cpu, started) = (probes(&cluster), process_cpu(), Instant::now());
    std::thread::sleep(lasting);
    let lasted = started.elapsed();
    let cores = process_cpu().saturating_sub(cpu).div_duration_f64(lasted);
    let probes = u32::try_from((probes(&cluster) - sent) / cluster.len() as u64);
    let rate = f64::from(probes.unwrap_or(u32::MAX)) / lasted.as_secs_f64();
    let limit = f64::from(u32::try_from(count).unwrap_or(u32::MAX)) * MAX_PROBES;
    let is_over = waiting.iter().any(JoinHandle::is_finished);
    waiting.iter().for_each(JoinHandle::abort);
    Verdict {
        text: format!("{rate:.1} probes/s and node, {cores:.3} cores, {bytes} bytes per waiter"),
        is_good: !is_over && rate <= limit,
        is_required: true,
    }
}

/// Returns the total number of probes. Each attempt of a waiter and each separate probe sends one `PTTL`.
fn probes(cluster: &Cluster) -> u64 {
    cluster.iter().map(|node| node.calls("pttl")).sum()
}

/// Returns the total number of commands that set, extend or release locks.
fn lock_commands(cluster: &Cluster) -> u64 {
    let calls =
        |node: &Server| ["set", "evalsha", "eval"].map(|name| node.calls(name)).iter().sum::<u64>();
    cluster.iter().map(calls).sum()
}

/// Returns the user and system time of this process. The nodes are separate processes.
fn process_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).expect("CPU time is never negative")
}

/// Returns the resident memory of this process in bytes, or 0 if the system does not report it.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    kib.unwrap_or(0) * 1024
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    if runtime.block_on(work::work()) {
        return ExitCode::SUCCESS;
    }
    let args = || std::env::args().skip(1).filter(|arg| !arg.starts_with("--"));
    let seconds = args().find_map(|arg| arg.parse::<u64>().ok());
    let only = args().find(|arg| arg.parse::<u64>().is_err()).unwrap_or_default();
    println!("five nodes");
    println!("| case | measured | required | ok |");
    println!("|---|---|---|---|");
    let mut code = ExitCode::SUCCESS;
    for row in rows().iter().filter(|row| row.name.contains(&only)) {
        let lasting = Duration::from_secs(seconds.unwrap_or(row.seconds));
        let verdict = (row.run)(&runtime, lasting);
        let is_good = if verdict.is_good { "yes" } else { "NO" };
        println!("| {} | {} | {} | {is_good} |", row.name, verdict.text, row.requirement);
        if verdict.is_required && !verdict.is_good {
            code = ExitCode::FAILURE;
        }
    }
    code
}
