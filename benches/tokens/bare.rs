//! Minimal clients that compare two methods of obtaining a fencing token from the nodes' counters: the library's
//! script, and a transaction without a script.
//!
//! Apart from the method, both clients are identical. A client sends each command to five nodes concurrently and waits
//! for all replies. It proposes a counter value to the nodes, the hint: the highest value that the client has seen plus
//! one, or the wall clock in microseconds if that is greater. After a refusal, the client waits until a node reports
//! that the key has changed.

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
/// The maximum random delay after a node has reported a change. Without the delay, all clients would retry at the same
/// time.
const JITTER: Duration = Duration::from_millis(1);
/// The retry delay if no node reports a change.
const RETRY_DELAY: Duration = Duration::from_millis(100);
/// How often a client raises the counters for one token before it gives up and releases the lock.
const MAX_RAISES: usize = 16;

const DRAW: &str = include_str!("../../src/wire/scripts/acquire_fenced.lua");

/// If the client holds the lock on a node, raises the node's counter. Returns the counter's previous value.
/// `RAISE_SCORE` does the same for a counter in a sorted set.
const RAISE_STRING: &str = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return false end \
     local old = redis.call('GET', KEYS[2]) or '0' \
     if tonumber(old) < tonumber(ARGV[2]) then redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3]) end \
     return old";
const RAISE_SCORE: &str = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return false end \
     local old = redis.call('ZSCORE', KEYS[2], 't') or '0' \
     redis.call('ZADD', KEYS[2], 'GT', ARGV[2], 't') redis.call('PEXPIRE', KEYS[2], ARGV[3]) \
     return old";

const RELEASE: &str =
    "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0";

/// How an acquire raises and reads a node's counter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    /// A script. If the node grants the lock, the counter becomes the hint, or the counter plus one if that is greater.
    Script,
    /// `MULTI` with `SET NX PX` and `ZADD GT CH`. A counter below the hint becomes the hint, even if the node refuses
    /// the lock. The transaction also reads the counter, which the client needs for its next hint and for raising the
    /// counters.
    Transaction,
}

pub(crate) struct Bare {
    method: Method,
    draw: Script,
    raise: Script,
    release: Script,
    nodes: Vec<MultiplexedConnection>,
    pushes: UnboundedReceiver<PushInfo>,
    /// The highest counter value that any node has reported.
    highest: u64,
    attempts: u64,
}

struct Reply {
    is_granted: bool,
    number: u64,
    /// Whether the command raised the counter to the hint.
    is_hint: bool,
}

pub(crate) struct Held {
    key: String,
    value: String,
}

impl Bare {
    pub(crate) async fn connect(method: Method, urls: &[String]) -> Self {
        let (sender, pushes) = mpsc::unbounded_channel();
        let nodes = join_all(urls.iter().map(async |url| {
            let client = Client::open(format!("{url}?protocol=resp3")).expect("a URL");
            let config = AsyncConnectionConfig::new().set_response_timeout(Some(LIMIT));
            let config = config.set_push_sender(sender.clone());
            let node = client.get_multiplexed_async_connection_with_config(&config).await;
            let mut node = node.expect("nodes are up");
            let tracking: Result<(), _> = redis::cmd("CLIENT")
                .arg(&["TRACKING", "ON", "NOLOOP"])
                .query_async(&mut node)
                .await;
            tracking.expect("tracking is supported");
            node
        }));
        let raise = if method == Method::Script { RAISE_STRING } else { RAISE_SCORE };
        let [draw, raise, release] = [DRAW, raise, RELEASE].map(Script::new);
        Self { method, draw, raise, release, nodes: nodes.await, pushes, highest: 0, attempts: 0 }
    }

    fn hint(&self) -> u64 {
        let wall_clock = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970");
        u64::try_from(wall_clock.as_micros()).expect("within u64").max(self.highest + 1)
    }

    /// Sends one acquire to all nodes. If the counters do not agree on a token, raises them in a second round trip.
    /// Returns `None` if the lock is held, or if raising the counters failed.
    async fn attempt(&mut self, key: &str) -> Option<Acquired<Held>> {
        self.attempts += 1;
        let value = format!("{}/{}", std::process::id(), self.attempts);
        let (held, hint) = (Held { key: key.to_owned(), value }, self.hint());
        let draws = self.nodes.iter().map(|node| self.draw(node.clone(), &held, hint));
        let replies = join_all(draws).await;
        self.record(replies.iter().map(|reply| reply.number));
        if replies.iter().filter(|reply| reply.is_granted).count() < QUORUM {
            self.release(held).await;
            return None;
        }
        if let Some(token) = one_round(self.method, &replies, hint) {
            return Some(Acquired { held, token, is_one_round: true });
        }
        let token = match self.method {
            Method::Script => self.raise_drawn(&held, &replies).await,
            Method::Transaction => self.raise_hint(&held, &replies, hint).await,
        };
        if let Some(token) = token {
            return Some(Acquired { held, token, is_one_round: false });
        }
        self.release(held).await;
        None
    }

