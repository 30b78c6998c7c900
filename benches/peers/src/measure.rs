//! One slice of one contender: cycles, latencies, CPU time, failures.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use kit::Cluster;
use rustix::time::{ClockId, clock_gettime};
use tokio::task::JoinSet;

use crate::contender::Contender;
use crate::scenario::Work;

/// A task that has not come back this long after the end of its slice is aborted.
const GRACE: Duration = Duration::from_secs(5);

/// Idle time after a slice, so that its last packets are charged to it and not to the next one.
const QUIET: Duration = Duration::from_millis(20);

/// Latencies are kept between 1 us and 2 min, in nanoseconds, to three digits.
const LATENCY_NS: (u64, u64) = (1_000, 120_000_000_000);

/// What one slice came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Cycles finished.
    pub(crate) cycles: u64,
    /// Cycles per second: for each task its cycles over the time until its last one ended, summed.
    pub(crate) rate: f64,
    /// From the start until the last task came back or was aborted.
    pub(crate) elapsed: Duration,
    /// User and system CPU time of this process, over all threads.
    pub(crate) cpu: Duration,
    /// The same of the nodes that can be asked, all together, and how many those are.
    pub(crate) servers: (Duration, usize),
}

/// All that is known of one contender in one scenario.
pub(crate) struct Measurements {
    /// One entry for each measured slice.
    pub(crate) samples: Vec<Sample>,
    /// Nanoseconds, of all measured slices together.
    pub(crate) latency: Histogram<u64>,
    /// What failed, by kind, warm-up included.
    pub(crate) failures: Failures,
}

/// Failures by kind: the part of the message before its first colon.
pub(crate) type Failures = BTreeMap<String, Failure>;

/// Failures of one kind.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// How many there were.
    pub(crate) count: u64,
    /// The whole message of the first.
    pub(crate) example: String,
}

impl Measurements {
    /// Nothing measured yet.
    pub(crate) fn new() -> Self {
        let latency = Histogram::new_with_bounds(LATENCY_NS.0, LATENCY_NS.1, 3)
            .expect("the bounds are constants that fit");
        Self { samples: Vec::new(), latency, failures: Failures::new() }
    }

    /// Takes over a slice; of a warm-up only the failures count.
    fn absorb(&mut self, sample: Sample, tasks: &[Arc<TaskLog>], warm_up: bool) {
        for task in tasks {
            let entries = task.entries();
            for (kind, failure) in &entries.failures {
                match self.failures.get_mut(kind) {
                    Some(known) => known.count += failure.count,
                    None => drop(self.failures.insert(kind.clone(), failure.clone())),
                }
            }
            if !warm_up {
                for &nanos in &entries.latencies_ns {
                    self.latency.saturating_record(nanos);
                }
            }
        }
        if !warm_up {
            self.samples.push(sample);
        }
    }

    /// Failures of every kind together.
    pub(crate) fn failed(&self) -> u64 {
        self.failures.values().map(|failure| failure.count).sum()
    }
}

/// How a slice is run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice {
    /// How many tasks run at once.
    pub(crate) tasks: usize,
    /// What each does.
    pub(crate) work: Work,
    /// No cycle starts after this.
    pub(crate) length: Duration,
    /// Whether the figures are thrown away.
    pub(crate) warm_up: bool,
}

/// Runs one slice; `key_prefix` must be new, for an aborted task may leave keys behind.
pub(crate) async fn run<C: Contender>(
    slice: Slice,
    cluster: &Cluster,
    clients: &[Arc<C>],
    key_prefix: &str,
    tally: &mut Measurements,
) {
    let (servers_before, _) = servers_cpu(cluster);
    let held = Arc::new(AtomicBool::new(false));
    let logs: Vec<Arc<TaskLog>> = (0..slice.tasks).map(|_| Arc::default()).collect();
    let mut running = JoinSet::new();
    let cpu_before = process_cpu();
    let start = Instant::now();
    for (index, log) in logs.iter().enumerate() {
        let key = match slice.work {
            Work::SharedKey { .. } => key_prefix.to_owned(),
            _ => format!("{key_prefix}:{index}"),
        };
        let several = if let Work::Several(several) = slice.work { several } else { 0 };
        let task = Task {
            client: Arc::clone(&clients[index % clients.len()]),
            keys: (0..several).map(|number| format!("{key}:{number}")).collect(),
            key,
            work: slice.work,
            held: Arc::clone(&held),
        };
        running.spawn(task.run(start, slice.length, Arc::clone(log)));
    }
    let all = async { while running.join_next().await.is_some() {} };
    if tokio::time::timeout(slice.length + GRACE, all).await.is_err() {
        running.shutdown().await;
    }
    let elapsed = start.elapsed();
    tokio::time::sleep(QUIET).await;
    let cpu = process_cpu().saturating_sub(cpu_before);
    let (servers_after, asked) = servers_cpu(cluster);
    let servers = (servers_after.saturating_sub(servers_before), asked);
    let sample = summarize(&logs, elapsed, cpu, servers);
    tally.absorb(sample, &logs, slice.warm_up);
}

