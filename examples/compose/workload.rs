//! Clients that compete, and a counter for each resource that only its holder may change.

use crate::record::{End, Hold};
use kit::Server;
use quorlock::{AcquireError, Lease, Redlock, RetryPolicy};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::sleep;

pub(crate) const TTL: Duration = Duration::from_secs(2);
/// The last one is held for longer than the ttl, and renewed.
pub(crate) const RESOURCES: [&str; 3] = ["orders", "stock", "nightly"];

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// What the clients share.
pub(crate) struct Workload {
    begun: Instant,
    is_over: AtomicBool,
    holds: Mutex<Vec<Hold>>,
    /// Acquires that failed, by reason.
    refusals: Mutex<BTreeMap<&'static str, u64>>,
    /// The counters, on a server that nothing is done to.
    counters: Server,
    /// How often each was counted up.
    counted: [AtomicU64; RESOURCES.len()],
}

impl Workload {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            begun: Instant::now(),
            is_over: AtomicBool::new(false),
            holds: Mutex::default(),
            refusals: Mutex::default(),
            counters: Server::start(),
            counted: Default::default(),
        })
    }

    pub(crate) fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    pub(crate) fn tell(&self, what: &str) {
        println!("{:6.2} s  {what}", self.now().as_secs_f64());
    }

    pub(crate) fn holds(&self) -> Vec<Hold> {
        self.holds.lock().unwrap().clone()
    }

    pub(crate) fn refusals(&self) -> BTreeMap<&'static str, u64> {
        self.refusals.lock().unwrap().clone()
    }

    /// How many locks were won between two times and have ended since.
    pub(crate) fn won(&self, from: Duration, until: Duration) -> usize {
        let is_within = |hold: &&Hold| (from..until).contains(&hold.from);
        self.holds.lock().unwrap().iter().filter(is_within).count()
    }

    /// Lets the clients end after what they are doing.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// How often each counter was counted up in vain, because another wrote in between.
    pub(crate) fn lost_updates(&self) -> u64 {
        let lost = RESOURCES.iter().zip(&self.counted).map(|(resource, counted)| {
            let written = self.counters.get(resource).unwrap_or_default();
            let written = String::from_utf8_lossy(&written).parse().unwrap_or(0);
            counted.load(Ordering::Relaxed).abs_diff(written)
        });
        lost.sum()
    }

    /// One tenure: reads the counter, takes its time, and writes it back if the lease is still
    /// valid.
    async fn hold(&self, client: usize, resource: usize, lease: Lease, work: Duration) {
        let from = self.now();
        let name = RESOURCES[resource];
        let before: Option<u64> = self.counter("GET", &[name.to_owned()]).await;
        let lost = tokio::select! {
            () = sleep(work) => None,
            why = lease.lost() => Some(why),
        };
        if let Some(why) = lost {
            self.tell(&format!("client {client} is told that {name} is lost: {why}"));
        }
        if lease.is_valid() {
            let next = before.unwrap_or(0) + 1;
            self.counter::<()>("SET", &[name.to_owned(), next.to_string()]).await;
            self.counted[resource].fetch_add(1, Ordering::Relaxed);
        }
        let valid_until = lease.valid_until().saturating_duration_since(self.begun);
        let until = self.now();
        let end = match lost {
            Some(_) => End::Lost,
            None if until > valid_until => End::ValidUntil,
            None => End::Released,
        };
        let until = until.min(valid_until).max(from);
        self.holds.lock().unwrap().push(Hold { resource, client, from, until, end });
        // Too few answers, where nodes are away: they are told when they are back.
        let _ = lease.release().await;
    }

    /// Runs a command on the server of the counters.
    async fn counter<T>(&self, command: &str, args: &[String]) -> T
    where
        T: redis::FromRedisValue + Send + 'static,
    {
        let (url, mut command) = (self.counters.url(), redis::cmd(command));
        command.arg(args);
        let work = move || command.query(&mut redis::Client::open(url)?.get_connection()?);
        let done = tokio::task::spawn_blocking(work).await.expect("no panic");
        done.expect("the counters' server answers")
    }

    async fn compete(self: Arc<Self>, client: usize, resource: usize, redlock: Redlock) {
        let is_long = resource + 1 == RESOURCES.len();
        let mut round = 0;
        while !self.is_over.load(Ordering::Relaxed) {
            round += 1;
            let mut acquire = redlock.acquire(RESOURCES[resource]).wait(ms(1_000));
            if is_long {
                acquire = acquire.auto_extend(Duration::from_secs(60));
            }
            match acquire.await {
                Ok(lease) => {
                    let work = if is_long { TTL + ms(500) } else { ms(5 + 7 * round % 40) };
                    self.hold(client, resource, lease, work).await;
                }
                Err(error) => {
                    let reason = reason(&error);
                    *self.refusals.lock().unwrap().entry(reason).or_default() += 1;
                }
            }
            sleep(ms(5 + 11 * round % 30)).await;
        }
    }
}

fn reason(error: &AcquireError) -> &'static str {
    match error {
        AcquireError::Contended { .. } => "held by another",
        AcquireError::NoQuorum { .. } => "no quorum",
        AcquireError::Timeout { .. } => "no time left",
        _ => "other",
    }
}

/// A client of these nodes.
pub(crate) fn client(urls: &[String]) -> Redlock {
    let settings = Redlock::builder().nodes(urls).ttl(TTL).max_ttl(TTL).node_timeout(ms(100));
    let retry = RetryPolicy::jittered(ms(5)..ms(60));
    settings.retry(retry).build().expect("these settings can work")
}

/// Starts a task for each client and resource.
pub(crate) fn start(workload: &Arc<Workload>, clients: &[Redlock]) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for (client, redlock) in clients.iter().enumerate() {
        for resource in 0..RESOURCES.len() {
            tasks.spawn(workload.clone().compete(client, resource, redlock.clone()));
        }
    }
    tasks
}
