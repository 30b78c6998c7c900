//! Processes that compete for one fenced lock while their wall clocks differ. The benchmarks also use this file.
//!
//! The parent starts this program again for each process, with a different wall clock. A child reads its [`Assignment`]
//! from the environment.

use kit::{Cluster, Rerun, Server};
use quorlock::{Lease, Redlock, ReleaseOutcome};
use redis::AsyncCommands;
use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::env;
use std::time::{Duration, Instant, SystemTime};
use tokio::time::sleep;

/// The environment variable with a child's assignment. `NODES` and `SERVER` contain URLs.
const ASSIGNMENT: &str = "QUORLOCK_SKEWED_ASSIGNMENT";
const NODES: &str = "QUORLOCK_SKEWED_NODES";
const SERVER: &str = "QUORLOCK_SKEWED_BOARD";

const PROCESSES: u32 = 8;
const PAUSE: Duration = Duration::from_millis(1);
/// The time after which a wait fails the run. It is longer than any wait of a successful run, even on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

pub(crate) const LIBRARY: &str = "library";

pub(crate) trait Contender {
    type Held;

    async fn acquire(&mut self, key: &str) -> Acquired<Self::Held>;

    async fn release(&mut self, held: Self::Held);
}

pub(crate) struct Acquired<H> {
    pub(crate) held: H,
    pub(crate) token: u64,
    pub(crate) is_one_round: bool,
}

/// The instructions for one child.
pub(crate) struct Assignment {
    pub(crate) contender: String,
    pub(crate) nodes: Vec<String>,
    key: String,
    hold: Duration,
    lasting: Duration,
    /// How far the child's wall clock is ahead of the machine's clock.
    ahead: Duration,
}

pub(crate) struct Scenario<'a> {
    pub(crate) contender: &'a str,
    /// The greatest difference between two wall clocks. The processes' clocks are spread evenly over this range.
    pub(crate) apart: Duration,
    /// The minimum time for which each process holds the lock.
    pub(crate) hold: Duration,
    pub(crate) lasting: Duration,
}

/// The servers and arguments of a run: five nodes, a server that the processes use to synchronize, and the arguments of
/// a child.
pub(crate) struct Setup {
    cluster: Cluster,
    server: Server,
    args: &'static [&'static str],
    scenarios: Cell<u32>,
}

/// The result of a run: the number of tokens, and the number of tokens that needed only one round.
pub(crate) struct Turns {
    pub(crate) tokens: u32,
    pub(crate) one_round: u32,
}

pub(crate) struct LibraryClient(Redlock);

impl LibraryClient {
    pub(crate) async fn new(assignment: &Assignment) -> Self {
        let builder =
            Redlock::builder().nodes(&assignment.nodes).node_timeout(Duration::from_secs(5));
        let redlock = builder.ttl(Duration::from_secs(30)).wait(LIMIT).build();
        let redlock = redlock.expect("valid settings");
        redlock.ready().await.expect("nodes are up");
        Self(redlock)
    }
}

impl Contender for LibraryClient {
    type Held = Lease;

    async fn acquire(&mut self, key: &str) -> Acquired<Lease> {
        let confirmations = quorlock_test::token_confirmations(&self.0);
        let held = self.0.acquire(key).fenced().await.expect("the lock becomes free");
        let token = held.token().expect("the lease is fenced").get();
        Acquired {
            held,
            token,
            is_one_round: quorlock_test::token_confirmations(&self.0) == confirmations,
        }
    }

    async fn release(&mut self, held: Lease) {
        assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
    }
}

