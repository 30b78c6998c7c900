//! Measures clients that wait for one lock, each in a separate process with its own connections: `cargo bench --bench
//! waiting [-- part-of-a-row's-name]`.
//!
//! - "once": all clients start at the same time, and each acquires the lock once. The row shows the time until the last
//!   acquire.
//! - "set": as "once", but each acquire takes three locks together.
//! - "loop": each client acquires the lock again directly after its release, for three seconds.
//! - "queue": the clients loop for ten seconds, each with ten tasks that queue for the lock.
//! - "queue of sets": as "queue", but each acquire takes three locks together.
//! - "greedy": one client loops. The other clients pause for 10 to 30 ms after each release, and only their waits are
//!   measured.
//! - "alone": one client holds the lock, and another client waits for it. The row shows the time from the release to
//!   the acquire.
//!
//! The column "by client" shows the smallest and greatest number of acquires of a client. The commands per acquire are
//! all commands that the nodes have executed, by `INFO commandstats`, summed over the nodes.

use futures::future::join_all;
use kit::{Cluster, Rerun, Server};
use quorlock::{Redlock, ReleaseOutcome};
use redis::{AsyncCommands, AsyncConnectionConfig};
use std::env;
use std::time::{Duration, Instant, SystemTime};
use tokio::time::sleep;

const ASSIGNMENT: &str = "QUORLOCK_ASSIGNMENT";
const NODES: &str = "QUORLOCK_NODES";
const BOARD: &str = "QUORLOCK_BOARD";
const LIMIT: Duration = Duration::from_secs(60);
/// After this time, all clients have certainly been refused and wait.
const ALL_WAIT: Duration = Duration::from_millis(500);
const LOOPS_FOR: Duration = Duration::from_secs(3);
const QUEUES_FOR: Duration = Duration::from_secs(10);
/// The number of tasks of each client in a "queue" row.
const TASKS: usize = 10;
/// The number of measured releases in an "alone" row.
const RELEASES: usize = 100;

struct Row {
    name: &'static str,
    kind: &'static str,
    nodes: usize,
    clients: usize,
    hold: Duration,
}

fn rows() -> Vec<Row> {
    let row = |name, kind, nodes, clients, hold| {
        let hold = Duration::from_millis(hold);
        Row { name, kind, nodes, clients, hold }
    };
    vec![
        row("once, 110 clients, 5 nodes, 5 ms", "once", 5, 110, 5),
        row("once, 200 clients, 3 nodes, 5 ms", "once", 3, 200, 5),
        row("once, 30 clients, 5 nodes, 5 ms", "once", 5, 30, 5),
        row("set, 100 clients, 5 nodes, 5 ms", "set", 5, 100, 5),
        row("set, 8 clients, 5 nodes, 5 ms", "set", 5, 8, 5),
        row("loop, 2 clients, 5 nodes, 5 ms", "loop", 5, 2, 5),
        row("loop, 8 clients, 5 nodes, 5 ms", "loop", 5, 8, 5),
        row("loop, 30 clients, 5 nodes, 5 ms", "loop", 5, 30, 5),
        row("loop, 110 clients, 5 nodes, 5 ms", "loop", 5, 110, 5),
        row("loop, 2 clients, 5 nodes, 1 ms", "loop", 5, 2, 1),
        row("loop, 8 clients, 5 nodes, 1 ms", "loop", 5, 8, 1),
        row("queue, 2 clients, 5 nodes, 20 ms", "queue", 5, 2, 20),
        row("queue, 2 clients, 5 nodes, 2 ms", "queue", 5, 2, 2),
        row("queue, 2 clients, 5 nodes, 200 ms", "queue", 5, 2, 200),
        row("queue, 4 clients, 5 nodes, 10 ms", "queue", 5, 4, 10),
        row("queue, 20 clients, 5 nodes, 5 ms", "queue", 5, 20, 5),
        row("queue of sets, 2 clients, 5 nodes, 20 ms", "queue-set", 5, 2, 20),
        row("queue of sets, 4 clients, 5 nodes, 10 ms", "queue-set", 5, 4, 10),
        row("greedy, 2 clients, 5 nodes, 5 ms", "greedy", 5, 2, 5),
        row("greedy, 8 clients, 5 nodes, 1 ms", "greedy", 5, 8, 1),
        row("alone, 2 clients, 5 nodes, 5 ms", "alone", 5, 2, 5),
    ]
}

/// One acquire by one client. `at` is from a clock that all processes share, and `waited` is how long the client
/// waited.
struct Turn {
    client: usize,
    at: Duration,
    waited: Duration,
}

