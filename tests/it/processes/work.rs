//! What processes do that want the same lock, and what comes of it. The benchmarks use it too.
//!
//! The processes are the running program, run again; [`work`] does what the environment says. What
//! they tell each other stands on a server of its own, the board.

use futures::FutureExt;
use kit::{Cluster, Rerun, Server};
use quorlock::{Lease, Redlock, RetryPolicy};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::time::{Duration, Instant, SystemTime};
use tokio::time::sleep;

/// What a child finds in its environment.
const WORK: &str = "QUORLOCK_WORK";
const NODES: &str = "QUORLOCK_NODES";
const BOARD: &str = "QUORLOCK_BOARD";

/// How long it takes at most until a child that asked for the lock stands in line at the nodes.
const SETTLED: Duration = Duration::from_millis(20);
const PAUSE: Duration = Duration::from_millis(1);
/// Bounds the waits of a run that fails; the machine may be busy.
const LIMIT: Duration = Duration::from_secs(60);

/// Five nodes, the board, and how to run this program as a child.
pub(crate) struct Scene {
    cluster: Cluster,
    board: Server,
    args: &'static [&'static str],
}

/// What a crowd saw.
pub(crate) struct Crowd {
    turns: Vec<Turn>,
    tasks: usize,
    processes: usize,
    /// How many commands that set, ask or delete each node was sent for each turn.
    pub(crate) orders_per_turn: f64,
}

/// One time that a task had the lock.
#[derive(Clone, Copy)]
struct Turn {
    /// The process of the task.
    process: u32,
    /// When it got it, by the clock that all processes of a machine share.
    at: Duration,
    waited: Duration,
}

/// Does what the environment says; false if this process is not a child.
pub(crate) async fn work() -> bool {
    let Ok(work) = env::var(WORK) else { return false };
    let (kind, numbers) = work.split_once(' ').expect("a kind of work and numbers");
    let numbers = numbers.split(' ').map(|number| number.parse().expect("a number"));
    let numbers: Vec<u64> = numbers.collect();
    let nodes = env::var(NODES).expect("set by the parent");
    let redlock = client(nodes.split(','));
    let board = redis::Client::open(env::var(BOARD).expect("set by the parent")).expect("a URL");
    let patient = redis::AsyncConnectionConfig::new().set_response_timeout(Some(LIMIT));
    let board = board.get_multiplexed_async_connection_with_config(&patient).await;
    let board = board.expect("the board is up");
    match kind {
        "crowd" => {
            join_crowd(&redlock, board, numbers[0], Duration::from_millis(numbers[1])).await;
        }
        "heir" => inherit(&redlock, board, numbers[0]).await,
        other => panic!("unknown work: {other}"),
    }
    redlock.close().await.expect("nodes are up");
    true
}

/// A client whose timeouts a busy machine does not break.
fn client(nodes: impl IntoIterator<Item = impl AsRef<str>>) -> Redlock {
    let builder = Redlock::builder().nodes(nodes).node_timeout(Duration::from_secs(5));
    builder.ttl(Duration::from_secs(30)).wait(LIMIT).build().expect("good settings")
}