/// Adds the tasks up; marks those that were aborted.
fn summarize(
    logs: &[Arc<TaskLog>],
    elapsed: Duration,
    cpu: Duration,
    servers: (Duration, usize),
) -> Sample {
    let mut sample = Sample { cycles: 0, rate: 0.0, elapsed, cpu, servers };
    for log in logs {
        let mut entries = log.entries();
        if entries.ended.is_none() {
            entries.fail(format!("not back {GRACE:?} after the slice, aborted"));
        }
        let cycles = entries.latencies_ns.len();
        let ended = entries.ended.unwrap_or(elapsed);
        sample.cycles += cycles as u64;
        sample.rate += count(cycles) / ended.as_secs_f64();
    }
    sample
}

/// A count as a floating-point number.
fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).expect("a slice has fewer than 2^32 cycles"))
}

/// User and system time of this process, all threads together.
fn process_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).expect("CPU time is never negative")
}

/// User and system time of the nodes that run, all together, and how many those are.
fn servers_cpu(cluster: &Cluster) -> (Duration, usize) {
    let running = cluster.iter().filter(|node| node.is_running() && !node.is_stopped());
    let used = running.map(|node| {
        let info = node.info("cpu");
        let seconds = |name: &str| info.get(name)?.parse::<f64>().ok();
        let used = seconds("used_cpu_user").zip(seconds("used_cpu_sys"));
        used.map_or(Duration::ZERO, |(user, sys)| Duration::from_secs_f64(user + sys))
    });
    used.fold((Duration::ZERO, 0), |(sum, count), used| (sum + used, count + 1))
}

/// What one task writes down; it outlives the task when that is aborted.
#[derive(Default)]
struct TaskLog(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    latencies_ns: Vec<u64>,
    failures: Failures,
    ended: Option<Duration>,
}

impl TaskLog {
    fn entries(&self) -> std::sync::MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    /// Counts a failure.
    fn fail(&mut self, example: String) {
        let kind = example.split(':').next().unwrap_or_default().to_owned();
        let failure = self.failures.entry(kind).or_insert(Failure { count: 0, example });
        failure.count += 1;
    }
}

/// One of the tasks of a slice.
struct Task<C> {
    client: Arc<C>,
    key: String,
    /// Those that are locked together.
    keys: Vec<String>,
    work: Work,
    held: Arc<AtomicBool>,
}

impl<C: Contender> Task<C> {
    /// Cycles until `length` after `start`; the bound is looked at between cycles.
    async fn run(self, start: Instant, length: Duration, log: Arc<TaskLog>) {
        let mut extended = None;
        while start.elapsed() < length {
            let outcome = match self.work {
                Work::Extend => self.extend(&mut extended).await,
                _ => self.once().await,
            };
            let mut entries = log.entries();
            match outcome {
                Ok(latency) => {
                    entries
                        .latencies_ns
                        .push(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
                }
                Err(reason) => entries.fail(reason),
            }
        }
        log.entries().ended = Some(start.elapsed());
        if let Some(lock) = extended
            && let Err(reason) = self.client.unlock(lock).await
        {
            log.entries().fail(reason);
        }
    }

    /// One extension of `lock`, which is acquired if there is none.
    async fn extend(&self, lock: &mut Option<C::Lock>) -> Result<Duration, String> {
        let lock = match lock {
            Some(lock) => lock,
            none => none.insert(self.client.lock(&self.key).await?),
        };
        let start = Instant::now();
        self.client.extend(lock).await?;
        Ok(start.elapsed())
    }

    /// One cycle, and the latency that counts for this kind of work.
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
                let alone = !self.held.swap(true, Ordering::AcqRel);
                tokio::time::sleep(hold).await;
                self.held.store(false, Ordering::Release);
                self.client.unlock(lock).await?;
                if alone { Ok(waited) } else { Err("TWO HOLDERS AT ONCE".to_owned()) }
            }
        }
    }
}