fn shared_now() -> Duration {
    SystemTime::UNIX_EPOCH.elapsed().expect("after 1970")
}

fn connect(nodes: &str) -> Redlock {
    let builder = Redlock::builder().nodes(nodes.split(',')).ttl(Duration::from_secs(30));
    builder.wait(LIMIT).build().expect("valid settings")
}

async fn play(assignment: &str) {
    let of = |name| env::var(name).expect("set by the parent");
    let redlock = connect(&of(NODES));
    let board = redis::Client::open(of(BOARD)).expect("a URL");
    let failures = board.clone();
    std::panic::set_hook(Box::new(move |panic| {
        let board = failures.get_connection();
        let push = redis::Cmd::rpush("failures", panic.to_string());
        let _ = board.and_then(|mut board| push.exec(&mut board));
    }));
    let patient = AsyncConnectionConfig::new().set_response_timeout(Some(LIMIT));
    let board = board.get_multiplexed_async_connection_with_config(&patient).await;
    let mut board = board.expect("the board is up");
    let mut words = assignment.split(' ');
    let (kind, number) = (words.next().expect("a kind"), words.next().expect("a number"));
    let hold = Duration::from_micros(words.next().expect("a hold").parse().expect("a number"));
    let number: u64 = number.parse().expect("a number");
    // All connections are opened before the start.
    drop(redlock.acquire(format!("own {number}")).await.expect("the lock is free"));
    let all_up = || redlock.nodes().iter().all(|node| *node.state() == quorlock::NodeState::Up);
    while !all_up() {
        sleep(Duration::from_millis(5)).await;
    }
    let _: i64 = board.incr("ready", 1).await.expect("the board is up");
    let _: (String, String) = board.blpop("begin", 0.0).await.expect("the board is up");
    let tasks = if kind.starts_with("queue") { TASKS } else { 1 };
    let tasks = (0..tasks).map(|_| take_turns(&redlock, kind, number, hold));
    let turns = join_all(tasks).await.concat();
    if !turns.is_empty() {
        let _: i64 = board.rpush("turns", turns).await.expect("the board is up");
    }
    let _: i64 = board.incr("ended", 1).await.expect("the board is up");
    redlock.close().await.expect("nodes are up");
}

/// Acquires the lock once or repeatedly, as the row's `kind` requires. Returns one line of text per measured acquire.
async fn take_turns(redlock: &Redlock, kind: &str, number: u64, hold: Duration) -> Vec<String> {
    let lasting = if kind.starts_with("queue") { QUEUES_FOR } else { LOOPS_FOR };
    let end = Instant::now() + ALL_WAIT + lasting;
    let mut turns = Vec::new();
    let mut random = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    loop {
        let asked = Instant::now();
        let names: &[_] = if kind.ends_with("set") { &["q", "r", "s"] } else { &["r"] };
        let lease = redlock.acquire_all(names).await.expect("the lock becomes free");
        let (at, waited) = (shared_now().as_micros(), asked.elapsed().as_micros());
        if kind != "greedy" || number > 0 {
            turns.push(format!("{number} {at} {waited}"));
        }
        sleep(hold).await;
        assert!(lease.is_valid(), "the lease expired");
        // On a busy machine, some nodes confirm releases only after the node timeout.
        let _ = lease.release().await;
        if kind == "once" || kind == "set" || Instant::now() >= end {
            return turns;
        }
        if kind == "greedy" && number > 0 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            sleep(Duration::from_micros(10_000 + random % 20_000)).await;
        }
    }
}

fn number(board: &Server, key: &str) -> usize {
    board.get(key).and_then(|text| String::from_utf8(text).ok()?.parse().ok()).unwrap_or(0)
}

