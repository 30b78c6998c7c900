//! What one seed is about: how many, how fast, who does what, and what goes wrong.

use crate::call::{Call, Palette, draw_calls};
use crate::clock::{Instant, MS, S};
use crate::dice::Dice;
use crate::fault::{Fault, draw_faults};
use crate::fencing::Fencing;
use crate::many_waiters;
use crate::mode::{Guarded, Mode, Outside, Single};
use crate::process::MOST_PROCESSES;
use crate::restarts::{draw_arrival, draw_starts};
use crate::weather::{Nerves, Weather};
use crate::worker::dice_of;
use quorlock::{RestartGuard, RetryPolicy};
use std::time::Duration;

/// A process that uses the library.
#[derive(Clone, Debug)]
pub(crate) struct ProcessPlan {
    pub(crate) starts: Instant,
    pub(crate) runtimes: usize,
    /// True if all connections are on the first of them.
    pub(crate) is_pinned: bool,
    /// Millionths of true time.
    pub(crate) rate: u64,
    /// What its wall clock shows at first.
    pub(crate) wall: u64,
}

/// A task of a process.
#[derive(Clone, Debug)]
pub(crate) struct TaskPlan {
    pub(crate) process: usize,
    pub(crate) runtime: usize,
    pub(crate) at: Instant,
    pub(crate) calls: Vec<(usize, Call)>,
}

/// Something that goes wrong for a while.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FaultPlan {
    pub(crate) id: usize,
    pub(crate) at: Instant,
    pub(crate) lasting: Instant,
    pub(crate) fault: Fault,
}

/// The times of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) ttl_ms: u64,
    pub(crate) node_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    /// When faults end, and healing begins.
    pub(crate) horizon: Instant,
}

