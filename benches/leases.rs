//! What it takes to keep many leases, to lose some, to pass them on, and to wait for them:
//! `cargo bench --bench leases [-- part-of-a-row's-name] [seconds]`, where the seconds are those of the
//! rows that last as long as one likes.
//!
//! Ends with an error if a lease is lost that must not be, or a loss is told late, or keeping them
//! takes half a core, or those who wait ask more often than they may. What depends on who else uses the machine is only printed.

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
use work::{Scene, percentile};

const LEASES: usize = 10_000;
const EARLY_LEASES: usize = 1_000;
/// So many are acquired at once, so that no burst of them is what memory is needed for.
const BATCH: usize = 500;
const MOST_CORES: f64 = 0.5;

/// How often those who wait for a lock look by themselves, in a second: the first of them once, and the next as well
/// where that one is held up by other work of the machine.
const MOST_LOOKS: f64 = 2.0;

const HANGS: u32 = 10;
const LEASES_PER_HANG: usize = 10;
const WORKERS: usize = 4;
/// So much before the validity ends a loss is told.
const EARLY_MS: f64 = 2.0;

/// What a row saw, and whether that is what must be.
struct Verdict {
    seen: String,
    is_good: bool,
    /// False where the machine's other work decides it too.
    is_promised: bool,
}

struct Row {
    name: &'static str,
    must: &'static str,
    seconds: u64,
    run: fn(&Runtime, Duration) -> Verdict,
}

fn rows() -> [Row; 6] {
    let row = |name, must, seconds, run| Row { name, must, seconds, run };
    [
        row("10,000 leases are kept", "none lost, CPU < 0.5 cores", 60, keep_many),
        row("100 losses are told, 5 nodes hung", "none late", 0, tell_losses),
        row("hand-over between two processes", "p50 < 2 ms", 0, hand_over),
        row("100 tasks in 4 processes", "p99 <= 3 fair shares", 30, share),
        row("10,000 wait for a lock each", "<= 2 looks/s, lock and node", 30, wait_for_many),
        row("10,000 wait for one lock", "<= 2 looks/s and node", 30, wait_for_one),
    ]
}

/// One client extends them all in the background.
fn keep_many(runtime: &Runtime, lasting: Duration) -> Verdict {
    let cluster = Cluster::start(5);
    // They are extended in large batches, which a busy machine does not get done within 50 ms.
    let builder = Redlock::builder().nodes(cluster.urls()).ttl(Duration::from_secs(10));
    let redlock = builder.node_timeout(Duration::from_millis(500)).build();
    let redlock = redlock.expect("these settings can work");
    // Connections, buffers and threads are not what a lease costs: they are there with the first ones,
    // once these have been extended.
    let mut leases = runtime.block_on(acquire(&redlock, "early", EARLY_LEASES));
    std::thread::sleep(Duration::from_secs(5));
    let before = resident_bytes();
    leases.extend(runtime.block_on(acquire(&redlock, "lease", LEASES - EARLY_LEASES)));
    let (sent, cpu, begun) = (orders(&cluster), process_cpu(), Instant::now());
    std::thread::sleep(lasting);
    let lasted = begun.elapsed();
    let cores = process_cpu().saturating_sub(cpu).div_duration_f64(lasted);
    let bytes = resident_bytes().saturating_sub(before) / (LEASES - EARLY_LEASES);
    let sent = (orders(&cluster) - sent) / cluster.len() as u64 / lasted.as_secs().max(1);
    let lost = leases.iter().filter(|lease| !lease.is_valid()).count();
    let kept = cluster.iter().map(|node| node.keys().len()).min().unwrap_or(0);
    Verdict {
        seen: format!(
            "{lost} lost in {lasting:?}, {kept} keys on every node; {cores:.3} cores, {bytes} bytes a \
             lease, {sent} commands/s and node"
        ),
        is_good: lost == 0 && cores < MOST_CORES,
        is_promised: true,
    }
}

/// Leases that are extended in the background.
async fn acquire(redlock: &Redlock, name: &str, many: usize) -> Vec<Lease> {
    let mut leases = Vec::with_capacity(many);
    while leases.len() < many {
        let numbers = leases.len()..many.min(leases.len() + BATCH);
        let acquire = |i| redlock.acquire(format!("{name}/{i}")).wait(Duration::from_secs(60));
        let batch = numbers.map(|i| acquire(i).auto_extend(Duration::from_secs(60 * 60)));
        leases.extend(try_join_all(batch).await.expect("free locks"));
    }
    leases
}

