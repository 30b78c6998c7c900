//! Measures the cost of a fencing token: `cargo bench --bench fencing [-- part-of-a-row's-name]`.
//!
//! Acquires with and without a token alternate every second on the same five servers, so both run under the same load.
//! The benchmark exits with an error if too many tokens need a second round trip to the nodes. Durations are only
//! printed.

use kit::Cluster;
use quorlock::{Acquire, Redlock};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

const PAIRS: usize = 8;
const SLICE: Duration = Duration::from_secs(1);

struct Row {
    name: &'static str,
    clients: usize,
    tasks: usize,
    one_key: bool,
    /// The minimum share of tokens that a single round trip to the nodes must determine.
    min_one_round: f64,
}

const ROWS: [Row; 5] = [
    Row { name: "1 task", clients: 1, tasks: 1, one_key: false, min_one_round: 0.99 },
    Row { name: "64 tasks", clients: 1, tasks: 64, one_key: false, min_one_round: 0.99 },
    Row { name: "512 tasks", clients: 1, tasks: 512, one_key: false, min_one_round: 0.99 },
    Row { name: "one key, 8 tasks", clients: 1, tasks: 8, one_key: true, min_one_round: 0.90 },
    Row { name: "one key, 8 clients", clients: 8, tasks: 8, one_key: true, min_one_round: 0.90 },
];

#[derive(Default)]
struct Slice {
    cycles: usize,
    failed: usize,
    acquires_us: Vec<f64>,
    releases_us: Vec<f64>,
    /// The servers' processing time per cycle and server, in microseconds.
    server_us: f64,
}

#[derive(Default)]
struct Side {
    slices: Vec<Slice>,
}

impl Side {
    fn median(&self, of: impl Fn(&Slice) -> f64) -> f64 {
        percentile(&mut self.slices.iter().map(of).collect::<Vec<_>>(), 0.5)
    }

    fn all(&self, of: impl Fn(&Slice) -> &Vec<f64>) -> Vec<f64> {
        self.slices.iter().flat_map(|slice| of(slice).iter().copied()).collect()
    }

    fn cycles(&self) -> usize {
        self.slices.iter().map(|slice| slice.cycles).sum()
    }

    fn failed(&self) -> usize {
        self.slices.iter().map(|slice| slice.failed).sum()
    }
}

fn percentile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let place = (share * values.len().saturating_sub(1) as f64).round() as usize;
    values.get(place).copied().unwrap_or(f64::NAN)
}

async fn play(row: &Row, clients: &[Redlock], fenced: bool) -> Slice {
    let end = Instant::now() + SLICE;
    let failed = Arc::new(AtomicUsize::new(0));
    let each = (0..row.tasks).map(|task| {
        let (redlock, failed) = (clients[task % clients.len()].clone(), failed.clone());
        let key = if row.one_key { "one".to_owned() } else { format!("key/{task}") };
        tokio::spawn(async move {
            let mut durations = Vec::new();
            while Instant::now() < end {
                let acquire: Acquire = redlock.acquire(&key);
                let started = Instant::now();
                let won = if fenced { acquire.fenced().await } else { acquire.await };
                let acquired = started.elapsed();
                let Ok(lease) = won else {
                    failed.fetch_add(1, Ordering::Relaxed);
                    continue;
                };
                let started = Instant::now();
                match lease.release().await {
                    Ok(_) => durations.push((acquired, started.elapsed())),
                    Err(_) => drop(failed.fetch_add(1, Ordering::Relaxed)),
                }
            }
            durations
        })
    });
    let durations = futures::future::try_join_all(each).await.expect("no task panics").concat();
    let us = |of: fn(&(Duration, Duration)) -> Duration| {
        durations.iter().map(|both| of(both).as_secs_f64() * 1e6).collect()
    };
    Slice {
        cycles: durations.len(),
        failed: failed.load(Ordering::Relaxed),
        acquires_us: us(|both| both.0),
        releases_us: us(|both| both.1),
        server_us: 0.0,
    }
}

