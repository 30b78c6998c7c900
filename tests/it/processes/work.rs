//! Processes that compete for the same lock, and their measurements. The benchmarks also use this file.
//!
//! The parent starts this program again for each process, which calls [`work`] and reads its task from the environment.
//! The processes synchronize on a separate server, the board.

use futures::FutureExt;
use kit::{Cluster, Rerun, Server};
use quorlock::{Lease, Redlock, ReleaseOutcome, RetryPolicy};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::time::{Duration, Instant, SystemTime};
use tokio::time::sleep;

/// The environment variable with a child's task. `NODES` and `BOARD` contain URLs.
const WORK: &str = "QUORLOCK_WORK";
const NODES: &str = "QUORLOCK_NODES";
const BOARD: &str = "QUORLOCK_BOARD";

/// The time after which a child's acquire has certainly been refused and waits for a notification from the nodes.
const WAITER_SETTLE_TIME: Duration = Duration::from_millis(20);
const PAUSE: Duration = Duration::from_millis(1);
/// The time after which a wait fails the run. It is longer than any wait of a successful run, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

pub(crate) struct Scenario {
    cluster: Cluster,
    board: Server,
    args: &'static [&'static str],
}

pub(crate) struct Measurements {
    turns: Vec<Turn>,
    tasks: usize,
    processes: usize,
    /// The number of commands per acquire and node that set, read or delete a key.
    pub(crate) commands_per_turn: f64,
}

#[derive(Clone, Copy)]
struct Turn {
    /// The ID of the process that ran the task.
    process: u32,
    /// The time of the acquire. All processes of the machine share the clock.
    at: Duration,
    waited: Duration,
}

/// Executes this process's task from the environment. Returns false if this process is not a child.
pub(crate) async fn work() -> bool {
    let Ok(work) = env::var(WORK) else { return false };
    let (kind, numbers) = work.split_once(' ').expect("a kind of work, then numbers");
    let numbers = numbers.split(' ').map(|number| number.parse().expect("a number"));
    let numbers: Vec<u64> = numbers.collect();
    let nodes = env::var(NODES).expect("set by the parent");
    let redlock = client(nodes.split(','));
    let board = redis::Client::open(env::var(BOARD).expect("set by the parent")).expect("a URL");
    let patient = redis::AsyncConnectionConfig::new().set_response_timeout(Some(LIMIT));
    let board = board.get_multiplexed_async_connection_with_config(&patient).await;
    let board = board.expect("the board is up");
    match kind {
        "compete" => {
            compete(&redlock, board, numbers[0], Duration::from_millis(numbers[1])).await;
        }
        "successor" => acquire_after_parent(&redlock, board, numbers[0]).await,
        other => panic!("unknown work: {other}"),
    }
    redlock.close().await.expect("nodes are up");
    true
}

/// Creates a client whose timeouts are long enough for a busy machine.
fn client(nodes: impl IntoIterator<Item = impl AsRef<str>>) -> Redlock {
    let builder = Redlock::builder().nodes(nodes).node_timeout(Duration::from_secs(5));
    builder.ttl(Duration::from_secs(30)).wait(LIMIT).build().expect("valid settings")
}

/// Spawns `tasks` tasks that compete for the lock until the parent ends the run. Each task holds the lock for `hold`
/// every time it acquires it.
async fn compete(redlock: &Redlock, mut board: MultiplexedConnection, tasks: u64, hold: Duration) {
    let _: i64 = board.incr("ready", 1).await.expect("the board is up");
    while !board.exists::<_, bool>("begin").await.expect("the board is up") {
        sleep(PAUSE).await;
    }
    let members =
        (0..tasks).map(|_| tokio::spawn(take_turns(redlock.clone(), board.clone(), hold)));
    for member in members.collect::<Vec<_>>() {
        member.await.expect("no panic");
    }
}