/// All nodes hang, and tasks block all workers but one.
///
/// For each lease a bare thread wakes a task too, as early as a loss is told: that shows what the
/// machine allows at that moment. Losses count where all of those had half of that time left.
fn tell_losses(_: &Runtime, _: Duration) -> Verdict {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(WORKERS).enable_all().build().expect("a runtime");
    let cluster = Cluster::start(5);
    let builder = Redlock::builder().nodes(cluster.urls()).ttl(Duration::from_secs(2));
    let redlock = builder.node_timeout(Duration::from_millis(200)).build();
    let redlock = redlock.expect("these settings can work");
    let (mut told, mut bare) = (Vec::new(), Vec::new());
    let (mut count, mut late) = (0, 0);
    for hang in 0..HANGS {
        let leases = runtime.block_on(acquire(&redlock, &format!("hang/{hang}"), LEASES_PER_HANG));
        // In another part of the time between two extensions each time.
        std::thread::sleep(Duration::from_secs(1) + Duration::from_millis(67) * hang);
        cluster.servers().iter().for_each(Server::stop);
        // Extensions already under way may still count: wait until none can.
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
        if woken.iter().all(|left| *left >= EARLY_MS / 2.0) {
            count += lost.len();
            late += lost.iter().filter(|left| **left < 0.0).count();
        }
        told.extend(lost);
        bare.extend(woken);
        cluster.servers().iter().for_each(Server::cont);
        runtime.block_on(try_join_all(blockers)).expect("no task panics");
    }
    Verdict {
        seen: format!(
            "{late} of {count} late where bare threads were not; told before the end: {}; bare threads: {}",
            spread(&mut told),
            spread(&mut bare),
        ),
        is_good: late == 0 && count > 0,
        is_promised: true,
    }
}

/// The least, p5, p50 and the most of `ms`.
fn spread(ms: &mut [f64]) -> String {
    ms.sort_unstable_by(f64::total_cmp);
    let at = |share: usize| ms[(ms.len() - 1) * share / 100];
    format!("{:.2} / {:.2} / {:.2} / {:.2} ms", at(0), at(5), at(50), at(100))
}

/// A task that a thread wakes as long before `end` as a loss is told; returns what is left then.
fn wake(runtime: &Runtime, end: Instant) -> JoinHandle<f64> {
    let (bell, heard) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let at =
            end.checked_sub(Duration::from_secs_f64(EARLY_MS / 1e3)).expect("later than the boot");
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        bell.send(())
    });
    runtime.spawn(async move {
        heard.await.expect("it rings");
        left(end)
    })
}

/// How many milliseconds are left until `end`; negative if it is over.
fn left(end: Instant) -> f64 {
    let now = Instant::now();
    let (left, over) = (end.saturating_duration_since(now), now.saturating_duration_since(end));
    (left.as_secs_f64() - over.as_secs_f64()) * 1e3
}

/// Returns when all workers but one are blocked, for longer than a lease lives.
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

/// A lock is released here, and had there: by a waiter that only the nodes can wake.
fn hand_over(runtime: &Runtime, _: Duration) -> Verdict {
    let took = runtime.block_on(Scene::new(&[]).hand_over(300));
    let (half, most) = (percentile(&took, 50), percentile(&took, 95));
    let (worst, last) = (percentile(&took, 99), percentile(&took, 100));
    Verdict {
        seen: format!("p50 {half:.2?}, p95 {most:.2?}, p99 {worst:.2?}, max {last:.2?}"),
        is_good: half < Duration::from_millis(2),
        is_promised: false,
    }
}

/// One lock for all, 10 ms each.
fn share(_: &Runtime, lasting: Duration) -> Verdict {
    let crowd = Scene::new(&[]).crowd(100, lasting);
    let (waits, fair) = (crowd.waits(), crowd.fair_share());
    let shares = |percent| percentile(&waits, percent).div_duration_f64(fair);
    let (half, late, last) = (shares(50), shares(99), shares(100));
    let (turns, orders) = (crowd.turns_by_process(), crowd.orders_per_turn);
    Verdict {
        seen: format!(
            "p50 {half:.2}, p99 {late:.2}, max {last:.2} fair shares of {fair:.2?}; turns of each \
             process: {turns:?}; {orders:.1} commands a turn and node"
        ),
        is_good: late <= 3.0,
        is_promised: false,
    }
}