/// Returns the processing time of the servers since the last call, in microseconds. `INFO commandstats` counts a
/// command in a script twice: in the script's time and under its own name. This function therefore skips the names of
/// commands that scripts run. It thus also skips such commands if a waiting client sends them directly.
fn server_us(cluster: &Cluster, fenced: bool) -> f64 {
    let counts = |command: &str| match command {
        // With tokens, every `SET` is part of a script.
        "set" => !fenced,
        "get" | "del" | "pttl" | "pexpire" => false,
        // Commands of this function itself are skipped.
        _ => !["info", "config|resetstat"].contains(&command),
    };
    let spent = cluster.iter().flat_map(|node| {
        let stats = node.info("commandstats");
        node.cmd(&["CONFIG", "RESETSTAT"]);
        stats.into_iter().filter_map(|(name, stats)| {
            let usec = stats.split(',').find_map(|part| part.strip_prefix("usec="))?;
            counts(name.strip_prefix("cmdstat_")?).then(|| usec.parse::<f64>().ok())?
        })
    });
    spent.sum()
}

/// Prints a row, and returns true if enough tokens needed only one round trip.
#[allow(clippy::cast_precision_loss)] // Counts are below 2^53.
fn run(row: &Row, runtime: &Runtime) -> bool {
    let cluster = Cluster::start(5);
    let client = || Redlock::builder().nodes(cluster.urls()).build().expect("valid settings");
    let clients: Vec<_> = (0..row.clients).map(|_| client()).collect();
    let (mut plain, mut fenced) = (Side::default(), Side::default());
    for pair in 0..=PAIRS {
        for (side, is_fenced) in [(&mut plain, false), (&mut fenced, true)] {
            server_us(&cluster, is_fenced);
            let mut slice = runtime.block_on(play(row, &clients, is_fenced));
            slice.server_us = server_us(&cluster, is_fenced) / (5 * slice.cycles.max(1)) as f64;
            // The first pair is a warm-up.
            if pair > 0 {
                side.slices.push(slice);
            }
        }
    }
    let tokens = fenced.cycles() + fenced.failed();
    let confirmations: u64 = clients.iter().map(quorlock_test::token_confirmations).sum();
    let one_round = 1.0 - confirmations as f64 / tokens.max(1) as f64;
    let rates = plain.slices.iter().zip(&fenced.slices);
    let mut rates: Vec<_> = rates.map(|(p, f)| f.cycles as f64 / p.cycles.max(1) as f64).collect();
    let ratio = |of: fn(&Slice) -> &Vec<f64>, share| {
        percentile(&mut fenced.all(of), share) / percentile(&mut plain.all(of), share)
    };
    let is_good = one_round >= row.min_one_round;
    println!(
        "| {} | {:.0} | {:.0} | {:.2}x ({:.2} to {:.2}) | {:.2}x / {:.2}x | {:.2}x / {:.2}x | {:.1} us | {:.1} us | \
         {:.2} % of {tokens} (at least {:.0} %: {}) | {} / {} |",
        row.name,
        plain.median(|slice| slice.cycles as f64),
        fenced.median(|slice| slice.cycles as f64),
        percentile(&mut rates, 0.5),
        percentile(&mut rates, 0.0),
        percentile(&mut rates, 1.0),
        ratio(|slice| &slice.acquires_us, 0.5),
        ratio(|slice| &slice.acquires_us, 0.99),
        ratio(|slice| &slice.releases_us, 0.5),
        ratio(|slice| &slice.releases_us, 0.99),
        plain.median(|slice| slice.server_us),
        fenced.median(|slice| slice.server_us),
        one_round * 100.0,
        row.min_one_round * 100.0,
        if is_good { "yes" } else { "NO" },
        plain.failed(),
        fenced.failed(),
    );
    is_good
}

fn main() -> ExitCode {
    let part = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let part = part.unwrap_or_default();
    let runtime = Runtime::new().expect("a runtime");
    println!(
        "| case | plain cycles/s | fenced | rate | acquire p50 / p99 | release p50 / p99 | server per cycle, plain | \
         fenced | tokens in one round | failed |\n|---|---|---|---|---|---|---|---|---|---|"
    );
    let mut is_good = true;
    for row in ROWS.iter().filter(|row| row.name.contains(&part)) {
        is_good &= run(row, &runtime);
    }
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
