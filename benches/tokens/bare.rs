//! Contenders without the library, to compare two ways to draw a token: by the library's script, and by the way that
//! the library does not take, a transaction without a script.
//!
//! All else is the same for both. They ask five nodes at once and wait for all answers; hint at the highest number that
//! they have seen and one more, or at their wall clock if that is higher; and wait until a node says that the key has
//! changed.

use crate::skewed::{Acquired, Contender, LIMIT};
use futures::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, PushInfo, Script, Value};
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::time::{sleep, timeout};

const QUORUM: usize = 3;
const TTL_MS: u64 = 30_000;
const COUNTER_TTL_MS: u64 = 86_400_000;
/// The member of the sorted set whose score is the counter.
const MEMBER: &str = "t";
/// Who was told that the key has changed tries after up to so long, so that not all do at once.
const JITTER: Duration = Duration::from_millis(1);
/// Who is not told tries again after so long.
const UNTOLD: Duration = Duration::from_millis(100);
/// So often a token is raised before its holder gives the lock back.
const RAISES: usize = 16;

const DRAW: &str = include_str!("../../src/wire/scripts/acquire_fenced.lua");

/// Both raise the counter, if the lock is still ours, and return where it stood.
const RAISE_STRING: &str = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return false end \
     local stood = redis.call('GET', KEYS[2]) or '0' \
     if tonumber(stood) < tonumber(ARGV[2]) then redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3]) end \
     return stood";
const RAISE_SCORE: &str = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return false end \
     local stood = redis.call('ZSCORE', KEYS[2], 't') or '0' \
     redis.call('ZADD', KEYS[2], 'GT', ARGV[2], 't') redis.call('PEXPIRE', KEYS[2], ARGV[3]) \
     return stood";

const RELEASE: &str =
    "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0";

/// How a node draws.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// One more than what its counter shows, or the hint if that is more; only with a grant.
    Script,
    /// `MULTI` of `SET NX PX` and `ZADD GT CH`: the hint, if that is more than what its counter shows; with a
    /// refusal as well. What the counter shows then is read in it, for the next hint and to raise it by.
    Transaction,
}

pub(crate) struct Bare {
    way: Way,
    draw: Script,
    raise: Script,
    release: Script,
    nodes: Vec<MultiplexedConnection>,
    told: UnboundedReceiver<PushInfo>,
    /// The highest number that a counter has shown.
    seen: u64,
    attempts: u64,
}

/// What a node said to an acquire.
struct Answer {
    is_granted: bool,
    /// Where the counter stands now.
    number: u64,
    /// True if that is the hint, and was less before.
    is_put: bool,
}

pub(crate) struct Held {
    key: String,
    value: String,
}

impl Bare {
    pub(crate) async fn connect(way: Way, urls: &[String]) -> Self {
        let (tell, told) = mpsc::unbounded_channel();
        let nodes = join_all(urls.iter().map(async |url| {
            let client = Client::open(format!("{url}?protocol=resp3")).expect("a URL");
            let config = AsyncConnectionConfig::new().set_response_timeout(Some(LIMIT));
            let config = config.set_push_sender(tell.clone());
            let node = client.get_multiplexed_async_connection_with_config(&config).await;
            let mut node = node.expect("nodes are up");
            let tracking: Result<(), _> = redis::cmd("CLIENT")
                .arg(&["TRACKING", "ON", "NOLOOP"])
                .query_async(&mut node)
                .await;
            tracking.expect("it tells of changes");
            node
        }));
        let raise = if way == Way::Script { RAISE_STRING } else { RAISE_SCORE };
        let [draw, raise, release] = [DRAW, raise, RELEASE].map(Script::new);
        Self { way, draw, raise, release, nodes: nodes.await, told, seen: 0, attempts: 0 }
    }

    /// The library's rule.
    fn hint(&self) -> u64 {
        let wall_clock = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970");
        u64::try_from(wall_clock.as_micros()).expect("64 bits are enough").max(self.seen + 1)
    }

    /// Asks all nodes once, and raises what they have drawn if it has to. `None` if others have the lock.
    async fn attempt(&mut self, key: &str) -> Option<Acquired<Held>> {
        self.attempts += 1;
        let value = format!("{}/{}", std::process::id(), self.attempts);
        let (held, hint) = (Held { key: key.to_owned(), value }, self.hint());
        let draws = self.nodes.iter().map(|node| self.draw(node.clone(), &held, hint));
        let answers = join_all(draws).await;
        self.see(answers.iter().map(|answer| answer.number));
        if answers.iter().filter(|answer| answer.is_granted).count() < QUORUM {
            self.release(held).await;
            return None;
        }
        if let Some(token) = one_round(self.way, &answers, hint) {
            return Some(Acquired { held, token, is_one_round: true });
        }
        let token = match self.way {
            Way::Script => self.raise_drawn(&held, &answers).await,
            Way::Transaction => self.raise_put(&held, &answers, hint).await,
        };
        if let Some(token) = token {
            return Some(Acquired { held, token, is_one_round: false });
        }
        self.release(held).await;
        None
    }