/// Competes with this number of tasks, each of which holds the lock for `hold`, until the parent ends it.
async fn join_crowd(
    redlock: &Redlock,
    mut board: MultiplexedConnection,
    tasks: u64,
    hold: Duration,
) {
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

/// Takes the lock again and again, and looks each time whether it is alone with it.
async fn take_turns(redlock: Redlock, mut board: MultiplexedConnection, hold: Duration) {
    let mut turns = Vec::new();
    while turns.is_empty() || !board.exists::<_, bool>("end").await.expect("the board is up") {
        let asked = Instant::now();
        let lease = redlock.acquire("r").await.expect("its turn comes");
        let (waited, process) = (asked.elapsed(), std::process::id());
        turns.push(Turn { process, at: shared_now(), waited }.to_string());
        let inside: i64 = board.incr("inside", 1).await.expect("the board is up");
        assert_eq!(inside, 1, "others are inside");
        let count: Option<u64> = board.get("count").await.expect("the board is up");
        sleep(hold).await;
        let _: () = board.set("count", count.unwrap_or(0) + 1).await.expect("the board is up");
        let _: i64 = board.decr("inside", 1).await.expect("the board is up");
        assert!(lease.is_valid(), "it was held for longer than its ttl");
        lease.release().await.expect("nodes are up");
    }
    let _: i64 = board.rpush("turns", turns).await.expect("the board is up");
}

/// So many times: waits for the lock that the parent holds, and tells when it had it. Its retry
/// policy alone would never wake it.
async fn inherit(redlock: &Redlock, mut board: MultiplexedConnection, times: u64) {
    for time in 0..times {
        while board.get::<_, Option<u64>>("held").await.expect("the board is up") != Some(time) {
            sleep(PAUSE).await;
        }
        let mut acquire = redlock.acquire("r").retry(RetryPolicy::fixed(Duration::from_secs(600)));
        // Polled once, it has asked the nodes.
        assert!((&mut acquire).now_or_never().is_none(), "it is held");
        let _: () = board.set("asked", time).await.expect("the board is up");
        let lease: Lease = acquire.await.expect("its turn comes");
        let at = shared_now();
        lease.release().await.expect("nodes are up");
        let at = u64::try_from(at.as_micros()).expect("below 2^64");
        let _: i64 = board.rpush("inherited", at).await.expect("the board is up");
    }
}

impl Scene {
    /// `args` are those with which this program calls [`work`] and nothing else.
    pub(crate) fn new(args: &'static [&'static str]) -> Self {
        Self { cluster: Cluster::start(5), board: Server::start(), args }
    }

    fn child(&self, work: &str) -> Rerun {
        let (nodes, board) = (self.cluster.urls().join(","), self.board.url());
        Rerun::start(self.args, &[(WORK, work), (NODES, &nodes), (BOARD, &board)])
    }

    /// Four processes with `tasks` tasks together, each of which holds the lock for 10 ms.
    pub(crate) fn crowd(&self, tasks: usize, lasting: Duration) -> Crowd {
        self.crowd_of(4, tasks, Duration::from_millis(10), lasting)
    }

    /// `tasks` tasks in this number of processes compete for one lock without a pause. Each holds it for `hold`. Panics
    /// if two tasks ever hold it together, if one never acquires it, and if a key is left in the end.
    pub(crate) fn crowd_of(
        &self,
        processes: usize,
        tasks: usize,
        hold: Duration,
        lasting: Duration,
    ) -> Crowd {
        let work = format!("crowd {} {}", tasks / processes, hold.as_millis());
        let children: Vec<_> = (0..processes).map(|_| self.child(&work)).collect();
        let are_ready = || self.board.get("ready") == Some(processes.to_string().into_bytes());
        let has_failed = || children.iter().any(Rerun::has_ended);
        kit::eventually(LIMIT, "all are ready", || are_ready() || has_failed());
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
        let count = self.board.get("count").expect("it was written");
        assert_eq!(count, turns.len().to_string().into_bytes(), "an update was lost");
        kit::eventually(LIMIT, "no key is left", || self.cluster.is_empty());
        let orders: u64 = self.cluster.iter().map(orders).sum();
        let orders_per_turn = ratio(orders, (turns.len() * self.cluster.len()) as u64);
        let turns = turns.iter().map(|turn| Turn::parse(turn)).collect();
        Crowd { turns, tasks, processes, orders_per_turn }
    }

    /// So many times: a lock is held here, another process waits for it, it is released here.
    /// Returns how long it takes each time from there to when the other has it, in ascending order.
    pub(crate) async fn hand_over(&self, times: usize) -> Vec<Duration> {
        let redlock = client(self.cluster.urls());
        let child = self.child(&format!("heir {times}"));
        let mut released = Vec::new();
        for time in 0..times {
            let lease = redlock.acquire("r").await.expect("free in time");
            self.board.set("held", time.to_string());
            let asked = Some(time.to_string().into_bytes());
            until(&child, || self.board.get("asked") == asked).await;
            sleep(SETTLED).await;
            released.push(shared_now());
            lease.release().await.expect("nodes are up");
            let so_many = redis::Value::Int(i64::try_from(time + 1).expect("not that many"));
            until(&child, || self.board.cmd(&["LLEN", "inherited"]) == so_many).await;
        }
        child.finish(LIMIT);
        let inherited = self.board.cmd(&["LRANGE", "inherited", "0", "-1"]);
        let inherited: Vec<u64> = redis::from_redis_value(inherited).expect("numbers");
        let inherited = inherited.into_iter().map(Duration::from_micros);
        let took = inherited.zip(released).map(|(had, released)| had.saturating_sub(released));
        let mut took: Vec<_> = took.collect();
        took.sort_unstable();
        took
    }
}

/// Waits until `condition` holds, or the child has failed.
async fn until(child: &Rerun, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        let in_time = begun.elapsed() < LIMIT && !child.has_ended();
        assert!(in_time, "the child does not do its part:\n{}", child.output());
        sleep(PAUSE).await;
    }
}

/// How many commands that set, ask or delete a node was sent.
fn orders(node: &Server) -> u64 {
    ["set", "pttl", "evalsha", "eval"].map(|name| node.calls(name)).iter().sum()
}

impl Crowd {
    /// What each wait would be if all stood in one line and nothing else took time: as many turns
    /// as there are tasks, each as long as the mean time from one to the next in this very run.
    /// (All want the lock all the time, but for the first and the last wait of each.)
    pub(crate) fn fair_share(&self) -> Duration {
        let first = self.turns.iter().map(|turn| turn.at).min().expect("a turn");
        let last = self.turns.iter().map(|turn| turn.at).max().expect("a turn");
        last.saturating_sub(first).mul_f64(ratio(self.tasks as u64, self.turns.len() as u64 - 1))
    }

    /// The number of turns of each process, in ascending order.
    pub(crate) fn turns_by_process(&self) -> Vec<usize> {
        let mut turns = BTreeMap::new();
        self.turns.iter().for_each(|turn| *turns.entry(turn.process).or_default() += 1);
        assert_eq!(turns.len(), self.processes, "a process without a turn");
        let mut turns: Vec<_> = turns.into_values().collect();
        turns.sort_unstable();
        turns
    }

    /// The waits, in ascending order.
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

/// The time by a clock that all processes of a machine share.
fn shared_now() -> Duration {
    SystemTime::UNIX_EPOCH.elapsed().expect("it is after 1970")
}

/// That percentile of what is in ascending order.
pub(crate) fn percentile(sorted: &[Duration], share: usize) -> Duration {
    sorted[(sorted.len() - 1) * share / 100]
}

#[allow(clippy::cast_precision_loss)] // far below 2^52
fn ratio(of: u64, to: u64) -> f64 {
    of as f64 / to as f64
}
