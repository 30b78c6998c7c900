//! What a lock costs, where it can be counted: allocations, bytes that stay, commands and bytes on the wire, looks at clocks, calls
//! of the system. Counts do not hang on how busy a machine is, so tests can bound them.
//!
//! An allocation counts whoever makes it, also the thread that rings the alarms: so there is one scene at a time.

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

/// How many nodes there are.
pub const NODES: usize = 5;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Held by the scene that is played.
static STAGE: Mutex<()> = Mutex::new(());

/// So long that no lease is renewed while a test runs, on however busy a machine.
const TTL: Duration = Duration::from_hours(1);

/// Five nodes, a client and its runtime.
pub struct Scene {
    cluster: Cluster,
    runtime: Runtime,
    redlock: Redlock,
    calls: Arc<Calls>,
    _alone: MutexGuard<'static, ()>,
}

/// What a cycle costs, one acquire and one release.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Allocations.
    pub allocations: f64,
    /// Commands, over all nodes, those that scripts run included.
    pub commands: f64,
    /// Bytes that the nodes have read, all together.
    pub bytes: f64,
    /// Calls of the system: reads, writes, and waits for either. None unless they are counted.
    pub calls: f64,
    /// Looks at a clock. None unless they are counted.
    pub clock_reads: f64,
}

impl Scene {
    /// Starts the nodes, and connects to all of them.
    ///
    /// # Panics
    /// If that fails.
    pub fn new() -> Self {
        Self::with(runtime::Builder::new_current_thread(), |builder, _| builder)
    }

    /// The same, with a client whose calls of the system and looks at clocks are counted. Its alarms are tasks, so that its
    /// allocations are not those of others.
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
        let alone = STAGE.lock().unwrap_or_else(PoisonError::into_inner);
        let cluster = Cluster::start(NODES);
        let runtime = runtime.enable_all().build().expect("a runtime");
        let calls = Arc::new(Calls::default());
        let world = Counted::new(runtime.handle().clone(), calls.clone());
        let builder = Redlock::builder().nodes(cluster.urls());
        let builder = builder.node_timeout(Duration::from_secs(5)).ttl(TTL).max_ttl(TTL);
        let redlock = settings(builder, world).build().expect("good settings");
        runtime.block_on(redlock.ready()).expect("there is a runtime");
        Self { cluster, runtime, redlock, calls, _alone: alone }
    }

    /// So many `tasks` at once `acquire` and release a lock of their own, each so often.
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
        self.cost(tasks * each, || self.play(tasks, each, &acquire))
    }

    /// Like [`Self::cycles`] with `try_acquire`, in tasks that are spawned on the runtime.
    ///
    /// # Panics
    /// If one fails.
    pub fn spawned_cycles(&self, tasks: usize, each: usize) -> Cost {
        let cycles = |task: usize| {
            let (redlock, resource) = (self.redlock.clone(), format!("r{task}"));
            async move {
                for _ in 0..each {
                    let lease = redlock.try_acquire(&resource).await.expect("a free lock");
                    lease.release().await.expect("nodes are up");
                }
            }
        };
        self.cost(tasks * each, || {
            let tasks: Vec<_> = (0..tasks).map(|task| self.runtime.spawn(cycles(task))).collect();
            self.on_runtime(join_all(tasks)).into_iter().for_each(|task| task.expect("no panic"));
        })
    }

    /// The cost of each of the `cycles` in `play`, measured the second time that it is played.
    fn cost(&self, cycles: usize, play: impl Fn()) -> Cost {
        play();
        let (before, calls, reads) = (self.told(), self.calls(), self.calls.of_clocks());
        let allocated = allocated_by(play);
        let (calls, reads) = (self.calls() - calls, self.calls.of_clocks() - reads);
        let after = self.told();
        let per_cycle = |count| ratio(count, cycles);
        Cost {
            allocations: per_cycle(allocated.allocations + allocated.reallocations),
            // The question itself is one.
            commands: per_cycle(after.0 - before.0 - NODES),
            bytes: per_cycle(after.1 - before.1),
            calls: per_cycle(calls),
            clock_reads: per_cycle(reads),
        }
    }

    fn play<A>(&self, tasks: usize, each: usize, acquire: impl Fn(&Redlock, &str) -> A)
    where
        A: IntoFuture<Output = Result<Lease, AcquireError>>,
    {
        let acquire = &acquire;
        let cycles = |task: usize| {
            let resource = format!("r{task}");
            async move {
                for _ in 0..each {
                    let lease = acquire(&self.redlock, &resource).await.expect("a free lock");
                    lease.release().await.expect("nodes are up");
                }
            }
        };
        self.on_runtime(join_all((0..tasks).map(cycles)));
    }

    /// Acquires so many leases, as `set` says, and extends each so often: how many bytes it keeps allocated.
    ///
    /// # Panics
    /// If one cannot be had or extended.
    pub fn bytes_a_lease(
        &self,
        count: usize,
        extensions: usize,
        set: impl Fn(Acquire) -> Acquire,
    ) -> f64 {
        let mut leases: Vec<Lease> = Vec::with_capacity(2 * count);
        let mut acquire = |from: usize| {
            for resource in from..from + count {
                let acquire = set(self.redlock.acquire(format!("{resource:07}")));
                let lease = self.on_runtime(acquire.into_future()).expect("a free lock");
                for _ in 0..extensions {
                    let extended = self.on_runtime(lease.extend(TTL));
                    extended.expect("nodes are up");
                }
                leases.push(lease);
            }
            // What the last nodes say after the decision is heard, too.
            self.on_runtime(async { tokio::time::sleep(Duration::from_millis(300)).await });
        };
        // What is allocated once is there by then.
        acquire(0);
        let allocated = allocated_by(|| acquire(count));
        ratio(allocated.bytes_allocated.saturating_sub(allocated.bytes_deallocated), count)
    }

    fn on_runtime<F: Future>(&self, work: F) -> F::Output {
        self.runtime.block_on(work)
    }

    fn calls(&self) -> usize {
        let count = self.calls.of_streams();
        let metrics = self.runtime.metrics();
        let waits: u64 =
            (0..metrics.num_workers()).map(|worker| metrics.worker_park_count(worker)).sum();
        if count == 0 { 0 } else { count + usize::try_from(waits).unwrap_or(usize::MAX) }
    }

    /// How many commands the nodes have run, and how many bytes they have read.
    fn told(&self) -> (usize, usize) {
        let of = |node: &Server, field: &str| node.info("stats")[field].parse().unwrap_or(0_usize);
        let sum = |field| self.cluster.iter().map(|node| of(node, field)).sum();
        (sum("total_commands_processed"), sum("total_net_input_bytes"))
    }
}

impl Default for Scene {
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