/// Acquires the lock repeatedly and checks each time that no other task holds it.
async fn take_turns(redlock: Redlock, mut board: MultiplexedConnection, hold: Duration) {
    let mut turns = Vec::new();
    while turns.is_empty() || !board.exists::<_, bool>("end").await.expect("the board is up") {
        let asked = Instant::now();
        let lease = redlock.acquire("r").await.expect("the lock becomes free");
        let (waited, process) = (asked.elapsed(), std::process::id());
        turns.push(Turn { process, at: shared_now(), waited }.to_string());
        let inside: i64 = board.incr("inside", 1).await.expect("the board is up");
        assert_eq!(inside, 1, "another task holds the lock");
        let count: Option<u64> = board.get("count").await.expect("the board is up");
        sleep(hold).await;
        let _: () = board.set("count", count.unwrap_or(0) + 1).await.expect("the board is up");
        let _: i64 = board.decr("inside", 1).await.expect("the board is up");
        assert!(lease.is_valid(), "the lease expired");
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    }
    let _: i64 = board.rpush("turns", turns).await.expect("the board is up");
}

/// Waits `times` times for the lock that the parent holds, and reports the time of each acquire. The retry delay is
/// longer than the run, so the acquire only succeeds if a node notifies the client.
async fn acquire_after_parent(redlock: &Redlock, mut board: MultiplexedConnection, times: u64) {
    for time in 0..times {
        while board.get::<_, Option<u64>>("held").await.expect("the board is up") != Some(time) {
            sleep(PAUSE).await;
        }
        let mut acquire = redlock.acquire("r").retry(RetryPolicy::fixed(Duration::from_secs(600)));
        // The first poll has started an attempt.
        assert!((&mut acquire).now_or_never().is_none(), "it is held");
        let _: () = board.set("asked", time).await.expect("the board is up");
        let lease: Lease = acquire.await.expect("the lock becomes free");
        let at = shared_now();
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
        let at = u64::try_from(at.as_micros()).expect("below 2^64");
        let _: i64 = board.rpush("acquired", at).await.expect("the board is up");
    }
}

impl Scenario {
    /// Creates a scenario. `args` are the arguments that make this program run as a child, which only calls [`work`].
    pub(crate) fn new(args: &'static [&'static str]) -> Self {
        Self { cluster: Cluster::start(5), board: Server::start(), args }
    }

    fn child(&self, work: &str) -> Rerun {
        let (nodes, board) = (self.cluster.urls().join(","), self.board.url());
        Rerun::start(self.args, &[(WORK, work), (NODES, &nodes), (BOARD, &board)])
    }

    /// Runs four processes with `tasks` tasks in total. Each task holds the lock for 10 ms.
    pub(crate) fn run_four_processes(&self, tasks: usize, lasting: Duration) -> Measurements {
        self.run_tasks(4, tasks, Duration::from_millis(10), lasting)
    }

    /// Measures how `tasks` tasks in `processes` processes compete for one lock without a pause. Each task holds the
    /// lock for `hold`. Panics if two tasks hold the lock at the same time, if a task never acquires it, or if a key
    /// remains.
    pub(crate) fn run_tasks(
        &self,
        processes: usize,
        tasks: usize,
        hold: Duration,
        lasting: Duration,
    ) -> Measurements {
        let work = format!("compete {} {}", tasks / processes, hold.as_millis());
        let children: Vec<_> = (0..processes).map(|_| self.child(&work)).collect();
        let are_ready = || self.board.get("ready") == Some(processes.to_string().into_bytes());
        let has_failed = || children.iter().any(Rerun::has_ended);
        kit::eventually(LIMIT, "all children are ready", || are_ready() || has_failed());
        self.board.set("begin", "");
        let end = Instant::now() + lasting;
        while Instant::now() < end && !has_failed() {
            std::thread::sleep(PAUSE * 10);
        }
        self.board.set("end", "");
        for child in children {
            child.finish(2 * LIMIT);
        }
        let turns = self.board.cmd(&["LRANGE", "turns", "0", "-1"]);
        let turns: Vec<String> = redis::from_redis_value(turns).expect("texts");
        let count = self.board.get("count").expect("the children have written it");
        assert_eq!(count, turns.len().to_string().into_bytes(), "an update was lost");
        kit::eventually(LIMIT, "no key is left", || self.cluster.is_empty());
        let commands: u64 = self.cluster.iter().map(lock_commands).sum();
        let commands_per_turn = ratio(commands, (turns.len() * self.cluster.len()) as u64);
        let turns = turns.iter().map(|turn| Turn::parse(turn)).collect();
        Measurements { turns, tasks, processes, commands_per_turn }
    }

    /// Hands the lock over to a child `times` times. For each hand-over, the parent holds the lock while the child
    /// waits for it, then releases it. Returns the times from a release to the child's acquire, in ascending order.
    pub(crate) async fn hand_over(&self, times: usize) -> Vec<Duration> {
        let redlock = client(self.cluster.urls());
        let child = self.child(&format!("successor {times}"));
        let mut released = Vec::new();
        for time in 0..times {
            let lease = redlock.acquire("r").await.expect("the lock becomes free");
            self.board.set("held", time.to_string());
            let asked = Some(time.to_string().into_bytes());
            until(&child, || self.board.get("asked") == asked).await;
            sleep(WAITER_SETTLE_TIME).await;
            released.push(shared_now());
            assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
            let count = redis::Value::Int(i64::try_from(time + 1).expect("within i64"));
            until(&child, || self.board.cmd(&["LLEN", "acquired"]) == count).await;
        }
        child.finish(LIMIT);
        let acquired = self.board.cmd(&["LRANGE", "acquired", "0", "-1"]);
        let acquired: Vec<u64> = redis::from_redis_value(acquired).expect("numbers");
        let acquired = acquired.into_iter().map(Duration::from_micros);
        let took =
            acquired.zip(released).map(|(acquired, released)| acquired.saturating_sub(released));
        let mut took: Vec<_> = took.collect();
        took.sort_unstable();
        took
    }
}