impl Assignment {
    /// Parses this process's assignment from the environment. Returns `None` if this process is not a child.
    pub(crate) fn given() -> Option<Self> {
        let assignment = env::var(ASSIGNMENT).ok()?;
        let parts: Vec<_> = assignment.split(' ').collect();
        let [contender, key, times @ ..] = parts.as_slice() else {
            panic!("not an assignment: {assignment}")
        };
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

    /// Acquires the lock in turn with the other processes, and prints each acquire.
    pub(crate) async fn take_turns<C: Contender>(self, mut contender: C) {
        self.wait_for_clock().await;
        let server = redis::Client::open(env::var(SERVER).expect("set by the parent"));
        let server = server.expect("a URL").get_multiplexed_async_connection().await;
        let mut server = server.expect("the server is up");
        let _: i64 = server.incr("ready", 1).await.expect("the server is up");
        while !server.exists::<_, bool>("begin").await.expect("the server is up") {
            sleep(PAUSE).await;
        }
        let (mut turns, end) = (Vec::new(), Instant::now() + self.lasting);
        while Instant::now() < end {
            let Acquired { held, token, is_one_round } = contender.acquire(&self.key).await;
            turns.push((monotonic(), token, is_one_round));
            if !self.hold.is_zero() {
                sleep(self.hold).await;
            }
            contender.release(held).await;
        }
        println!();
        for (at, token, is_one_round) in turns {
            println!("turn {} {token} {is_one_round}", at.as_nanos());
        }
    }

    async fn wait_for_clock(&self) {
        let started = Instant::now();
        loop {
            // This call bypasses the preloaded clock.
            let true_time = clock_gettime(ClockId::Realtime);
            let true_time = Duration::try_from(true_time).expect("after 1970");
            let shown = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970");
            let ahead = shown.saturating_sub(true_time);
            if ahead.abs_diff(self.ahead) < Duration::from_micros(500) {
                return;
            }
            assert!(started.elapsed() < LIMIT, "{ahead:?} ahead, expected {:?}", self.ahead);
            sleep(PAUSE).await;
        }
    }
}

impl Setup {
    /// Creates a set-up. `args` are the arguments that make this program run as a child, which only executes its
    /// [`Assignment`].
    pub(crate) fn new(args: &'static [&'static str]) -> Self {
        let scenarios = Cell::new(0);
        Self { cluster: Cluster::start(5), server: Server::start(), args, scenarios }
    }

    /// Runs eight processes that acquire a new lock in turn. Panics if a token is not greater than the previous
    /// holder's token.
    pub(crate) fn run_processes(&self, scenario: &Scenario<'_>) -> Turns {
        self.server.flushall();
        self.scenarios.set(self.scenarios.get() + 1);
        let children: Vec<_> = (0..PROCESSES).map(|number| self.child(scenario, number)).collect();
        let ready = Some(PROCESSES.to_string().into_bytes());
        let has_failed = || children.iter().any(Rerun::has_ended);
        let are_ready = || self.server.get("ready") == ready || has_failed();
        kit::eventually(LIMIT, "all children are ready", are_ready);
        self.server.set("begin", "");
        let mut turns = Vec::new();
        for child in children {
            child.finish(scenario.lasting + 2 * LIMIT);
            let output = child.output();
            let lines = output.lines().filter_map(|line| line.strip_prefix("turn "));
            turns.extend(lines.map(turn));
        }
        turns.sort_unstable();
        for pair in turns.windows(2) {
            assert!(
                pair[0].1 < pair[1].1,
                "{}: a token is below an earlier one",
                scenario.contender
            );
        }
        let count = |number: usize| u32::try_from(number).expect("within u32");
        let one_round = turns.iter().filter(|(.., is_one_round)| *is_one_round).count();
        Turns { tokens: count(turns.len()), one_round: count(one_round) }
    }

    /// Starts the child with this number. Each child's clock is ahead of the previous child's clock by the same
    /// difference.
    fn child(&self, scenario: &Scenario<'_>, number: u32) -> Rerun {
        let &Scenario { contender, apart, hold, lasting } = scenario;
        let ahead = apart * number / (PROCESSES - 1);
        let [hold, lasting, ahead_us] = [hold, lasting, ahead].map(|time| time.as_micros());
        let assignment =
            format!("{contender} r/{} {hold} {lasting} {ahead_us}", self.scenarios.get());
        let (nodes, server) = (self.cluster.urls().join(","), self.server.url());
        let environment = [(ASSIGNMENT, assignment.as_str()), (NODES, &nodes), (SERVER, &server)];
        let child = Rerun::start_with_clock(self.args, &environment);
        child.clock().jump(ahead);
        child
    }
}

impl Turns {
    pub(crate) fn share(&self) -> f64 {
        f64::from(self.one_round) / f64::from(self.tokens)
    }
}

/// Parses a line that a child printed. Returns the time of the acquire, the token, and true if the token needed only
/// one round.
fn turn(line: &str) -> (u64, u64, bool) {
    let mut words = line.split(' ');
    let mut next = || words.next().expect("three words");
    let [at, token] = [next(), next()].map(|word| word.parse().expect("a number"));
    (at, token, next() == "true")
}

/// Reads the monotonic clock, which all processes of the machine share and no process can set.
fn monotonic() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).expect("not negative")
}
