//! The parameters of a run, drawn from its seed.

use crate::call::{Call, CallMix, draw_calls};
use crate::clock::{Instant, MS, S};
use crate::dice::Dice;
use crate::fault::{Fault, draw_faults};
use crate::fencing::Fencing;
use crate::many_waiters;
use crate::mode::{Guarded, Mode, Outside, Single};
use crate::network_quality::{Delays, NetworkQuality};
use crate::process::MOST_PROCESSES;
use crate::restarts::{draw_arrival, draw_starts};
use crate::worker::dice_of;
use quorlock::{RestartGuard, RetryPolicy};
use std::time::Duration;

#[derive(Clone, Debug)]
pub(crate) struct ProcessPlan {
    pub(crate) starts: Instant,
    pub(crate) runtimes: usize,
    /// Whether all connections of the process use its first runtime.
    pub(crate) is_pinned: bool,
    /// The rate of the process's clocks, in millionths of the exact speed.
    pub(crate) rate: u64,
    pub(crate) wall: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct TaskPlan {
    pub(crate) process: usize,
    pub(crate) runtime: usize,
    pub(crate) at: Instant,
    pub(crate) calls: Vec<(usize, Call)>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct FaultPlan {
    pub(crate) id: usize,
    pub(crate) at: Instant,
    pub(crate) lasting: Instant,
    pub(crate) fault: Fault,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) ttl_ms: u64,
    pub(crate) node_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    /// The time at which the faults end.
    pub(crate) horizon: Instant,
}

#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools)] // Independent parameters.
pub(crate) struct Scenario {
    pub(crate) mode: Mode,
    pub(crate) seed: u64,
    pub(crate) nodes: usize,
    pub(crate) resources: usize,
    pub(crate) times: Times,
    pub(crate) guard: RestartGuard,
    /// The nodes that write all commands to disk, as a bit set. If the set is not empty, clients
    /// trust the persistence of these nodes.
    pub(crate) durable: u64,
    /// A node that has been running since long before the run. Every new client can reach it.
    pub(crate) witness: Option<usize>,
    /// The maximum additional delay of each packet until a process has reached `witness`. The
    /// set-up of a connection takes about eight packets, and must end within the connect timeout.
    pub(crate) witness_delay: Instant,
    pub(crate) node_starts: Vec<Instant>,
    /// The end of the initial period without faults. The first processes reach all nodes in this
    /// period.
    pub(crate) calm: Instant,
    /// The length of the shortest clock step: twice the round trip plus 200 ppm of the horizon, and
    /// at least 5 ms. Clocks may drift by up to 200 ppm.
    pub(crate) least_step: Instant,
    pub(crate) fencing: Fencing,
    /// The ttl of an unused fencing counter.
    pub(crate) token_ttl: Duration,
    pub(crate) forgets_counters: bool,
    /// The number of long pauses per thousand pauses of tasks.
    pub(crate) long_pauses: u64,
    pub(crate) retry: RetryPolicy,
    pub(crate) longest_delay: Duration,
    pub(crate) network_quality: NetworkQuality,
    pub(crate) delays: Delays,
    pub(crate) permits_kill: bool,
    pub(crate) forbids_info: bool,
    pub(crate) forbids_time: bool,
    /// Whether nodes permit `CLIENT TRACKING`. If so, they notify clients of changed keys by
    /// pushes.
    pub(crate) pushes: bool,
    /// The rates of the nodes' clocks, in millionths of the exact speed.
    pub(crate) node_rates: Vec<u64>,
    pub(crate) processes: Vec<ProcessPlan>,
    pub(crate) tasks: Vec<TaskPlan>,
    pub(crate) faults: Vec<FaultPlan>,
}

impl Scenario {
    pub(crate) fn draw(mode: Mode, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let dice = &mut dice;
        let (ttl_ms, nodes, share) = draw_sizes(mode, dice);
        let timeout = (ttl_ms * MS / share).max(2 * MS);
        let network_quality = NetworkQuality::draw(mode, ttl_ms * MS, timeout, dice);
        // A connection set-up takes four round trips.
        let connect = (4 * timeout).clamp(40 * MS, S).max(20 * network_quality.delay.1);
        let calm = if mode.keeps_all_data() || mode.is_new_deployment() { 0 } else { connect };
        let ttls = if mode.restarts_groups() || mode.has_steps() { 9 } else { dice.between(3, 7) };
        let short = (ttl_ms * MS * ttls).min(if ttls == 9 { 90 * S } else { 40 * S });
        let horizon = match mode {
            Mode::ManyWaiters => many_waiters::LASTING,
            _ => calm + mode.single().map_or(short, Single::lasting),
        };
        let times = Times {
            ttl_ms,
            node_timeout: Duration::from_nanos(timeout),
            connect_timeout: Duration::from_nanos(connect),
            horizon,
        };
        let longest_delay = if mode == Mode::Quiet { 300 } else { ttl_ms / 4 };
        let (retry, longest_delay) = draw_retry(mode, longest_delay, dice);
        let trusts = matches!(mode, Mode::Guarded(_)) && dice.chance(200);
        // The other modes concentrate on contention for few locks.
        let most: &[usize] = if mode.keeps_all_data() { &[1, 1, 2, 3, 6] } else { &[1, 1, 1, 2] };
        let resources = dice.pick(most);
        let (token_ttl, long_pauses) = draw_token_ttl(mode, seed, ttl_ms);
        let mut scenario = Self {
            mode,
            seed,
            nodes,
            resources,
            times,
            guard: mode.guard(),
            durable: if trusts { dice.below(1 << nodes) } else { 0 },
            witness: mode.is_rolling().then(|| dice.index(nodes)),
            witness_delay: if mode.is_rolling() { dice.pick(&[0, connect / 12]) } else { 0 },
            node_starts: draw_starts(mode, nodes, 2 * ttl_ms * MS, dice),
            calm,
            least_step: (5 * MS).max(4 * network_quality.delay.1 + horizon / 5_000),
            fencing: Fencing::draw(mode, dice),
            token_ttl,
            forgets_counters: mode == Mode::Tokens && dice.chance(300),
            long_pauses: if mode.has_steps() { dice.pick(&[0, 200, 500]) } else { 0 },
            retry,
            longest_delay,
            network_quality,
            delays: Delays::draw(mode, timeout, dice),
            permits_kill: dice.chance(700),
            // Trust in persistence requires `INFO`.
            forbids_info: !trusts && mode == Mode::Guarded(Guarded::Observed) && dice.chance(150),
            forbids_time: forbids_time(mode, seed),
            // Many waiters compete only if nodes notify them of the release by pushes.
            pushes: mode == Mode::ManyWaiters || dice.chance(850),
            node_rates: Vec::new(),
            processes: Vec::new(),
            tasks: Vec::new(),
            faults: Vec::new(),
        };
        if scenario.fencing.is_on && !mode.has_steps() {
            scenario.long_pauses = long_pauses;
        }
        scenario.draw_machines(dice);
        scenario.faults = draw_faults(&scenario, dice);
        scenario.draw_newcomers(dice);
        scenario.tasks = scenario.draw_tasks(dice);
        scenario
    }

