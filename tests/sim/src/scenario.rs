//! What one seed is about: how many, how fast, and what goes wrong.

use crate::clock::{Clock, Instant, MS};
use crate::dice::Dice;
use crate::fencing::Fencing;
use crate::guard::Guard;
use crate::mode::{Guarded, Mode, Outside};
use crate::mutation::Mutation;
use crate::protocol::{Drift, RetryPolicy, Ttl};
use crate::steps;
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
}

#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) mode: Mode,
    pub(crate) mutation: Option<Mutation>,
    pub(crate) nodes: usize,
    pub(crate) clients: usize,
    pub(crate) ttl: Ttl,
    pub(crate) drift: Drift,
    pub(crate) node_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    /// How long a broken connection can deliver something (`TCP_USER_TIMEOUT`).
    pub(crate) doubt: Duration,
    /// True if `CLIENT KILL` is permitted.
    pub(crate) kills: bool,
    pub(crate) weather: Weather,
    pub(crate) retry: RetryPolicy,
    pub(crate) longest_delay: Duration,
    /// Of a thousand leases, how many are extended without being asked.
    pub(crate) renewed: u64,
    /// Of a thousand outcomes, how many are judged long after the decision.
    pub(crate) judged_late: u64,
    pub(crate) fencing: Fencing,
    pub(crate) guard: Guard,
    /// A node that is old when the run begins, and is there for whoever comes.
    pub(crate) witness: Option<usize>,
    /// A bit for each node that keeps all it has told, for which its owner vouches.
    pub(crate) trusted: u32,
    /// When the nodes of a new deployment start.
    pub(crate) starts: Vec<Instant>,
    /// The shortest step of a node's clock: twice as long as the ways there and back, and the 200
    /// millionths which clocks may go by themselves.
    pub(crate) least_step: Instant,
    /// Of a thousand pipelines, how many the network cuts.
    pub(crate) cuts: u64,
    /// Of a thousand pauses of clients, how many are long.
    pub(crate) naps: u64,
    /// When faults end, and (in liveness mode) healing begins.
    pub(crate) horizon: Instant,
}

impl Scenario {
    pub(crate) fn draw(mode: Mode, mutation: Option<Mutation>, dice: &mut Dice) -> Self {
        let is_liveness = mode == Mode::Liveness;
        let ttl_ms = match mode {
            Mode::Liveness => dice.pick(&[10_000, 30_000, 60_000]),
            Mode::Guarded(Guarded::Fresh) => dice.pick(&[3_000, 10_000]),
            // A guard counts by the second: the run has to outlast it.
            mode if mode.restarts_groups() => dice.pick(&[1_000, 1_000, 3_000, 10_000]),
            mode if mode.has_steps() => dice.pick(&[300, 1_000, 3_000, 10_000, 10_000]),
            _ => dice.pick(&[100, 300, 1_000, 3_000, 10_000]),
        };
        let ttl = Ttl::from_duration(Duration::from_millis(ttl_ms)).expect("a good ttl");
        let share = match mode {
            Mode::Liveness => dice.pick(&[100, 300]),
            mode if mode.has_steps() => dice.pick(&[6, 20, 100]),
            _ => dice.pick(&[3, 6, 20, 100]),
        };
        let timeout = ttl_ms * MS / share;
        let doubt = if dice.chance(500) { 10_000 } else { 1_000 };
        let (retry, longest_delay) = retry(ttl, is_liveness, dice);
        let nodes: &[usize] = match mode {
            Mode::Wiped(_) => &[3, 5, 7],
            mode if mode.has_steps() => &[1, 1, 2, 3, 3, 3, 4, 5, 5, 6, 7],
            _ => &[1, 2, 3, 3, 3, 4, 5, 5, 5, 6, 7],
        };
        let nodes = dice.pick(nodes);
        let horizon = ttl_ms
            * MS
            * match mode {
                Mode::Liveness => 3,
                mode if mode.restarts_groups() || mode.has_steps() => 9,
                _ => 6,
            };
        let weather = weather(mode, ttl_ms * MS, timeout, dice);
        let is_trusting = matches!(mode, Mode::Guarded(_)) && dice.chance(200);
        let trusted = if is_trusting { dice.below(1 << nodes) } else { 0 };
        let trusted = if mutation == Some(Mutation::TrustedDisk) { 0 } else { trusted };
        let is_rolling = mode == Mode::Guarded(Guarded::Rolling);
        Self {
            mode,
            mutation,
            nodes,
            clients: dice.pick(&[2, 2, 3, 4, 5]),
            ttl,
            drift: drift(mutation),
            node_timeout: Duration::from_nanos(timeout),
            connect_timeout: Duration::from_nanos((4 * timeout).min(1_000 * MS)),
            doubt: Duration::from_millis(doubt),
            kills: dice.chance(700),
            weather,
            retry,
            longest_delay,
            renewed: dice.pick(&[0, 300, 800]),
            judged_late: dice.pick(&[0, 0, 30, 200]),
            fencing: Fencing::draw(mode, dice),
            guard: Guard::of(mode),
            witness: is_rolling.then(|| dice.index(nodes)),
            trusted: u32::try_from(trusted).expect("few nodes"),
            starts: steps::starts(mode, nodes, 2 * ttl_ms * MS, dice),
            least_step: (5 * MS).max(4 * weather.delay.1 + horizon / 5_000),
            cuts: if mode.has_steps() { dice.pick(&[0, 50, 300]) } else { 0 },
            naps: if mode.has_steps() { dice.pick(&[0, 200, 500]) } else { 0 },
            horizon,
        }
    }