fn percentile(sorted: &[Duration], share: usize) -> Duration {
    sorted.get(sorted.len().saturating_sub(1) * share / 100).copied().unwrap_or_default()
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

#[allow(clippy::cast_precision_loss)] // Counts are far below 2^52.
async fn run(row: &Row) {
    let (cluster, board) = (Cluster::start(row.nodes), Server::start());
    let (nodes, url) = (cluster.urls().join(","), board.url());
    let hold = row.hold.as_micros();
    let start = |number| {
        let assignment = format!("{} {number} {hold}", row.kind);
        Rerun::start(&[], &[(ASSIGNMENT, &assignment), (NODES, &nodes), (BOARD, &url)])
    };
    let clients: Vec<_> = (0..row.clients).map(start).collect();
    let has_failed = || clients.iter().find(|client| client.has_ended());
    kit::eventually(LIMIT, "all clients are ready", || {
        number(&board, "ready") == row.clients || has_failed().is_some()
    });
    // The lock is held until all clients wait for it.
    let lease = connect(&nodes).acquire("r").await.expect("the lock is free");
    board.cmd(&[&["RPUSH", "begin"][..], &vec!["x"; row.clients]].concat());
    sleep(ALL_WAIT).await;
    cluster.iter().for_each(Server::reset_stats);
    let started = shared_now();
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    let deadline = Instant::now() + LIMIT;
    while number(&board, "ended") < row.clients && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    let ran: u64 = cluster.iter().map(Server::all_calls).sum();
    let ended = number(&board, "ended");
    let failures = board.cmd(&["LRANGE", "failures", "0", "-1"]);
    for failure in redis::from_redis_value::<Vec<String>>(failures).expect("texts") {
        eprintln!("a client failed: {failure}");
    }
    let turns = board.cmd(&["LRANGE", "turns", "0", "-1"]);
    let turns: Vec<String> = redis::from_redis_value(turns).expect("texts");
    let parse = |text: &String| {
        let mut numbers = text.split(' ').map(|number| number.parse().expect("a number"));
        let mut next = || numbers.next().expect("three numbers");
        let (client, at, waited) = (next(), next(), next());
        let at = Duration::from_micros(at);
        let waited = Duration::from_micros(waited).min(at.saturating_sub(started));
        Turn { client: usize::try_from(client).expect("few"), at, waited }
    };
    let turns: Vec<_> = turns.iter().map(parse).collect();
    let last = turns.iter().map(|turn| turn.at).max().unwrap_or_default().saturating_sub(started);
    let mut waits: Vec<_> = turns.iter().map(|turn| turn.waited).collect();
    waits.sort_unstable();
    let turns_of = |client| turns.iter().filter(|turn| turn.client == client).count();
    let by_client: Vec<_> = (0..row.clients).map(turns_of).collect();
    println!(
        "| {} | {ended} of {} | {} | {}-{} | {:.2} s | {:.0} | {:.0} | {:.1} | {:.1} | {:.1} | {:.1} |",
        row.name,
        row.clients,
        turns.len(),
        by_client.iter().min().unwrap_or(&0),
        by_client.iter().max().unwrap_or(&0),
        last.as_secs_f64(),
        turns.len() as f64 / last.as_secs_f64(),
        ran as f64 / turns.len() as f64,
        ms(percentile(&waits, 50)),
        ms(percentile(&waits, 95)),
        ms(percentile(&waits, 99)),
        ms(percentile(&waits, 100)),
    );
    clients.iter().filter(|_| ended == row.clients).for_each(|client| client.finish(LIMIT));
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    if let Ok(assignment) = env::var(ASSIGNMENT) {
        runtime.block_on(play(&assignment));
        return;
    }
    let part = env::args().skip(1).find(|arg| !arg.starts_with("--")).unwrap_or_default();
    println!(
        "| case | clients done | turns | by client | time | turns/s | commands per turn | wait p50 ms | p95 | p99 | max |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for row in rows().iter().filter(|row| row.name.contains(&part)) {
        if row.kind == "alone" { runtime.block_on(alone(row)) } else { runtime.block_on(run(row)) }
    }
}

/// Measures the time from a release until a single waiting client has acquired the lock.
async fn alone(row: &Row) {
    let cluster = Cluster::start(row.nodes);
    let nodes = cluster.urls().join(",");
    let [waiter, holder] = [(); 2].map(|()| connect(&nodes));
    let mut took = Vec::new();
    let started = Instant::now();
    for _ in 0..RELEASES {
        let held = holder.acquire("r").await.expect("the lock is free");
        let waiting = waiter.acquire("r");
        let released = async {
            sleep(Duration::from_millis(20)).await;
            let at = Instant::now();
            assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
            at
        };
        let acquired = async { waiting.await.map(|lease| (lease, Instant::now())) };
        let (released, acquired) = tokio::join!(released, acquired);
        let (lease, at) = acquired.expect("the lock becomes free");
        took.push(at - released);
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    }
    let time = started.elapsed().as_secs_f64();
    took.sort_unstable();
    println!(
        "| {} | {} of {} | {} | | {time:.2} s | | | {:.2} | {:.2} | {:.2} | {:.2} |",
        row.name,
        row.clients,
        row.clients,
        took.len(),
        ms(percentile(&took, 50)),
        ms(percentile(&took, 95)),
        ms(percentile(&took, 99)),
        ms(percentile(&took, 100)),
    );
}