    /// Chooses the processes, and the clock rates of processes and nodes, at random. Except in the
    /// mode `FastNodes`, the fastest node clock gains at most 1 % on the slowest client clock.
    /// Redlock's guarantee covers this difference. In modes with clock steps, except `StepDrift`,
    /// rates deviate by at most 100 parts per million, as is typical of quartz clocks.
    fn draw_machines(&mut self, dice: &mut Dice) {
        let mode = self.mode;
        let is_good = mode.has_steps() && mode != Mode::Outside(Outside::StepDrift);
        let most = dice.pick(if is_good { &[0, 50, 100] } else { &[0, 500, 4_900] });
        let rate = |dice: &mut Dice| 1_000_000 - most + dice.pick(&[0, most, 2 * most]);
        let is_fast =
            |dice: &mut Dice| mode == Mode::Outside(Outside::FastNodes) && dice.chance(500);
        let node = |_| if is_fast(dice) { 1_100_000 } else { rate(dice) };
        self.node_rates = (0..self.nodes).map(node).collect();
        let least = if mode.keeps_all_data() { 1 } else { 2 };
        for _ in 0..dice.between(least, MOST_PROCESSES as u64 + 1) {
            let runtimes =
                dice.pick(if mode.is_new_deployment() { &[1, 2, 3] } else { &[1, 1, 1, 2, 3] });
            self.processes.push(ProcessPlan {
                starts: 0,
                // If nodes forbid `INFO`, the restart guard requires a single runtime per client.
                runtimes: if self.forbids_info { 1 } else { runtimes },
                is_pinned: dice.chance(150),
                rate: rate(dice),
                wall: self.fencing.wall(dice),
            });
        }
    }

