//! Runs the clients of one process for the length of one measurement (a slice). Records cycles, latencies, resource
//! usage and failures.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::contender::Contender;
use crate::scenario::Work;
use crate::tally::{Failures, Measured, fail};
use crate::usage::Usage;

/// How long a task may run after the end of a slice before it is aborted.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// The idle time after a slice. Without it, the last packets of a slice would be measured in the next one.
pub(crate) const SETTLE_TIME: Duration = Duration::from_millis(20);

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Slice {
    pub(crate) tasks: usize,
    /// The number of this process's first task. Tasks are numbered across all worker processes.
    pub(crate) first: usize,
    pub(crate) work: Work,
    /// No new cycle starts after this time.
    pub(crate) length: Duration,
    /// The prefix of the keys. Each slice needs a new prefix, because an aborted task may leave keys.
    pub(crate) key_prefix: String,
}

pub(crate) async fn run<C: Contender>(slice: &Slice, clients: &[Arc<C>]) -> Measured {
    let logs: Vec<Arc<TaskLog>> = (0..slice.tasks).map(|_| Arc::default()).collect();
    let mut running = JoinSet::new();
    let before = Usage::now();
    let start = Instant::now();
    for (index, log) in logs.iter().enumerate() {
        let key = match slice.work {
            Work::SharedKey { .. } => slice.key_prefix.clone(),
            _ => format!("{}:{}", slice.key_prefix, slice.first + index),
        };
        let several = if let Work::Several(several) = slice.work { several } else { 0 };
        let task = Task {
            client: Arc::clone(&clients[index % clients.len()]),
            keys: (0..several).map(|number| format!("{key}:{number}")).collect(),
            key,
            work: slice.work,
            log: Arc::clone(log),
        };
        running.spawn(task.run(start, slice.length));
    }
    let all = async { while running.join_next().await.is_some() {} };
    if tokio::time::timeout(slice.length + GRACE, all).await.is_err() {
        running.shutdown().await;
    }
    let elapsed = start.elapsed();
    tokio::time::sleep(SETTLE_TIME).await;
    let usage = Usage::now() - before;
    summarize(&logs, elapsed, usage)
}

/// Combines the logs of the tasks. An aborted task counts as a failure.
fn summarize(logs: &[Arc<TaskLog>], elapsed: Duration, usage: Usage) -> Measured {
    let mut measured = Measured { elapsed, usage, ..Measured::default() };
    for log in logs {
        let mut entries = log.entries();
        if entries.ended.is_none() {
            fail(&mut entries.failures, format!("aborted {GRACE:?} after the end of the slice"));
        }
        let ended = entries.ended.unwrap_or(elapsed);
        measured.rate += count(entries.latencies_ns.len()) / ended.as_secs_f64();
        measured.latencies_ns.append(&mut entries.latencies_ns);
        measured.holds_ns.append(&mut entries.holds_ns);
        for (kind, failure) in std::mem::take(&mut entries.failures) {
            let known = measured.failures.entry(kind);
            known.and_modify(|known| known.count += failure.count).or_insert(failure);
        }
    }
    measured
}

pub(crate) fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).expect("a slice has fewer than 2^32 cycles"))
}

/// Returns the time in nanoseconds, from a clock that all processes of the machine share.
fn shared_now_ns() -> u64 {
    let now = Duration::try_from(clock_gettime(ClockId::Monotonic));
    let now = now.expect("the time since the boot is never negative");
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// The log of one task, which remains available if the task is aborted.
#[derive(Default)]
struct TaskLog(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    latencies_ns: Vec<u64>,
    failures: Failures,
    holds_ns: Vec<(u64, u64)>,
    ended: Option<Duration>,
}

impl TaskLog {
    fn entries(&self) -> std::sync::MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Task<C> {
    client: Arc<C>,
    key: String,
    /// The keys that the task locks together.
    keys: Vec<String>,
    work: Work,
    log: Arc<TaskLog>,
}

impl<C: Contender> Task<C> {
    /// Starts new cycles until `length` has passed since `start`.
    async fn run(self, start: Instant, length: Duration) {
        let mut extended = None;
        while start.elapsed() < length {
            let outcome = match self.work {
                Work::Extend => self.extend(&mut extended).await,
                _ => self.once().await,
            };
            let mut entries = self.log.entries();
            match outcome {
                Ok(latency) => {
                    let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
                    entries.latencies_ns.push(nanos);
                }
                Err(reason) => fail(&mut entries.failures, reason),
            }
        }
        self.log.entries().ended = Some(start.elapsed());
        if let Some(lock) = extended
            && let Err(reason) = self.client.unlock(lock).await
        {
            fail(&mut self.log.entries().failures, reason);
        }
    }

    /// Extends `lock`, and returns the duration of the extension. If `lock` is `None`, acquires the lock first.
    async fn extend(&self, lock: &mut Option<C::Lock>) -> Result<Duration, String> {
        let lock = match lock {
            Some(lock) => lock,
            none => none.insert(self.client.lock(&self.key).await?),
        };
        let start = Instant::now();
        self.client.extend(lock).await?;
        Ok(start.elapsed())
    }

    /// Runs one cycle and returns its latency. [`Work`] defines which time counts as the latency.
    async fn once(&self) -> Result<Duration, String> {
        let start = Instant::now();
        match self.work {
            Work::OwnKey | Work::Extend => {
                self.client.cycle(&self.key).await?;
                Ok(start.elapsed())
            }
            Work::Fenced => {
                let lock = self.client.lock_fenced(&self.key).await?;
                self.client.unlock(lock).await?;
                Ok(start.elapsed())
            }
            Work::Several(_) => {
                let lock = self.client.lock_several(&self.keys).await?;
                self.client.unlock(lock).await?;
                Ok(start.elapsed())
            }
            Work::SharedKey { hold } => {
                let lock = self.client.lock_waiting(&self.key).await?;
                let waited = start.elapsed();
                let started = shared_now_ns();
                tokio::time::sleep(hold).await;
                self.log.entries().holds_ns.push((started, shared_now_ns()));
                self.client.unlock(lock).await?;
                Ok(waited)
            }
        }
    }
}
