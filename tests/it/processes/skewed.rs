//! Processes that want one lock with a fencing token, while their wall clocks differ. The benchmarks use it too.
//!
//! They are the running program, run again, each with a wall clock of its own; a child finds its
//! [`Part`] in the environment.

use kit::{Cluster, Rerun, Server};
use quorlock::{Lease, Redlock};
use redis::AsyncCommands;
use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::env;
use std::time::{Duration, Instant, SystemTime};
use tokio::time::sleep;

/// What a child finds in its environment.
const PART: &str = "QUORLOCK_SKEWED_PART";
const NODES: &str = "QUORLOCK_SKEWED_NODES";
const BOARD: &str = "QUORLOCK_SKEWED_BOARD";

const PROCESSES: u32 = 8;
const PAUSE: Duration = Duration::from_millis(1);
/// Bounds the waits of a run that fails; the machine may be busy.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// The [`Contender`] that is the library.
pub(crate) const LIBRARY: &str = "library";

/// One who wants the lock again and again.
pub(crate) trait Contender {
    type Held;

    /// Waits until it has the lock.
    async fn acquire(&mut self, key: &str) -> Won<Self::Held>;

    async fn release(&mut self, held: Self::Held);
}

/// What an acquire came to.
pub(crate) struct Won<H> {
    pub(crate) held: H,
    pub(crate) token: u64,
    /// False if the token cost a round of its own.
    pub(crate) is_at_once: bool,
}

/// What one child does.
pub(crate) struct Part {
    pub(crate) contender: String,
    pub(crate) nodes: Vec<String>,
    key: String,
    hold: Duration,
    lasting: Duration,
    /// How far its wall clock is ahead of the machine's.
    ahead: Duration,
}

/// What all children do.
pub(crate) struct Scene<'a> {
    pub(crate) contender: &'a str,
    /// How far the wall clocks differ at most: they are as far apart from each other as that allows.
    pub(crate) apart: Duration,
    /// How long each holds the lock, at least.
    pub(crate) hold: Duration,
    pub(crate) lasting: Duration,
}

/// Five nodes, where the processes wait for each other, and how to run this program as a child.
pub(crate) struct Stage {
    cluster: Cluster,
    board: Server,
    args: &'static [&'static str],
    scenes: Cell<u32>,
}

/// What a scene came to: each time that a process had the lock.
pub(crate) struct Turns {
    pub(crate) tokens: u32,
    pub(crate) at_once: u32,
}

/// The library, as a process that has one task uses it.
pub(crate) struct Ours(Redlock);

impl Ours {
    pub(crate) async fn new(part: &Part) -> Self {
        let builder = Redlock::builder().nodes(&part.nodes).node_timeout(Duration::from_secs(5));
        let redlock = builder.ttl(Duration::from_secs(30)).wait(LIMIT).build();
        let redlock = redlock.expect("good settings");
        redlock.ready().await.expect("nodes are up");
        Self(redlock)
    }
}

impl Contender for Ours {
    type Held = Lease;

    async fn acquire(&mut self, key: &str) -> Won<Lease> {
        let confirmations = quorlock_test::token_confirmations(&self.0);
        let held = self.0.acquire(key).fenced().await.expect("its turn comes");
        let token = held.token().expect("it is fenced").get();
        Won {
            held,
            token,
            is_at_once: quorlock_test::token_confirmations(&self.0) == confirmations,
        }
    }

    async fn release(&mut self, held: Lease) {
        held.release().await.expect("nodes are up");
    }
}

impl Part {
    /// What the environment says; `None` if this process is not a child.
    pub(crate) fn given() -> Option<Self> {
        let part = env::var(PART).ok()?;
        let parts: Vec<_> = part.split(' ').collect();
        let [contender, key, times @ ..] = parts.as_slice() else { panic!("no part: {part}") };
        let time = |at: usize| Duration::from_micros(times[at].parse().expect("a number"));
        let nodes = env::var(NODES).expect("set by the parent");
        Some(Self {
            contender: (*contender).to_owned(),
            nodes: nodes.split(',').map(str::to_owned).collect(),
            key: (*key).to_owned(),
            hold: time(0),
            lasting: time(1),
            ahead: time(2),
        })
    }