    /// Asks one node.
    async fn draw(&self, mut node: MultiplexedConnection, held: &Held, hint: u64) -> Answer {
        let (Held { key, value }, counter) = (held, counter(&held.key));
        match self.way {
            Way::Script => {
                let mut draw = self.draw.key(key);
                draw.key(counter).arg(hint).arg(COUNTER_TTL_MS).arg(value).arg(TTL_MS);
                match draw.invoke_async(&mut node).await.expect("nodes are up") {
                    Value::Array(held) => {
                        let shown = held.into_iter().next_back().expect("what the counter shows");
                        let number = redis::from_redis_value(shown).expect("digits");
                        Answer { is_granted: false, number, is_put: false }
                    }
                    drawn => {
                        let number = redis::from_redis_value(drawn).expect("a number");
                        Answer { is_granted: true, number, is_put: number == hint }
                    }
                }
            }
            Way::Transaction => {
                let mut draw = redis::pipe();
                draw.atomic();
                draw.cmd("SET").arg(key).arg(value).arg("NX").arg("PX").arg(TTL_MS);
                draw.cmd("ZADD").arg(&counter).arg("GT").arg("CH").arg(hint).arg(MEMBER);
                draw.cmd("PEXPIRE").arg(&counter).arg(COUNTER_TTL_MS).ignore();
                draw.cmd("ZSCORE").arg(&counter).arg(MEMBER);
                let answer = draw.query_async(&mut node).await.expect("nodes are up");
                let (set, is_put, score): (Option<String>, bool, f64) = answer;
                Answer { is_granted: set.is_some(), number: number(score), is_put }
            }
        }
    }

    /// The library's rule: the highest of the lowest numbers of a quorum, which a node confirms where it has
    /// drawn no higher one.
    async fn raise_drawn(&mut self, held: &Held, answers: &[Answer]) -> Option<u64> {
        let granted = answers.iter().filter(|answer| answer.is_granted);
        let mut numbers: Vec<_> = granted.map(|answer| answer.number).collect();
        numbers.sort_unstable();
        let token = numbers[QUORUM - 1];
        let stood = self.raise(held, token).await;
        let confirm = stood.iter().flatten().filter(|stood| **stood <= token);
        (confirm.count() >= QUORUM).then_some(token)
    }

    /// The other rule: a number above all that are known, which a node confirms where the hint was put when it
    /// granted, or where its counter was below a number of ours since.
    async fn raise_put(&mut self, held: &Held, answers: &[Answer], hint: u64) -> Option<u64> {
        let mut confirm: Vec<_> =
            answers.iter().map(|answer| answer.is_granted && answer.is_put).collect();
        for _ in 0..RAISES {
            let token = self.hint().max(hint);
            let stood = self.raise(held, token).await;
            self.see(stood.iter().flatten().copied());
            for (confirms, stood) in confirm.iter_mut().zip(stood) {
                *confirms = stood.is_some_and(|stood| *confirms || stood < token);
            }
            if confirm.iter().filter(|confirms| **confirms).count() >= QUORUM {
                return Some(token);
            }
        }
        None
    }

    /// Where the counters stood; `None` where the lock is not ours.
    async fn raise(&self, held: &Held, token: u64) -> Vec<Option<u64>> {
        join_all(self.nodes.iter().map(async |node| {
            let mut raise = self.raise.key(&held.key);
            raise.key(counter(&held.key)).arg(&held.value).arg(token).arg(COUNTER_TTL_MS);
            raise.invoke_async(&mut node.clone()).await.expect("nodes are up")
        }))
        .await
    }

    fn see(&mut self, numbers: impl Iterator<Item = u64>) {
        self.seen = numbers.fold(self.seen, u64::max);
    }

    /// Waits until the key may be free.
    async fn wait(&mut self, key: &str) {
        while self.told.try_recv().is_ok() {}
        // What was read here, a change is told of.
        let stands = join_all(self.nodes.iter().map(async |node| {
            let stands: Result<Option<String>, _> =
                redis::cmd("GET").arg(key).query_async(&mut node.clone()).await;
            stands.expect("nodes are up")
        }));
        if stands.await.iter().flatten().count() >= QUORUM {
            // An error is that nobody has told.
            let _ = timeout(UNTOLD, self.told.recv()).await;
        }
        sleep(JITTER.mul_f64(rand::random::<f64>())).await;
    }
}

impl Contender for Bare {
    type Held = Held;

    async fn acquire(&mut self, key: &str) -> Acquired<Held> {
        loop {
            if let Some(won) = self.attempt(key).await {
                return won;
            }
            self.wait(key).await;
        }
    }

    async fn release(&mut self, held: Held) {
        let released = join_all(self.nodes.iter().map(async |node| {
            self.release
                .key(&held.key)
                .arg(&held.value)
                .invoke_async::<i64>(&mut node.clone())
                .await
        }));
        for node in released.await {
            node.expect("nodes are up");
        }
    }
}

/// In the slot of its key, as the library has it.
fn counter(key: &str) -> String {
    format!("{key}#counter:{{{key}}}")
}

/// The token, if it needs no round of its own.
fn one_round(way: Way, answers: &[Answer], hint: u64) -> Option<u64> {
    let granted = || answers.iter().filter(|answer| answer.is_granted);
    let drew = |number: u64| granted().filter(|answer| answer.number == number).count();
    match way {
        Way::Script => granted().map(|answer| answer.number).find(|n| drew(*n) >= QUORUM),
        Way::Transaction => {
            (granted().filter(|answer| answer.is_put).count() >= QUORUM).then_some(hint)
        }
    }
}

/// Scores are doubles; these are far below 2^53.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn number(score: f64) -> u64 {
    score as u64
}
