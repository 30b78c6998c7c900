//! The driver that was chosen for the coordinator: `cargo bench --bench drivers -- all [rounds]`, or a part of a row's name
//! (runtime-tasks-microseconds, such as `multi-8-500`) instead of `all`. Without an argument it only prints a line, so that
//! `make bench` does not include a prototype.
//!
//! A task per node runs single-key acquires and releases with the modules `protocol` and `wire` of the library, beside
//! the library itself ("today"). Both take turns of half a second in one run. Ratios are medians over paired turns.
//!
//! The prototype of the coordinator has no waiting, renewal, reconnection or guards.

#![allow(missing_docs, unreachable_pub, clippy::pedantic, reason = "a prototype")]
#![allow(
    dead_code,
    unused_imports,
    reason = "a prototype uses only a part of `protocol` and `wire`"
)]

mod coordinator;
mod delay;
mod engine;
mod node_tasks;
#[path = "../../src/protocol/mod.rs"]
mod protocol;
mod random;
#[path = "../../src/wire/mod.rs"]
mod wire;

use delay::Delay;
use engine::{Engine, NAMES, Stats};
use kit::Cluster;
use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use wire::Key;

const SLICE: Duration = Duration::from_millis(500);

struct Slice {
    rate: f64,
    cpu_us: f64,
    switches: f64,
    failures: u64,
}

fn process_cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).expect("not negative")
}

/// Context switches of all threads of this process.
fn switches() -> u64 {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return 0 };
    let count = |path: std::path::PathBuf| {
        let status = std::fs::read_to_string(path.join("status")).unwrap_or_default();
        let lines = status.lines().filter(|line| line.contains("ctxt_switches"));
        lines.filter_map(|line| line.split_whitespace().last()?.parse::<u64>().ok()).sum::<u64>()
    };
    tasks.flatten().map(|task| count(task.path())).sum()
}

async fn slice(engine: &Engine, tasks: usize, length: Duration) -> Slice {
    let (stop, cycles, failures) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicU64::new(0)),
    );
    let (begun, cpu, switched) = (Instant::now(), process_cpu(), switches());
    let running: Vec<_> = (0..tasks)
        .map(|task| {
            let (engine, stop) = (engine.clone(), stop.clone());
            let (cycles, failures) = (cycles.clone(), failures.clone());
            tokio::spawn(async move {
                let name = format!("lock/{task}");
                let key: Key = name.as_bytes().into();
                while !stop.load(Ordering::Relaxed) {
                    if engine.cycle(&name, &key).await {
                        cycles.fetch_add(1, Ordering::Relaxed);
                    } else {
                        failures.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        })
        .collect();
    tokio::time::sleep(length).await;
    stop.store(true, Ordering::Relaxed);
    for task in running {
        task.await.expect("no task panics");
    }
    let count = cycles.load(Ordering::Relaxed) as f64;
    Slice {
        rate: count / begun.elapsed().as_secs_f64(),
        cpu_us: (process_cpu() - cpu).as_secs_f64() * 1e6 / count.max(1.0),
        switches: (switches() - switched) as f64 / count.max(1.0),
        failures: failures.load(Ordering::Relaxed),
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

fn runtime(is_multi: bool) -> Runtime {
    let mut builder =
        if is_multi { Builder::new_multi_thread() } else { Builder::new_current_thread() };
    builder.worker_threads(2).enable_all().build().expect("a runtime")
}

fn row(is_multi: bool, tasks: usize, round_trip: Duration, rounds: usize) {
    let cluster = Cluster::start(5);
    let addrs: Vec<_> = cluster.iter().map(|server| server.addr().to_string()).collect();
    let delay = (!round_trip.is_zero()).then(|| Delay::start(&addrs, round_trip));
    let addrs = delay.as_ref().map_or(addrs, |delay| delay.addrs.clone());
    let runtime = runtime(is_multi);
    runtime.block_on(async {
        let stats: Vec<_> = NAMES.iter().map(|_| Arc::new(Stats::default())).collect();
        let timeout = Duration::from_millis(500);
        let engines: Vec<_> = NAMES
            .iter()
            .zip(&stats)
            .map(|(name, stats)| Engine::start(name, &addrs, timeout, stats))
            .collect();
        for engine in &engines {
            slice(engine, tasks, SLICE / 2).await;
        }
        stats.iter().for_each(|stats| {
            stats.take();
        });
        let mut seen: Vec<Vec<Slice>> = engines.iter().map(|_| Vec::new()).collect();
        for round in 0..rounds {
            for place in 0..engines.len() {
                // Each round begins with another engine.
                let place = (place + round) % engines.len();
                // In a task, as the callers are.
                let engine = engines[place].clone();
                seen[place].push(
                    tokio::spawn(async move { slice(&engine, tasks, SLICE).await })
                        .await
                        .expect("no panic"),
                );
            }
        }
        let kind = if is_multi { "multi" } else { "current" };
        for (place, name) in NAMES.iter().enumerate() {
            let ratio = |of: fn(&Slice) -> f64| {
                median(seen[place].iter().zip(&seen[0]).map(|(one, today)| of(one) / of(today)).collect())
            };
            let value = |of: fn(&Slice) -> f64| median(seen[place].iter().map(of).collect());
            println!(
                "| {kind} | {tasks} | {:.1} | {name} | {:.0} | {:.2} | {:.1} | {:.2} | {:.2} | {:.2} | {} |",
                round_trip.as_secs_f64() * 1e3,
                value(|it| it.rate),
                ratio(|it| it.rate),
                value(|it| it.cpu_us),
                ratio(|it| it.cpu_us),
                value(|it| it.switches),
                stats[place].take().as_secs_f64() * 1e3,
                seen[place].iter().map(|it| it.failures).sum::<u64>(),
            );
        }
    });
}

fn main() {
    let all: Vec<_> = std::env::args().skip(1).collect();
    if let [delay::ARGUMENT, micros, ..] = &all.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        delay::relay(Duration::from_micros(micros.parse().expect("a number")), &all[2..]);
        return;
    }
    let args: Vec<_> = all.into_iter().filter(|arg| !arg.starts_with("--")).collect();
    let rounds = args.iter().find_map(|arg| arg.parse().ok()).unwrap_or(10);
    let Some(only) = args.iter().find(|arg| arg.parse::<u64>().is_err()) else {
        println!("drivers: skipped; measure them with `cargo bench --bench drivers -- all`");
        return;
    };
    println!(
        "| runtime | tasks | round trip ms | driver | cycles/s | ratio | CPU us | ratio | switches | longest turn ms | failures |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for micros in [0, 500, 5_000] {
        for is_multi in [true, false] {
            for tasks in [1, 2, 8, 64, 512] {
                let name =
                    format!("{}-{tasks}-{micros}", if is_multi { "multi" } else { "current" });
                if only == "all" || name.contains(only) {
                    row(is_multi, tasks, Duration::from_micros(micros), rounds);
                }
            }
        }
    }
}