#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools)] // Each is a fact of its own.
pub(crate) struct Scenario {
    pub(crate) mode: Mode,
    pub(crate) seed: u64,
    pub(crate) nodes: usize,
    pub(crate) resources: usize,
    pub(crate) times: Times,
    pub(crate) guard: RestartGuard,
    /// A bit for each node that writes all it is told to its disk; if there is one, clients trust in that.
    pub(crate) durable: u64,
    /// A node that is old when the run begins, and is there for whoever comes.
    pub(crate) witness: Option<usize>,
    /// How much longer each packet may take by which it is met. A set-up takes some eight of them, within the
    /// connect timeout.
    pub(crate) shyness: Instant,
    /// When the nodes of a new deployment start.
    pub(crate) node_starts: Vec<Instant>,
    /// Nothing goes wrong before that: whoever is there from the beginning meets all nodes.
    pub(crate) calm: Instant,
    /// The shortest step of a node's clock: twice as long as the ways there and back, and the 200
    /// millionths which clocks may go by themselves.
    pub(crate) least_step: Instant,
    pub(crate) fencing: Fencing,
    /// How long counters stand: as short as can be, or longer, or as long as by default.
    pub(crate) token_ttl: Duration,
    /// Nodes lose their counters, too.
    pub(crate) forgets_counters: bool,
    /// Of a thousand rests of tasks, how many are long.
    pub(crate) naps: u64,
    pub(crate) retry: RetryPolicy,
    pub(crate) longest_delay: Duration,
    pub(crate) weather: Weather,
    pub(crate) nerves: Nerves,
    /// False if `CLIENT KILL` is forbidden.
    pub(crate) kills: bool,
    /// True if users may not ask who a server is.
    pub(crate) hides_info: bool,
    /// True if users may not ask what time it is.
    pub(crate) hides_time: bool,
    /// False if nodes do not permit `CLIENT TRACKING`.
    pub(crate) pushes: bool,
    /// Rates of the nodes' clocks, in millionths of true time.
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
        let weather = Weather::draw(mode, ttl_ms * MS, timeout, dice);
        // A set-up takes four round trips.
        let connect = (4 * timeout).clamp(40 * MS, S).max(20 * weather.delay.1);
        let calm = if mode.is_whole() || mode.is_fresh() { 0 } else { connect };
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
        // In the other modes it is about what two do with one lock.
        let most: &[usize] = if mode.is_whole() { &[1, 1, 2, 3, 6] } else { &[1, 1, 1, 2] };
        let resources = dice.pick(most);
        let (token_ttl, lulls) = draw_token_ttl(mode, seed, ttl_ms);
        let mut scenario = Self {
            mode,
            seed,
            nodes,
            resources,
            times,
            guard: mode.guard(),
            durable: if trusts { dice.below(1 << nodes) } else { 0 },
            witness: mode.is_rolling().then(|| dice.index(nodes)),
            shyness: if mode.is_rolling() { dice.pick(&[0, connect / 12]) } else { 0 },
            node_starts: draw_starts(mode, nodes, 2 * ttl_ms * MS, dice),
            calm,
            least_step: (5 * MS).max(4 * weather.delay.1 + horizon / 5_000),
            fencing: Fencing::draw(mode, dice),
            token_ttl,
            forgets_counters: mode == Mode::Tokens && dice.chance(300),
            naps: if mode.has_steps() { dice.pick(&[0, 200, 500]) } else { 0 },
            retry,
            longest_delay,
            weather,
            nerves: Nerves::draw(mode, timeout, dice),
            kills: dice.chance(700),
            // Whoever trusts in disks trusts in all of which it is not told.
            hides_info: !trusts && mode == Mode::Guarded(Guarded::Observed) && dice.chance(150),
            hides_time: hides_time(mode, seed),
            // Waiters compete when nodes push.
            pushes: mode == Mode::ManyWaiters || dice.chance(850),
            node_rates: Vec::new(),
            processes: Vec::new(),
            tasks: Vec::new(),
            faults: Vec::new(),
        };
        if scenario.fencing.is_on && !mode.has_steps() {
            scenario.naps = lulls;
        }
        scenario.draw_machines(dice);
        scenario.faults = draw_faults(&scenario, dice);
        scenario.draw_newcomers(dice);
        scenario.tasks = scenario.draw_tasks(dice);
        scenario
    }

    /// The clocks of nodes, and the processes. The fastest node gains 1 % on the slowest client; where
    /// clocks step, they run as well as crystals do: to within 100 parts per million.
    fn draw_machines(&mut self, dice: &mut Dice) {
        let mode = self.mode;
        let is_good = mode.has_steps() && mode != Mode::Outside(Outside::StepDrift);
        let most = dice.pick(if is_good { &[0, 50, 100] } else { &[0, 500, 4_900] });
        let rate = |dice: &mut Dice| 1_000_000 - most + dice.pick(&[0, most, 2 * most]);
        let is_fast =
            |dice: &mut Dice| mode == Mode::Outside(Outside::FastNodes) && dice.chance(500);
        let node = |_| if is_fast(dice) { 1_100_000 } else { rate(dice) };
        self.node_rates = (0..self.nodes).map(node).collect();
        let least = if mode.is_whole() { 1 } else { 2 };
        for _ in 0..dice.between(least, MOST_PROCESSES as u64 + 1) {
            let runtimes = dice.pick(if mode.is_fresh() { &[1, 2, 3] } else { &[1, 1, 1, 2, 3] });
            self.processes.push(ProcessPlan {
                starts: 0,
                // What the guard asks of clients that may not ask who a server is.
                runtimes: if self.hides_info { 1 } else { runtimes },
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
        let old = usize::from(!self.mode.is_fresh());
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
        let palette = Palette::draw(self, dice);
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

    /// When a task begins. Where all nodes are new, some make a connection when the first of these is not young
    /// any more.
    fn draw_beginning(&self, starts: Instant, dice: &mut Dice) -> Instant {
        if self.mode.is_fresh() && dice.chance(300) {
            let first = self.node_starts.iter().min().copied().unwrap_or_default();
            return starts.max(first + self.term() + dice.below(2 * self.ttl()));
        }
        starts + dice.below(self.ttl() / 2)
    }

    pub(crate) fn ttl(&self) -> Instant {
        self.times.ttl_ms * MS
    }

    /// So long a key stands at most that was granted once, by whichever clock.
    pub(crate) fn longest_key(&self) -> Instant {
        2 * self.ttl() / 50 * 51 + 20 * MS
    }

    /// How long nodes that may have forgotten something, or whose clocks have stepped, do not count.
    pub(crate) fn term(&self) -> Instant {
        if self.guard == RestartGuard::Off && self.steps() == 0 {
            return 0;
        }
        self.longest_key() + S
    }

    /// How far the clocks of nodes step, in all.
    pub(crate) fn steps(&self) -> Instant {
        let step = |it: &FaultPlan| match it.fault {
            Fault::Jump { by, .. } | Fault::Step { by, .. } => by.unsigned_abs(),
            _ => 0,
        };
        self.faults.iter().map(step).sum()
    }

    /// The longest ttl that anybody asks for.
    pub(crate) fn max_ttl(&self) -> Duration {
        Duration::from_millis(2 * self.times.ttl_ms)
    }

    /// How many calls and faults there are.
    pub(crate) fn parts(&self) -> (Vec<usize>, Vec<usize>) {
        let calls = self.tasks.iter().flat_map(|task| task.calls.iter().map(|(id, _)| *id));
        (calls.collect(), self.faults.iter().map(|fault| fault.id).collect())
    }

    /// The same with only these calls and faults.
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

/// How long counters stand, and of how many of a thousand rests some of them do not live to see the end. By
/// dice of their own, as above. What is only measured is measured with counters that stand for long.
fn draw_token_ttl(mode: Mode, seed: u64, ttl_ms: u64) -> (Duration, u64) {
    let mut dice = dice_of(seed, 3);
    let (halves, lulls) = (dice.pick(&[0, 4, 4, 5, 8, 16]), dice.pick(&[0, 0, 100, 300]));
    if halves == 0 || !mode.is_promised() {
        return (Duration::from_hours(24), 0);
    }
    // The longest ttl is two ttls: a counter stands for no less.
    (Duration::from_millis(halves * ttl_ms / 2), lulls)
}

/// Whether users may not ask what time it is. Steps of clocks are promised to be noticed only where they may, and who
/// has met whom is told by it. By a die of its own: what else a seed draws does not hang on it.
fn hides_time(mode: Mode, seed: u64) -> bool {
    let is_used = mode.has_steps() || !(mode.is_whole() || mode.is_fresh());
    mode.is_promised() && !is_used && Dice::new(!seed).chance(125)
}

/// The ttl in milliseconds, how many nodes there are, and how many node timeouts make a ttl.
fn draw_sizes(mode: Mode, dice: &mut Dice) -> (u64, usize, u64) {
    if let Some(single) = mode.single() {
        return single.draw_sizes(dice);
    }
    if mode == Mode::ManyWaiters {
        return (10_000, dice.pick(&[3, 5]), 100);
    }
    let ttl_ms = match mode {
        Mode::Guarded(Guarded::Fresh) => dice.pick(&[3_000, 10_000]),
        // What is not released stands for much longer than any delay.
        Mode::Quiet | Mode::Outages => 10_000,
        // A guard counts by the second: the run has to outlast it.
        mode if mode.restarts_groups() => dice.pick(&[1_000, 1_000, 3_000, 10_000]),
        mode if mode.has_steps() => dice.pick(&[300, 1_000, 3_000, 10_000, 10_000]),
        // What is not released stands for much longer than a delivery takes.
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

/// How to try again, and the longest delay of that.
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