    /// Takes turns with the other processes, and prints each.
    pub(crate) async fn play<C: Contender>(self, mut contender: C) {
        self.see_clock().await;
        let board = redis::Client::open(env::var(BOARD).expect("set by the parent"));
        let board = board.expect("a URL").get_multiplexed_async_connection().await;
        let mut board = board.expect("the board is up");
        let _: i64 = board.incr("ready", 1).await.expect("the board is up");
        while !board.exists::<_, bool>("begin").await.expect("the board is up") {
            sleep(PAUSE).await;
        }
        let (mut turns, end) = (Vec::new(), Instant::now() + self.lasting);
        while Instant::now() < end {
            let Won { held, token, is_at_once } = contender.acquire(&self.key).await;
            turns.push((monotonic(), token, is_at_once));
            if !self.hold.is_zero() {
                sleep(self.hold).await;
            }
            contender.release(held).await;
        }
        println!();
        for (at, token, is_at_once) in turns {
            println!("turn {} {token} {is_at_once}", at.as_nanos());
        }
    }

    /// Waits until the wall clock is as far ahead as it is to be.
    async fn see_clock(&self) {
        let begun = Instant::now();
        loop {
            // This one is asked of the kernel, whatever is preloaded.
            let true_time = clock_gettime(ClockId::Realtime);
            let true_time = Duration::try_from(true_time).expect("after 1970");
            let shown = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970");
            let ahead = shown.saturating_sub(true_time);
            if ahead.abs_diff(self.ahead) < Duration::from_micros(500) {
                return;
            }
            assert!(begun.elapsed() < LIMIT, "{ahead:?} ahead in place of {:?}", self.ahead);
            sleep(PAUSE).await;
        }
    }
}

impl Stage {
    /// `args` are those with which this program plays its [`Part`] and does nothing else.
    pub(crate) fn new(args: &'static [&'static str]) -> Self {
        let scenes = Cell::new(0);
        Self { cluster: Cluster::start(5), board: Server::start(), args, scenes }
    }

    /// Eight processes take turns, on a lock that was never used before. Panics if a token is not above that of
    /// whoever held the lock before.
    pub(crate) fn play(&self, scene: &Scene<'_>) -> Turns {
        self.board.flushall();
        self.scenes.set(self.scenes.get() + 1);
        let children: Vec<_> = (0..PROCESSES).map(|number| self.child(scene, number)).collect();
        let ready = Some(PROCESSES.to_string().into_bytes());
        let has_failed = || children.iter().any(Rerun::has_ended);
        let are_ready = || self.board.get("ready") == ready || has_failed();
        kit::eventually(LIMIT, "all are ready", are_ready);
        self.board.set("begin", "");
        let mut turns = Vec::new();
        for child in children {
            child.finish(scene.lasting + 2 * LIMIT);
            let output = child.output();
            let lines = output.lines().filter_map(|line| line.strip_prefix("turn "));
            turns.extend(lines.map(turn));
        }
        turns.sort_unstable();
        for pair in turns.windows(2) {
            assert!(pair[0].1 < pair[1].1, "{}: a token after a higher one", scene.contender);
        }
        let count = |number: usize| u32::try_from(number).expect("not that many");
        let at_once = turns.iter().filter(|(.., is_at_once)| *is_at_once).count();
        Turns { tokens: count(turns.len()), at_once: count(at_once) }
    }

    /// The processes' clocks are at equal distances.
    fn child(&self, scene: &Scene<'_>, number: u32) -> Rerun {
        let &Scene { contender, apart, hold, lasting } = scene;
        let ahead = apart * number / (PROCESSES - 1);
        let [hold, lasting, ahead_us] = [hold, lasting, ahead].map(|time| time.as_micros());
        let part = format!("{contender} r/{} {hold} {lasting} {ahead_us}", self.scenes.get());
        let (nodes, board) = (self.cluster.urls().join(","), self.board.url());
        let told = [(PART, part.as_str()), (NODES, &nodes), (BOARD, &board)];
        let child = Rerun::start_with_clock(self.args, &told);
        child.clock().jump(ahead);
        child
    }
}

impl Turns {
    /// The share of the tokens that came at once.
    pub(crate) fn share(&self) -> f64 {
        f64::from(self.at_once) / f64::from(self.tokens)
    }
}

/// When it was, the token, and whether that came at once.
fn turn(line: &str) -> (u64, u64, bool) {
    let mut words = line.split(' ');
    let mut next = || words.next().expect("three words");
    let [at, token] = [next(), next()].map(|word| word.parse().expect("a number"));
    (at, token, next() == "true")
}

/// A clock that all processes of a machine share, and that nobody sets.
fn monotonic() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).expect("not negative")
}