    async fn draw(&self, mut node: MultiplexedConnection, held: &Held, hint: u64) -> Reply {
        let (Held { key, value }, counter) = (held, counter(&held.key));
        match self.method {
            Method::Script => {
                let mut draw = self.draw.key(key);
                draw.key(counter).arg(hint).arg(COUNTER_TTL_MS).arg(value).arg(TTL_MS);
                match draw.invoke_async(&mut node).await.expect("nodes are up") {
                    Value::Array(held) => {
                        let shown = held.into_iter().next_back().expect("the counter");
                        let number = redis::from_redis_value(shown).expect("digits");
                        Reply { is_granted: false, number, is_hint: false }
                    }
                    drawn => {
                        let number = redis::from_redis_value(drawn).expect("a number");
                        Reply { is_granted: true, number, is_hint: number == hint }
                    }
                }
            }
            Method::Transaction => {
                let mut draw = redis::pipe();
                draw.atomic();
                draw.cmd("SET").arg(key).arg(value).arg("NX").arg("PX").arg(TTL_MS);
                draw.cmd("ZADD").arg(&counter).arg("GT").arg("CH").arg(hint).arg(MEMBER);
                draw.cmd("PEXPIRE").arg(&counter).arg(COUNTER_TTL_MS).ignore();
                draw.cmd("ZSCORE").arg(&counter).arg(MEMBER);
                let reply = draw.query_async(&mut node).await.expect("nodes are up");
                let (set, is_hint, score): (Option<String>, bool, f64) = reply;
                Reply { is_granted: set.is_some(), number: number(score), is_hint }
            }
        }
    }

    /// Raises the counters according to the library's rule. The token is the `QUORUM`-th smallest counter of the
    /// granting nodes, so the counters of a quorum are not higher. A node confirms the token unless its counter was
    /// already higher. Returns the token, or `None` if no quorum confirms it.
    async fn raise_drawn(&mut self, held: &Held, replies: &[Reply]) -> Option<u64> {
        let granted = replies.iter().filter(|reply| reply.is_granted);
        let mut numbers: Vec<_> = granted.map(|reply| reply.number).collect();
        numbers.sort_unstable();
        let token = numbers[QUORUM - 1];
        let old = self.raise(held, token).await;
        let confirm = old.iter().flatten().filter(|old| **old <= token);
        (confirm.count() >= QUORUM).then_some(token)
    }

    /// Raises the counters according to the transaction's rule. The token is above all counter values that the client
    /// has seen. A node confirms the token if the acquire raised its counter to the hint, or if its counter was below a
    /// token that the client tried. Returns the token, or `None` if no quorum confirms one.
    async fn raise_hint(&mut self, held: &Held, replies: &[Reply], hint: u64) -> Option<u64> {
        let mut confirm: Vec<_> =
            replies.iter().map(|reply| reply.is_granted && reply.is_hint).collect();
        for _ in 0..MAX_RAISES {
            let token = self.hint().max(hint);
            let old = self.raise(held, token).await;
            self.record(old.iter().flatten().copied());
            for (confirms, old) in confirm.iter_mut().zip(old) {
                *confirms = old.is_some_and(|old| *confirms || old < token);
            }
            if confirm.iter().filter(|confirms| **confirms).count() >= QUORUM {
                return Some(token);
            }
        }
        None
    }

    /// Raises the counter to `token` on all nodes. Returns the counters' previous values. The value is `None` for a
    /// node on which the client does not hold the lock.
    async fn raise(&self, held: &Held, token: u64) -> Vec<Option<u64>> {
        join_all(self.nodes.iter().map(async |node| {
            let mut raise = self.raise.key(&held.key);
            raise.key(counter(&held.key)).arg(&held.value).arg(token).arg(COUNTER_TTL_MS);
            raise.invoke_async(&mut node.clone()).await.expect("nodes are up")
        }))
        .await
    }

    fn record(&mut self, numbers: impl Iterator<Item = u64>) {
        self.highest = numbers.fold(self.highest, u64::max);
    }

    /// Waits until the key may be free.
    async fn wait(&mut self, key: &str) {
        while self.pushes.try_recv().is_ok() {}
        // The `GET` enables tracking of the key.
        let values = join_all(self.nodes.iter().map(async |node| {
            let value: Result<Option<String>, _> =
                redis::cmd("GET").arg(key).query_async(&mut node.clone()).await;
            value.expect("nodes are up")
        }));
        if values.await.iter().flatten().count() >= QUORUM {
            // A timeout means that no push arrived.
            let _ = timeout(RETRY_DELAY, self.pushes.recv()).await;
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

/// Returns the key of the counter for the lock `key`. As in the library, both keys are in the same cluster slot.
fn counter(key: &str) -> String {
    format!("{key}#counter:{{{key}}}")
}

fn one_round(method: Method, replies: &[Reply], hint: u64) -> Option<u64> {
    let granted = || replies.iter().filter(|reply| reply.is_granted);
    let drew = |number: u64| granted().filter(|reply| reply.number == number).count();
    match method {
        Method::Script => granted().map(|reply| reply.number).find(|n| drew(*n) >= QUORUM),
        Method::Transaction => {
            (granted().filter(|reply| reply.is_hint).count() >= QUORUM).then_some(hint)
        }
    }
}

/// Converts a score, which Redis stores as a double. All numbers here are far below 2^53, so the conversion is exact.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn number(score: f64) -> u64 {
    score as u64
}