/// Each of many locks that another client holds is waited for.
fn wait_for_many(runtime: &Runtime, lasting: Duration) -> Verdict {
    wait(runtime, lasting, LEASES)
}

/// As many wait for the same.
fn wait_for_one(runtime: &Runtime, lasting: Duration) -> Verdict {
    wait(runtime, lasting, 1)
}

/// So many locks are held all the time, and [`LEASES`] tasks wait for them.
fn wait(runtime: &Runtime, lasting: Duration, count: usize) -> Verdict {
    let cluster = Cluster::start(5);
    let hour = Duration::from_secs(60 * 60);
    let client = || {
        let builder = Redlock::builder().nodes(cluster.urls()).max_ttl(hour).ttl(hour);
        builder.node_timeout(Duration::from_millis(500)).build().expect("these settings can work")
    };
    let (theirs, ours) = (client(), client());
    let lock = |i| theirs.acquire(format!("lock/{i}")).wait(Duration::from_secs(60)).into_future();
    let mut held = Vec::with_capacity(count);
    while held.len() < count {
        let batch = (held.len()..count.min(held.len() + BATCH)).map(lock);
        held.extend(runtime.block_on(try_join_all(batch)).expect("free locks"));
    }
    let before = resident_bytes();
    let waiting: Vec<_> = (0..LEASES)
        .map(|i| {
            runtime.spawn(ours.acquire(format!("lock/{}", i % count)).wait(hour).into_future())
        })
        .collect();
    // The first looks, until the nodes are known to tell.
    std::thread::sleep(Duration::from_secs(15));
    let bytes = resident_bytes().saturating_sub(before) / LEASES;
    let (sent, cpu, begun) = (looks(&cluster), process_cpu(), Instant::now());
    std::thread::sleep(lasting);
    let lasted = begun.elapsed();
    let cores = process_cpu().saturating_sub(cpu).div_duration_f64(lasted);
    let looks = u32::try_from((looks(&cluster) - sent) / cluster.len() as u64);
    let rate = f64::from(looks.unwrap_or(u32::MAX)) / lasted.as_secs_f64();
    let most = f64::from(u32::try_from(count).unwrap_or(u32::MAX)) * MOST_LOOKS;
    let is_over = waiting.iter().any(JoinHandle::is_finished);
    waiting.iter().for_each(JoinHandle::abort);
    Verdict {
        seen: format!(
            "{rate:.1} looks/s and node, {cores:.3} cores, {bytes} bytes for one that waits"
        ),
        is_good: !is_over && rate <= most,
        is_promised: true,
    }
}

/// How often the nodes were looked at so far, by an attempt or a question alone: whoever waits asks for the time that is left
/// with either.
fn looks(cluster: &Cluster) -> u64 {
    cluster.iter().map(|node| node.calls("pttl")).sum()
}

/// The commands that the nodes were sent so far to set, extend and release.
fn orders(cluster: &Cluster) -> u64 {
    let calls =
        |node: &Server| ["set", "evalsha", "eval"].map(|name| node.calls(name)).iter().sum::<u64>();
    cluster.iter().map(calls).sum()
}

/// User and system time of this process, all threads together. The nodes are others.
fn process_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).expect("CPU time is never negative")
}

/// The memory of this process that is in use; 0 where the system does not tell.
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
    println!("| case | seen | must be | is |");
    println!("|---|---|---|---|");
    let mut code = ExitCode::SUCCESS;
    for row in rows().iter().filter(|row| row.name.contains(&only)) {
        let lasting = Duration::from_secs(seconds.unwrap_or(row.seconds));
        let verdict = (row.run)(&runtime, lasting);
        let is_good = if verdict.is_good { "yes" } else { "NO" };
        println!("| {} | {} | {} | {is_good} |", row.name, verdict.seen, row.must);
        if verdict.is_promised && !verdict.is_good {
            code = ExitCode::FAILURE;
        }
    }
    code
}
