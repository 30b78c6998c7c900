//! Measures what a lock costs in allocations, retained bytes, commands, bytes on the wire, clock reads and
//! system calls. Unlike times, these counts hardly depend on the load of the machine, so tests can bound them.
//!
//! The allocator counts the allocations of every thread, including the alarm thread, so only one fixture may
//! exist at a time.

mod counted;

use counted::{Calls, Counted};
use futures::future::join_all;
use kit::{Cluster, Server};
use quorlock::{Acquire, AcquireError, Builder, Lease, Redlock};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, Stats, StatsAlloc};
use std::alloc::System;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::{self, Runtime};

/// The number of nodes.
pub const NODES: usize = 5;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Held by the fixture in use.
static IN_USE: Mutex<()> = Mutex::new(());

/// Long enough that no lease is renewed during a test, even on a slow machine.
const TTL: Duration = Duration::from_hours(1);

/// Five nodes, and a client with its runtime.
pub struct Fixture {
    cluster: Cluster,
    runtime: Runtime,
    redlock: Redlock,
    calls: Arc<Calls>,
    _alone: MutexGuard<'static, ()>,
}

/// The cost of one cycle: an acquire and a release.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Allocations and reallocations.
    pub allocations: f64,
    /// Commands on all nodes, including those that scripts run.
    pub commands: f64,
    /// Bytes that all nodes have read.
    pub bytes: f64,
    /// System calls: reads, writes, and waits of the runtime. Zero if they are not counted.
    pub calls: f64,
    /// Clock reads. Zero if they are not counted.
    pub clock_reads: f64,
}

impl Fixture {
    /// Starts the nodes, and connects to all of them.
    ///
    /// # Panics
    /// If that fails.
    pub fn new() -> Self {
        Self::with(runtime::Builder::new_current_thread(), |builder, _| builder)
    }

    /// Like [`Self::new`], with a client whose system calls and clock reads are counted. Its alarms are tasks
    /// of the fixture's runtime, so no other thread allocates for them.
    ///
    /// # Panics
    /// If that fails.
    pub fn counting_calls() -> Self {
        Self::counting_calls_on(runtime::Builder::new_current_thread())
    }

    /// Like [`Self::counting_calls`], on a runtime with two worker threads.
    ///
    /// # Panics
    /// If a node does not start.
    pub fn counting_calls_on_two_threads() -> Self {
        let mut threads = runtime::Builder::new_multi_thread();
        threads.worker_threads(2);
        Self::counting_calls_on(threads)
    }

    fn counting_calls_on(runtime: runtime::Builder) -> Self {
        Self::with(runtime, |builder, world| builder.world(Arc::new(world)))
    }

    fn with(
        mut runtime: runtime::Builder,
        settings: impl FnOnce(Builder, Counted) -> Builder,
    ) -> Self {
        let alone = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        let cluster = Cluster::start(NODES);
        let runtime = runtime.enable_all().build().expect("a runtime");
        let calls = Arc::new(Calls::default());
        let world = Counted::new(runtime.handle().clone(), calls.clone());
        let builder = Redlock::builder().nodes(cluster.urls());
        let builder = builder.node_timeout(Duration::from_secs(5)).ttl(TTL).max_ttl(TTL);
        let redlock = settings(builder, world).build().expect("valid settings");
        runtime.block_on(redlock.ready()).expect("a runtime");
        Self { cluster, runtime, redlock, calls, _alone: alone }
    }

    /// Runs `tasks` tasks concurrently; each acquires its own lock with `acquire` and releases it, `each`
    /// times.
    ///
    /// # Panics
    /// If one fails.
    pub fn cycles<A>(
        &self,
        tasks: usize,
        each: usize,
        acquire: impl Fn(&Redlock, &str) -> A,
    ) -> Cost
    where
        A: IntoFuture<Output = Result<Lease, AcquireError>>,
    {
        self.cost(tasks * each, || self.run_cycles(tasks, each, &acquire))
    }

