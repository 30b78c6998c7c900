//! What one seed is about: how many, how fast, who does what, and what goes wrong.

use crate::call::{Call, Palette, draw_calls};
use crate::clock::{Instant, MS, S, US};
use crate::dice::Dice;
use crate::fault::{Fault, draw_faults};
use crate::mode::Mode;
use quorlock::{RestartGuard, RetryPolicy};
use std::time::Duration;

/// The network of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    /// One way, without mishap.
    pub(crate) delay: (Instant, Instant),
    /// Of a thousand packets, how many take up to `long`, and how many break their connection.
    pub(crate) slow: u64,
    pub(crate) long: Instant,
    pub(crate) breaks: u64,
    /// Of a thousand broken connections, how many deliver later what they still have.
    pub(crate) late: u64,
    /// Of a thousand packets, how many arrive in two parts.
    pub(crate) splits: u64,
}

/// How well processes are looked after by their machines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nerves {
    /// Of a thousand tasks that were woken, how many have to wait, and for how long at most.
    pub(crate) holds: u64,
    pub(crate) longest: Instant,
    /// How late the thread of alarms may be.
    pub(crate) late_alarms: Instant,
}

/// A process that uses the library.
#[derive(Clone, Debug)]
pub(crate) struct ProcessPlan {
    pub(crate) starts: Instant,
    pub(crate) runtimes: usize,
    /// True if all connections are on the first of them.
    pub(crate) is_pinned: bool,
    /// Millionths of true time.
    pub(crate) rate: u64,
    pub(crate) wall_ahead_ms: i64,
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
pub(crate) struct Scenario {
    pub(crate) mode: Mode,
    pub(crate) seed: u64,
    pub(crate) nodes: usize,
    pub(crate) resources: usize,
    pub(crate) times: Times,
    pub(crate) guard: RestartGuard,
    pub(crate) retry: RetryPolicy,
    pub(crate) longest_delay: Duration,
    pub(crate) weather: Weather,
    pub(crate) nerves: Nerves,
    /// False if `CLIENT KILL` is forbidden.
    pub(crate) kills: bool,
    /// False if nodes speak RESP2 only.
    pub(crate) resp3: bool,
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
        let ttl_ms = dice.pick(&[300, 1_000, 3_000, 10_000]);
        let share = dice.pick(&[3, 6, 20, 100]);
        let timeout = (ttl_ms * MS / share).max(2 * MS);
        let nodes = dice.pick(&[1, 2, 3, 3, 3, 4, 5, 5, 5]);
        let horizon = (ttl_ms * MS * dice.between(3, 7)).min(40 * S);
        let times = Times {
            ttl_ms,
            node_timeout: Duration::from_nanos(timeout),
            connect_timeout: Duration::ZERO,
            horizon,
        };
        let weather = draw_weather(ttl_ms * MS, timeout, dice);
        // A set-up takes four round trips.
        let connect = (4 * timeout).clamp(40 * MS, S).max(20 * weather.delay.1);
        let times = Times { connect_timeout: Duration::from_nanos(connect), ..times };
        let (retry, longest_delay) = draw_retry(ttl_ms, dice);
        let most = dice.pick(&[0, 500, 4_900]);
        let rate = |dice: &mut Dice| 1_000_000 - most + dice.pick(&[0, most, 2 * most]);
        let node_rates = (0..nodes).map(|_| rate(dice)).collect();
        let count = dice.between(1, 5);
        let processes: Vec<_> = (0..count)
            .map(|process| ProcessPlan {
                starts: if process < 2 || dice.chance(600) { 0 } else { dice.below(horizon) },
                runtimes: dice.pick(&[1, 1, 1, 2, 3]),
                is_pinned: dice.chance(150),
                rate: rate(dice),
                wall_ahead_ms: 0,
            })
            .collect();
        let resources = dice.pick(&[1, 1, 2, 3, 6]);
        let mut scenario = Self {
            mode,
            seed,
            nodes,
            resources,
            times,
            guard: RestartGuard::Off,
            retry,
            longest_delay,
            weather,
            nerves: draw_nerves(timeout, dice),
            kills: dice.chance(700),
            resp3: dice.chance(850),
            node_rates,
            processes,
            tasks: Vec::new(),
            faults: Vec::new(),
        };
        scenario.tasks = scenario.draw_tasks(dice);
        scenario.faults = draw_faults(&scenario, dice);
        scenario
    }

    fn draw_tasks(&self, dice: &mut Dice) -> Vec<TaskPlan> {
        let palette = Palette::draw(dice);
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
                    at: plan.starts + dice.below(self.times.ttl_ms * MS / 2),
                    calls: calls.collect(),
                });
            }
        }
        tasks
    }

    pub(crate) fn ttl(&self) -> Instant {
        self.times.ttl_ms * MS
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

/// How to try again, and the longest delay of that.
fn draw_retry(ttl_ms: u64, dice: &mut Dice) -> (RetryPolicy, Duration) {
    let (short, long) = (Duration::from_millis(ttl_ms / 10), Duration::from_millis(ttl_ms / 4));
    let policy = if dice.chance(500) {
        RetryPolicy::jittered(short..long)
    } else {
        RetryPolicy::exponential(short, long)
    };
    (policy, long)
}

fn draw_weather(ttl: Instant, timeout: Instant, dice: &mut Dice) -> Weather {
    let least = (timeout / dice.pick(&[500, 200, 50])).max(20 * US);
    Weather {
        delay: (least, least * dice.pick(&[2, 4])),
        slow: dice.pick(&[0, 0, 10, 50, 200]),
        long: if dice.chance(500) { 2 * timeout } else { ttl },
        breaks: dice.pick(&[0, 0, 5, 30]),
        late: dice.pick(&[0, 500, 900]),
        splits: dice.pick(&[0, 0, 100]),
    }
}

fn draw_nerves(timeout: Instant, dice: &mut Dice) -> Nerves {
    Nerves {
        holds: dice.pick(&[0, 0, 10, 100]),
        longest: if dice.chance(700) { timeout / 10 } else { 3 * timeout },
        late_alarms: dice.pick(&[0, MS, timeout / 2]),
    }
}