    fn draw_newcomers(&mut self, dice: &mut Dice) {
        if !self.mode.has_newcomers() {
            return;
        }
        let old = usize::from(!self.mode.is_new_deployment());
        for process in old..self.processes.len() {
            self.processes[process].starts = match self.mode {
                Mode::Guarded(Guarded::Fresh) => draw_arrival(self, dice),
                Mode::Quiet | Mode::Outages => 0,
                Mode::Promise if process < 2 || dice.chance(600) => 0,
                Mode::Promise => dice.below(self.times.horizon),
                _ if dice.chance(500) => 0,
                _ => draw_arrival(self, dice),
            };
        }
    }

    fn draw_tasks(&self, dice: &mut Dice) -> Vec<TaskPlan> {
        if self.mode == Mode::ManyWaiters {
            return self.draw_contenders(dice);
        }
        let palette = CallMix::draw(self, dice);
        let mut id = 0;
        let mut tasks = Vec::new();
        let budget = dice.pick(&[20, 40, 100]);
        let width = dice.between(1, 7);
        for (process, plan) in self.processes.iter().enumerate() {
            let share = budget / self.processes.len();
            for _ in 0..width {
                let count = (share / usize::try_from(width).expect("few")).max(1);
                let calls = draw_calls(&palette, self, count, dice);
                let calls = calls.into_iter().map(|call| {
                    id += 1;
                    (id, call)
                });
                tasks.push(TaskPlan {
                    process,
                    runtime: dice.index(plan.runtimes),
                    at: self.draw_beginning(plan.starts, dice),
                    calls: calls.collect(),
                });
            }
        }
        tasks
    }

    /// Chooses the start of a task at random. In a new deployment, some tasks start only after the
    /// quarantine of the oldest node has ended.
    fn draw_beginning(&self, starts: Instant, dice: &mut Dice) -> Instant {
        if self.mode.is_new_deployment() && dice.chance(300) {
            let first = self.node_starts.iter().min().copied().unwrap_or_default();
            return starts.max(first + self.quarantine_period() + dice.below(2 * self.ttl()));
        }
        starts + dice.below(self.ttl() / 2)
    }

    pub(crate) fn ttl(&self) -> Instant {
        self.times.ttl_ms * MS
    }

    /// Returns the maximum time for which a key exists after it was granted, by any clock.
    pub(crate) fn longest_key(&self) -> Instant {
        2 * self.ttl() / 50 * 51 + 20 * MS
    }

    /// Returns the quarantine period: the maximum time for which clients ignore a node's votes
    /// after a restart or a clock step.
    pub(crate) fn quarantine_period(&self) -> Instant {
        if self.guard == RestartGuard::Off && self.steps() == 0 {
            return 0;
        }
        self.longest_key() + S
    }

    /// Returns the total length of all steps of the nodes' clocks.
    pub(crate) fn steps(&self) -> Instant {
        let step = |it: &FaultPlan| match it.fault {
            Fault::Jump { by, .. } | Fault::Step { by, .. } => by.unsigned_abs(),
            _ => 0,
        };
        self.faults.iter().map(step).sum()
    }

    pub(crate) fn max_ttl(&self) -> Duration {
        Duration::from_millis(2 * self.times.ttl_ms)
    }

    pub(crate) fn parts(&self) -> (Vec<usize>, Vec<usize>) {
        let calls = self.tasks.iter().flat_map(|task| task.calls.iter().map(|(id, _)| *id));
        (calls.collect(), self.faults.iter().map(|fault| fault.id).collect())
    }

