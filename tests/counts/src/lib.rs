//! Measures the cost of a lock: allocations, retained bytes, commands, bytes on the wire, clock reads and system calls.
//! Unlike durations, these counts hardly depend on the machine's load, so tests can limit them.
//!
//! The allocator counts the allocations of all threads, including the alarm thread. Therefore, only one [`Fixture`] can
//! exist at a time.

mod counting_world;

use counting_world::{Calls, CountingWorld};
use futures::future::join_all;
use kit::{Cluster, Server};
use quorlock::{
    Acquire, AcquireError, Builder, Lease, NodeInfo, NodeReport, NodeState, NodeVote, Redlock,
    ReleaseOutcome,
};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, Stats, StatsAlloc};
use std::alloc::System;
use std::future::Future;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::{self, Runtime};

/// The number of Redis nodes in a [`Fixture`].
pub const NODES: usize = 5;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Held by a [`Fixture`], so that only one can exist at a time.
static IN_USE: Mutex<()> = Mutex::new(());

/// A TTL so long that no lease is renewed during a test, even on a slow machine.
const TTL: Duration = Duration::from_hours(1);

/// The number of leases before the bytes of more leases are measured, so that one-time allocations are not counted.
/// Vectors grow at 4,096 and 8,192 entries, and hash maps at 3,584 and 7,168. None grows during a measurement of up to
/// 2,500 leases.
const LEASES_BEFORE: usize = 4_500;

/// Five Redis nodes, a client, and the client's runtime.
pub struct Fixture {
    cluster: Cluster,
    runtime: Runtime,
    redlock: Redlock,
    calls: Arc<Calls>,
    _alone: MutexGuard<'static, ()>,
}

/// The average cost of one cycle, which acquires and releases a lock.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// The number of allocations and reallocations.
    pub allocations: f64,
    /// The number of commands that all nodes executed, including those inside scripts.
    pub commands: f64,
    /// The number of bytes that all nodes received.
    pub bytes: f64,
    /// The number of system calls: socket reads, socket writes, and waits of the runtime. Zero if the fixture does not
    /// count system calls.
    pub calls: f64,
    /// The number of clock reads. Zero if the fixture does not count clock reads.
    pub clock_reads: f64,
}

impl Fixture {
    /// Starts the nodes and connects a client to them.
    ///
    /// # Panics
    /// Panics if a node cannot be started or the client cannot be built.
    pub fn new() -> Self {
        Self::with(runtime::Builder::new_current_thread(), |builder, _| builder)
    }

    /// Creates a fixture that counts the client's system calls and clock reads. The client's alarms are tasks
    /// on the fixture's runtime, so the alarm thread adds no allocations.
    ///
    /// # Panics
    /// Panics if a node cannot be started or the client cannot be built.
    pub fn counting_calls() -> Self {
        Self::counting_calls_on(runtime::Builder::new_current_thread())
    }