/// Waits until `condition` is true. Panics if the child ends first, or after [`LIMIT`].
async fn until(child: &Rerun, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        let in_time = started.elapsed() < LIMIT && !child.has_ended();
        assert!(in_time, "the child failed or timed out:\n{}", child.output());
        sleep(PAUSE).await;
    }
}

/// Returns the number of commands on a node that set, read or delete locks.
fn lock_commands(node: &Server) -> u64 {
    ["set", "pttl", "evalsha", "eval"].map(|name| node.calls(name)).iter().sum()
}

impl Measurements {
    /// Returns the mean waiting time that would result if all tasks waited in a single queue without other delays. In
    /// such a queue, a task waits for one turn of every task, and a turn takes the mean time between two acquires of
    /// this run. All tasks compete continuously, except in the first and last wait of each task.
    pub(crate) fn fair_share(&self) -> Duration {
        let first = self.turns.iter().map(|turn| turn.at).min().expect("a turn");
        let last = self.turns.iter().map(|turn| turn.at).max().expect("a turn");
        last.saturating_sub(first).mul_f64(ratio(self.tasks as u64, self.turns.len() as u64 - 1))
    }

    pub(crate) fn turns_by_process(&self) -> Vec<usize> {
        let mut turns = BTreeMap::new();
        self.turns.iter().for_each(|turn| *turns.entry(turn.process).or_default() += 1);
        assert_eq!(turns.len(), self.processes, "a process without a turn");
        let mut turns: Vec<_> = turns.into_values().collect();
        turns.sort_unstable();
        turns
    }

    pub(crate) fn waits(&self) -> Vec<Duration> {
        let mut waits: Vec<_> = self.turns.iter().map(|turn| turn.waited).collect();
        waits.sort_unstable();
        waits
    }
}

impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.process, self.at.as_micros(), self.waited.as_micros())
    }
}

impl Turn {
    fn parse(text: &str) -> Self {
        let mut numbers = text.split(' ').map(|number| number.parse::<u64>().expect("a number"));
        let mut next = || numbers.next().expect("three numbers");
        let (process, at, waited) = (next(), next(), next());
        Self {
            process: process.try_into().expect("a process"),
            at: Duration::from_micros(at),
            waited: Duration::from_micros(waited),
        }
    }
}

/// Reads a clock that all processes of a machine share.
fn shared_now() -> Duration {
    SystemTime::UNIX_EPOCH.elapsed().expect("after 1970")
}

pub(crate) fn percentile(sorted: &[Duration], share: usize) -> Duration {
    sorted[(sorted.len() - 1) * share / 100]
}

#[allow(clippy::cast_precision_loss)] // far below 2^52
fn ratio(of: u64, to: u64) -> f64 {
    of as f64 / to as f64
}