    pub(crate) fn only(&self, calls: &[usize], faults: &[usize]) -> Self {
        let mut kept = self.clone();
        for task in &mut kept.tasks {
            task.calls.retain(|(id, _)| calls.contains(id));
        }
        kept.tasks.retain(|task| !task.calls.is_empty());
        kept.faults.retain(|fault| faults.contains(&fault.id));
        kept
    }
}

/// Chooses the TTL of fencing counters, and the number of long pauses per thousand pauses, at
/// random. Some counters expire during long pauses. The values come from a separate generator.
/// Modes that only count violations use long-lived counters.
fn draw_token_ttl(mode: Mode, seed: u64, ttl_ms: u64) -> (Duration, u64) {
    let mut dice = dice_of(seed, 3);
    let (halves, long_pauses) = (dice.pick(&[0, 4, 4, 5, 8, 16]), dice.pick(&[0, 0, 100, 300]));
    if halves == 0 || !mode.is_promised() {
        return (Duration::from_hours(24), 0);
    }
    // The longest ttl is twice `ttl_ms`, and a counter must not expire earlier.
    (Duration::from_millis(halves * ttl_ms / 2), long_pauses)
}

/// Decides at random whether the nodes forbid `TIME`. Modes that depend on readings of clocks never
/// forbid it, and neither does the mode in which every lease must be renewed: a writer that becomes
/// a reader needs `TIME`. The value comes from a separate generator, so that a seed's other parameters do not
/// depend on it.
fn forbids_time(mode: Mode, seed: u64) -> bool {
    let is_used = mode.has_steps() || !(mode.keeps_all_data() || mode.is_new_deployment());
    mode.is_promised() && !is_used && mode != Mode::Outages && Dice::new(!seed).chance(125)
}

/// Chooses three parameters at random: the ttl in milliseconds, the number of nodes, and the ratio
/// of the ttl to the node timeout.
fn draw_sizes(mode: Mode, dice: &mut Dice) -> (u64, usize, u64) {
    if let Some(single) = mode.single() {
        return single.draw_sizes(dice);
    }
    if mode == Mode::ManyWaiters {
        return (10_000, dice.pick(&[3, 5]), 100);
    }
    let ttl_ms = match mode {
        Mode::Guarded(Guarded::Fresh) => dice.pick(&[3_000, 10_000]),
        // The ttl is much longer than any delay, because an expiry must not hide a missing release.
        Mode::Quiet | Mode::Outages => 10_000,
        // The guard uses whole seconds, and the run must be longer than the guard's period.
        mode if mode.restarts_groups() => dice.pick(&[1_000, 1_000, 3_000, 10_000]),
        mode if mode.has_steps() => dice.pick(&[300, 1_000, 3_000, 10_000, 10_000]),
        // The longest ttl exceeds the time of a delivery, because an expiry must not hide a missing
        // release.
        Mode::Promise => dice.pick(&[300, 1_000, 3_000, 10_000, 60_000]),
        _ => dice.pick(&[300, 1_000, 3_000, 10_000]),
    };
    let nodes: &[usize] = match mode {
        Mode::Wiped(_) => &[3, 5, 7],
        mode if mode.has_steps() => &[1, 1, 2, 3, 3, 3, 4, 5, 5, 6, 7],
        _ => &[1, 2, 3, 3, 3, 4, 5, 5, 5, 6, 7],
    };
    let nodes = dice.pick(nodes);
    let share = match mode {
        Mode::Quiet | Mode::Outages => 100,
        _ if ttl_ms == 60_000 => dice.pick(&[60, 200, 600]),
        mode if mode.has_steps() => dice.pick(&[6, 20, 100]),
        _ => dice.pick(&[3, 6, 20, 100]),
    };
    (ttl_ms, nodes, share)
}

fn draw_retry(mode: Mode, longest_ms: u64, dice: &mut Dice) -> (RetryPolicy, Duration) {
    let (short, long) =
        (Duration::from_millis(longest_ms * 2 / 5), Duration::from_millis(longest_ms));
    let policy = if mode == Mode::ManyWaiters {
        RetryPolicy::default()
    } else if dice.chance(500) {
        RetryPolicy::jittered(short..long)
    } else {
        RetryPolicy::exponential(short, long)
    };
    (policy, long)
}