    /// Creates a fixture that counts system calls and clock reads, on a runtime with two worker threads.
    ///
    /// # Panics
    /// Panics if a node cannot be started or the client cannot be built.
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
        settings: impl FnOnce(Builder, CountingWorld) -> Builder,
    ) -> Self {
        let alone = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        let cluster = Cluster::start(NODES);
        let runtime = runtime.enable_all().build().expect("a runtime");
        let calls = Arc::new(Calls::default());
        let world = CountingWorld::new(runtime.handle().clone(), calls.clone());
        let builder = Redlock::builder().nodes(cluster.urls());
        let builder = builder.node_timeout(Duration::from_secs(5)).ttl(TTL).max_ttl(TTL);
        let redlock = settings(builder, world).build().expect("valid settings");
        runtime.block_on(redlock.ready()).expect("a runtime");
        Self { cluster, runtime, redlock, calls, _alone: alone }
    }

    /// Runs `tasks` futures concurrently. Each future acquires its own lock with `acquire` and releases it, `each`
    /// times. Returns the average cost of one acquire and release.
    ///
    /// # Panics
    /// Panics if an acquire or a release fails.
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

    /// Spawns `tasks` tasks on the runtime. Each task acquires its own lock with `try_acquire` and releases it, `each`
    /// times. Returns the average cost of one acquire and release.
    ///
    /// # Panics
    /// Panics if an acquire or a release fails.
    pub fn spawned_cycles(&self, tasks: usize, each: usize) -> Cost {
        let cycles = |task: usize| {
            let (redlock, resource) = (self.redlock.clone(), format!("r{task}"));
            async move {
                for _ in 0..each {
                    let lease = redlock.try_acquire(&resource).await.expect("the lock is free");
                    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
                }
            }
        };
        self.cost(tasks * each, || {
            let tasks: Vec<_> = (0..tasks).map(|task| self.runtime.spawn(cycles(task))).collect();
            self.on_runtime(join_all(tasks)).into_iter().for_each(|task| task.expect("no panic"));
        })
    }

    /// Calls `run` twice: first to warm up, then to measure. Each call performs `cycles` cycles. Returns the cost of a
    /// cycle.
    fn cost(&self, cycles: usize, run: impl Fn()) -> Cost {
        run();
        let (before, calls, reads) = (self.node_stats(), self.calls(), self.calls.clock_reads());
        let allocated = allocated_by(run);
        let (calls, reads) = (self.calls() - calls, self.calls.clock_reads() - reads);
        let after = self.node_stats();
        let per_cycle = |count| ratio(count, cycles);
        Cost {
            allocations: per_cycle(allocated.allocations + allocated.reallocations),
            // Subtract the command that queries these statistics on each node.
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
                    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
                }
            }
        };
        self.on_runtime(join_all((0..tasks).map(cycles)));
    }

    /// Acquires `count` leases (at most 2,500) with `options`, and extends each lease `extensions` times. Returns the
    /// average number of bytes that stay allocated per lease.
    ///
    /// # Panics
    /// Panics if an acquire or an extension fails.
    pub fn bytes_per_lease(
        &self,
        count: usize,
        extensions: usize,
        options: impl Fn(Acquire) -> Acquire,
    ) -> f64 {
        let mut leases: Vec<Lease> = Vec::with_capacity(LEASES_BEFORE + count + 2);
        let mut acquire = |resources: Range<usize>| {
            let last = format!("last-{}", resources.end);
            for resource in resources {
                let acquire = options(self.redlock.acquire(format!("{resource:07}")));
                let lease = self.on_runtime(acquire.into_future()).expect("the lock is free");
                for _ in 0..extensions {
                    let extended = self.on_runtime(lease.extend(TTL));
                    extended.expect("nodes are up");
                }
                leases.push(lease);
            }
            // Wait for replies that arrive after a round is decided. Each node replies in order, so once all nodes have
            // voted for the last lease, they have replied to all earlier commands.
            let last = self.on_runtime(self.redlock.acquire(last).into_future());
            let last = last.expect("the lock is free");
            let is_pending = |node: &NodeReport| *node.vote() == NodeVote::Pending;
            self.on_runtime(async {
                while last.report().nodes().iter().any(is_pending) {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                // The client keeps the acquire of a lease for two seconds.
                tokio::time::sleep(Duration::from_millis(2_500)).await;
            });
            leases.push(last);
        };
        acquire(0..LEASES_BEFORE);
        let allocated = allocated_by(|| acquire(LEASES_BEFORE..LEASES_BEFORE + count));
        ratio(allocated.bytes_allocated.saturating_sub(allocated.bytes_deallocated), count)
    }

    /// Connects `count` clients to all nodes. Returns the average number of bytes that stay allocated per client.
    ///
    /// # Panics
    /// Panics if a client cannot be built.
    pub fn bytes_per_client(&self, count: usize) -> f64 {
        let connect = || {
            self.on_runtime(async {
                let clients: Vec<_> = (0..count).map(|_| self.builder().build()).collect();
                let clients: Vec<_> =
                    clients.into_iter().map(|client| client.expect("valid settings")).collect();
                for client in &clients {
                    client.ready().await.expect("a runtime");
                    let is_up = |node: &NodeInfo| *node.state() == NodeState::Up;
                    while !client.nodes().iter().all(is_up) {
                        tokio::time::sleep(Duration::from_millis(2)).await;
                    }
                }
                clients
            })
        };
        // Warm up, so that one-time allocations are not counted.
        let mut kept = vec![connect()];
        let allocated = allocated_by(|| kept.push(connect()));
        ratio(allocated.bytes_allocated.saturating_sub(allocated.bytes_deallocated), count)
    }

    fn builder(&self) -> Builder {
        let builder = Redlock::builder().nodes(self.cluster.urls());
        builder.node_timeout(Duration::from_secs(5)).ttl(TTL).max_ttl(TTL)
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

    /// Returns the total number of commands that the nodes have executed, and of bytes that they have received.
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