    pub(crate) fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    pub(crate) fn ttl_ns(&self) -> Instant {
        self.ttl.as_millis() * MS
    }

    /// The longest that a key is told to stand: holders extend to twice the ttl.
    pub(crate) fn longest_ttl(&self) -> Instant {
        2 * self.ttl_ns()
    }

    /// How far the clocks of nodes step in a liveness run, at most, in all.
    pub(crate) fn steps_ns(&self) -> Instant {
        self.ttl_ns() / 4
    }

    /// A clock whose drift is within the allowance: the fastest node gains 1 % on the slowest client.
    /// Where clocks step, they run as well as crystals do: to within 100 parts per million.
    pub(crate) fn clock(&self, dice: &mut Dice) -> Clock {
        let is_good = self.mode.has_steps() && self.mode != Mode::Outside(Outside::StepDrift);
        let most = dice.pick(if is_good { &[0, 50, 100] } else { &[0, 500, 4_970] });
        let rate = 1_000_000 - most + dice.pick(&[0, most, 2 * most]);
        Clock::new(dice.between(1_000_000_000 * MS, 2_000_000_000 * MS) / 1_000, rate)
    }

    /// The clock of a node.
    pub(crate) fn node_clock(&self, dice: &mut Dice) -> Clock {
        let clock = self.clock(dice);
        let is_fast = self.mode == Mode::Outside(Outside::FastNodes) && dice.chance(500);
        if is_fast {
            return Clock::new(clock.read(0), 1_100_000);
        }
        // Nodes whose clocks are set by NTP begin their seconds together.
        if self.mode.restarts_groups() { clock.on_the_second() } else { clock }
    }
}

fn drift(mutation: Option<Mutation>) -> Drift {
    let drift = Drift::DEFAULT;
    let none = drift.with_factor(0.0).map(|none| none.with_constant(Duration::ZERO));
    none.filter(|_| mutation == Some(Mutation::NoDrift)).unwrap_or(drift)
}

/// How to try again, and the longest delay of that.
fn retry(ttl: Ttl, is_liveness: bool, dice: &mut Dice) -> (RetryPolicy, Duration) {
    let (short, long) = (ttl.as_duration() / 10, ttl.as_duration() / 4);
    // With fixed delays clients can collide for ever: nothing is promised about that.
    let policy = match dice.below(if is_liveness { 2 } else { 4 }) {
        0 => RetryPolicy::jittered(short..long),
        1 => RetryPolicy::exponential(short, long),
        2 => RetryPolicy::fixed(short),
        _ => RetryPolicy::linear(short, long).limit(5),
    };
    (policy, long)
}

fn weather(mode: Mode, ttl: Instant, timeout: Instant, dice: &mut Dice) -> Weather {
    let least =
        timeout / dice.pick(if mode.has_steps() { &[400, 200, 50] } else { &[200, 50, 10] });
    if mode == Mode::Guarded(Guarded::Fresh) {
        let delay = (timeout / 200, timeout / 100);
        return Weather { delay, slow: 0, long: 0, breaks: 0, late: 0 };
    }
    Weather {
        delay: (least, least * dice.pick(&[2, 4])),
        slow: dice.pick(if mode.has_steps() { &[0, 20, 100, 300] } else { &[0, 0, 10, 50, 200] }),
        long: if dice.chance(500) { 2 * timeout } else { ttl },
        breaks: dice.pick(&[0, 0, 5, 30]),
        late: dice.pick(&[0, 500, 900]),
    }
}
