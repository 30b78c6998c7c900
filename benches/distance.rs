//! What acquire, release and a hand-over take on nodes that are far away, in round trips:
//! `cargo bench --bench distance [-- part-of-a-row's-name]`.
//!
//! Each node stands behind a proxy that holds what passes it back for half of the round trip, each way. The handshake of
//! TCP, which costs a new connection one round trip more, is not delayed.

use kit::{Cluster, Direction, Proxy};
use quorlock::Redlock;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

const CYCLES: usize = 100;
const HAND_OVERS: usize = 30;
const CLIENTS: usize = 15;

/// Five nodes, each behind a proxy of its own.
struct Far {
    proxies: Vec<Proxy>,
    _cluster: Cluster,
}

#[derive(Clone, Copy)]
struct Row {
    name: &'static str,
    round_trip: Duration,
    node_timeout: Duration,
}

/// What a row saw. What failed is not among the times.
#[derive(Default)]
struct Seen {
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
        row("80 ms, too short a timeout", 80_000, 50),
    ]
}

impl Far {
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
        builder.build().expect("these settings can work")
    }
}

impl Seen {
    /// One cycle of a client whose connections are made.
    async fn cycle(&mut self, redlock: &Redlock, key: &str) {
        let begun = Instant::now();
        let Ok(lease) = redlock.try_acquire(key).await else {
            self.failures += 1;
            return;
        };
        self.acquires.push(begun.elapsed());
        let begun = Instant::now();
        match lease.release().await {
            Ok(_) => self.releases.push(begun.elapsed()),
            Err(_) => self.failures += 1,
        }
    }

    /// From the release of one client until another one, which waits, has the lock.
    async fn hand_over(&mut self, [from, to]: [&Redlock; 2]) {
        let Ok(lease) = from.try_acquire("passed on").await else {
            self.failures += 1;
            return;
        };
        let to = to.clone();
        let waiter = tokio::spawn(async move { (to.acquire("passed on").await, Instant::now()) });
        // It has been refused by then, and is told when the lock is free.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let begun = Instant::now();
        let released = lease.release().await;
        let (acquired, at) = waiter.await.expect("no task panics");
        match (released, acquired) {
            (Ok(_), Ok(lease)) => {
                self.hand_overs.push(at.duration_since(begun));
                self.failures += usize::from(lease.release().await.is_err());
            }
            _ => self.failures += 1,
        }
    }
}

async fn run(row: Row) -> Seen {
    let far = Far::new(row.round_trip);
    let mut seen = Seen::default();
    let mut last = far.client(row);
    for client in 0..CLIENTS {
        let redlock = far.client(row);
        let begun = Instant::now();
        match redlock.acquire(format!("first/{client}")).await {
            Ok(lease) => {
                seen.firsts.push(begun.elapsed());
                seen.failures += usize::from(lease.release().await.is_err());
            }
            Err(_) => seen.failures += 1,
        }
        last = redlock;
    }
    for cycle in 0..CYCLES {
        seen.cycle(&last, &format!("warm/{cycle}")).await;
    }
    let other = far.client(row);
    for _ in 0..HAND_OVERS {
        seen.hand_over([&last, &other]).await;
    }
    seen
}

/// p50 and p99, in milliseconds; a dash where nothing succeeded.
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
        let seen = runtime.block_on(run(row));
        println!(
            "| {} | {:?} | {} | {} | {} | {} | {} |",
            row.name,
            row.node_timeout,
            percentiles(seen.firsts),
            percentiles(seen.acquires),
            percentiles(seen.releases),
            percentiles(seen.hand_overs),
            seen.failures,
        );
    }
}
