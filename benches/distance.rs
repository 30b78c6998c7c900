//! Measures acquires, releases and hand-overs on distant nodes: `cargo bench --bench distance [--
//! part-of-a-row's-name]`.
//!
//! A proxy in front of each node delays each direction by half of the round-trip time. The TCP handshake is not
//! delayed, although on a real network it would cost each new connection another round trip.

use kit::{Cluster, Direction, Proxy};
use quorlock::Redlock;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

const CYCLES: usize = 100;
const HAND_OVERS: usize = 30;
const CLIENTS: usize = 15;

struct DistantNodes {
    proxies: Vec<Proxy>,
    _cluster: Cluster,
}

#[derive(Clone, Copy)]
struct Row {
    name: &'static str,
    round_trip: Duration,
    node_timeout: Duration,
}

/// The durations of successful operations, and the number of failed ones.
#[derive(Default)]
struct Measured {
    firsts: Vec<Duration>,
    acquires: Vec<Duration>,
    releases: Vec<Duration>,
    hand_overs: Vec<Duration>,
    failures: usize,
}

fn rows() -> [Row; 6] {
    let row = |name, micros, node_timeout| {
        let node_timeout = Duration::from_millis(node_timeout);
        Row { name, round_trip: Duration::from_micros(micros), node_timeout }
    };
    [
        row("loopback", 0, 50),
        row("0.2 ms", 200, 50),
        row("5 ms", 5_000, 50),
        row("40 ms", 40_000, 50),
        row("40 ms, longer timeout", 40_000, 200),
        row("80 ms, timeout too short", 80_000, 50),
    ]
}

impl DistantNodes {
    fn new(round_trip: Duration) -> Self {
        let cluster = Cluster::start(5);
        let proxies = cluster.proxies();
        for proxy in &proxies {
            proxy.delay(Direction::Requests, round_trip / 2);
            proxy.delay(Direction::Replies, round_trip / 2);
        }
        Self { proxies, _cluster: cluster }
    }

    fn client(&self, row: Row) -> Redlock {
        let urls = self.proxies.iter().map(Proxy::url);
        let builder = Redlock::builder().nodes(urls).node_timeout(row.node_timeout);
        builder.build().expect("valid settings")
    }
}

impl Measured {
    async fn cycle(&mut self, redlock: &Redlock, key: &str) {
        let started = Instant::now();
        let Ok(lease) = redlock.try_acquire(key).await else {
            self.failures += 1;
            return;
        };
        self.acquires.push(started.elapsed());
        let started = Instant::now();
        match lease.release().await {
            Ok(_) => self.releases.push(started.elapsed()),
            Err(_) => self.failures += 1,
        }
    }

    /// Measures the time from one client's release until a waiting client has acquired the lock.
    async fn hand_over(&mut self, [from, to]: [&Redlock; 2]) {
        let Ok(lease) = from.try_acquire("handed over").await else {
            self.failures += 1;
            return;
        };
        let to = to.clone();
        let waiter = tokio::spawn(async move { (to.acquire("handed over").await, Instant::now()) });
        // After this pause, the waiter has been refused and receives pushes.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let started = Instant::now();
        let released = lease.release().await;
        let (acquired, at) = waiter.await.expect("no task panics");
        match (released, acquired) {
            (Ok(_), Ok(lease)) => {
                self.hand_overs.push(at.duration_since(started));
                self.failures += usize::from(lease.release().await.is_err());
            }
            _ => self.failures += 1,
        }
    }
}

async fn run(row: Row) -> Measured {
    let nodes = DistantNodes::new(row.round_trip);
    let mut measured = Measured::default();
    let mut last = nodes.client(row);
    for client in 0..CLIENTS {
        let redlock = nodes.client(row);
        let started = Instant::now();
        match redlock.acquire(format!("first/{client}")).await {
            Ok(lease) => {
                measured.firsts.push(started.elapsed());
                measured.failures += usize::from(lease.release().await.is_err());
            }
            Err(_) => measured.failures += 1,
        }
        last = redlock;
    }
    for cycle in 0..CYCLES {
        measured.cycle(&last, &format!("warm/{cycle}")).await;
    }
    let other = nodes.client(row);
    for _ in 0..HAND_OVERS {
        measured.hand_over([&last, &other]).await;
    }
    measured
}

/// Formats p50 and p99 in milliseconds, or a dash if no operation succeeded.
fn percentiles(mut durations: Vec<Duration>) -> String {
    durations.sort_unstable();
    let last = durations.len().saturating_sub(1);
    let at = |share: usize| durations.get(last * share / 100);
    let ms = |duration: &Duration| format!("{:.1}", duration.as_secs_f64() * 1e3);
    match (at(50), at(99)) {
        (Some(p50), Some(p99)) => format!("{} / {}", ms(p50), ms(p99)),
        _ => "-".to_owned(),
    }
}

fn main() {
    let only = std::env::args().skip(1).find(|arg| !arg.starts_with("--")).unwrap_or_default();
    let runtime = Runtime::new().expect("a runtime");
    println!("five nodes; milliseconds as p50 / p99");
    println!(
        "| round trip | node timeout | first acquire | acquire | release | hand-over | failed |"
    );
    println!("|---|---|---|---|---|---|---|");
    for row in rows().into_iter().filter(|row| row.name.contains(&only)) {
        let measured = runtime.block_on(run(row));
        println!(
            "| {} | {:?} | {} | {} | {} | {} | {} |",
            row.name,
            row.node_timeout,
            percentiles(measured.firsts),
            percentiles(measured.acquires),
            percentiles(measured.releases),
            percentiles(measured.hand_overs),
            measured.failures,
        );
    }
}