    /// Like [`Self::cycles`] with `try_acquire`, in tasks spawned on the runtime.
    ///
    /// # Panics
    /// If one fails.
    pub fn spawned_cycles(&self, tasks: usize, each: usize) -> Cost {
        let cycles = |task: usize| {
            let (redlock, resource) = (self.redlock.clone(), format!("r{task}"));
            async move {
                for _ in 0..each {
                    let lease = redlock.try_acquire(&resource).await.expect("the lock is free");
                    lease.release().await.expect("nodes are up");
                }
            }
        };
        self.cost(tasks * each, || {
            let tasks: Vec<_> = (0..tasks).map(|task| self.runtime.spawn(cycles(task))).collect();
            self.on_runtime(join_all(tasks)).into_iter().for_each(|task| task.expect("no panic"));
        })
    }

    /// Returns the cost of each of the `cycles` in `run`, which is run once before to warm up.
    fn cost(&self, cycles: usize, run: impl Fn()) -> Cost {
        run();
        let (before, calls, reads) = (self.node_stats(), self.calls(), self.calls.clock_reads());
        let allocated = allocated_by(run);
        let (calls, reads) = (self.calls() - calls, self.calls.clock_reads() - reads);
        let after = self.node_stats();
        let per_cycle = |count| ratio(count, cycles);
        Cost {
            allocations: per_cycle(allocated.allocations + allocated.reallocations),
            // One command on each node is the query of these statistics.
            commands: per_cycle(after.0 - before.0 - NODES),
            bytes: per_cycle(after.1 - before.1),
            calls: per_cycle(calls),
            clock_reads: per_cycle(reads),
        }
    }

    fn run_cycles<A>(&self, tasks: usize, each: usize, acquire: impl Fn(&Redlock, &str) -> A)
    where
        A: IntoFuture<Output = Result<Lease, AcquireError>>,
    {
        let acquire = &acquire;
        let cycles = |task: usize| {
            let resource = format!("r{task}");
            async move {
                for _ in 0..each {
                    let lease = acquire(&self.redlock, &resource).await.expect("the lock is free");
                    lease.release().await.expect("nodes are up");
                }
            }
        };
        self.on_runtime(join_all((0..tasks).map(cycles)));
    }

    /// Acquires `count` leases with the `options`, extends each `extensions` times, and returns the bytes that
    /// stay allocated for each lease.
    ///
    /// # Panics
    /// If an acquire or an extension fails.
    pub fn bytes_per_lease(
        &self,
        count: usize,
        extensions: usize,
        options: impl Fn(Acquire) -> Acquire,
    ) -> f64 {
        let mut leases: Vec<Lease> = Vec::with_capacity(2 * count);
        let mut acquire = |from: usize| {
            for resource in from..from + count {
                let acquire = options(self.redlock.acquire(format!("{resource:07}")));
                let lease = self.on_runtime(acquire.into_future()).expect("the lock is free");
                for _ in 0..extensions {
                    let extended = self.on_runtime(lease.extend(TTL));
                    extended.expect("nodes are up");
                }
                leases.push(lease);
            }
            // Wait for the replies that arrive after the decision.
            self.on_runtime(async { tokio::time::sleep(Duration::from_millis(300)).await });
        };
        // Warm up: one-time allocations are not counted.
        acquire(0);
        let allocated = allocated_by(|| acquire(count));
        ratio(allocated.bytes_allocated.saturating_sub(allocated.bytes_deallocated), count)
    }

    fn on_runtime<F: Future>(&self, work: F) -> F::Output {
        self.runtime.block_on(work)
    }

    fn calls(&self) -> usize {
        let count = self.calls.stream_calls();
        let metrics = self.runtime.metrics();
        let waits: u64 =
            (0..metrics.num_workers()).map(|worker| metrics.worker_park_count(worker)).sum();
        if count == 0 { 0 } else { count + usize::try_from(waits).unwrap_or(usize::MAX) }
    }

    /// Returns the commands that the nodes have run and the bytes that they have read.
    fn node_stats(&self) -> (usize, usize) {
        let of = |node: &Server, field: &str| node.info("stats")[field].parse().unwrap_or(0_usize);
        let sum = |field| self.cluster.iter().map(|node| of(node, field)).sum();
        (sum("total_commands_processed"), sum("total_net_input_bytes"))
    }
}

impl Default for Fixture {
    fn default() -> Self {
        Self::new()
    }
}

fn allocated_by(work: impl FnOnce()) -> Stats {
    let region = Region::new(ALLOCATOR);
    work();
    region.change()
}

#[allow(clippy::cast_precision_loss)] // Both are small.
fn ratio(count: usize, of: usize) -> f64 {
    count as f64 / of as f64
}
