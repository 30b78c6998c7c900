//! What one seed is about: how many, how fast, and what goes wrong.

use crate::clock::{Clock, Instant, MS};
use crate::dice::Dice;
use crate::fencing::Fencing;
use crate::guard::Guard;
use crate::mode::{Mode, Outside};
use crate::mutation::Mutation;
use crate::protocol::{Drift, RetryPolicy, Ttl};
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
    /// When faults end, and (in liveness mode) healing begins.
    pub(crate) horizon: Instant,
}

impl Scenario {
    pub(crate) fn draw(mode: Mode, mutation: Option<Mutation>, dice: &mut Dice) -> Self {
        let is_liveness = mode == Mode::Liveness;
        let ttl_ms = match mode {
            Mode::Liveness => dice.pick(&[10_000, 30_000, 60_000]),
            // A guard counts by the second: the run has to outlast it.
            mode if mode.restarts_groups() => dice.pick(&[1_000, 1_000, 3_000, 10_000]),
            _ => dice.pick(&[100, 300, 1_000, 3_000, 10_000]),
        };
        let ttl = Ttl::from_duration(Duration::from_millis(ttl_ms)).expect("a good ttl");
        let share = if is_liveness { dice.pick(&[100, 300]) } else { dice.pick(&[3, 6, 20, 100]) };
        let timeout = ttl_ms * MS / share;
        let doubt = if dice.chance(500) { 10_000 } else { 1_000 };
        let (retry, longest_delay) = retry(ttl, is_liveness, dice);
        let drift = match mutation {
            Some(Mutation::NoDrift) => {
                let none = Drift::DEFAULT.with_factor(0.0).expect("a share");
                none.with_constant(Duration::ZERO)
            }
            _ => Drift::DEFAULT,
        };
        let nodes: &[usize] = match mode {
            Mode::Wiped(_) => &[3, 5, 7],
            _ => &[1, 2, 3, 3, 3, 4, 5, 5, 5, 6, 7],
        };
        Self {
            mode,
            mutation,
            nodes: dice.pick(nodes),
            clients: dice.pick(&[2, 2, 3, 4, 5]),
            ttl,
            drift,
            node_timeout: Duration::from_nanos(timeout),
            connect_timeout: Duration::from_nanos((4 * timeout).min(1_000 * MS)),
            doubt: Duration::from_millis(doubt),
            kills: dice.chance(700),
            weather: weather(ttl_ms * MS, timeout, dice),
            retry,
            longest_delay,
            renewed: dice.pick(&[0, 300, 800]),
            judged_late: dice.pick(&[0, 0, 30, 200]),
            fencing: Fencing::draw(mode, dice),
            guard: Guard::of(mode),
            horizon: ttl_ms
                * MS
                * match mode {
                    Mode::Liveness => 3,
                    mode if mode.restarts_groups() => 9,
                    _ => 6,
                },
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

    /// A clock whose drift is within the allowance: the fastest node gains 1 % on the slowest client.
    pub(crate) fn clock(dice: &mut Dice) -> Clock {
        let most = dice.pick(&[0, 500, 5_000]);
        let rate = 1_000_000 - most + dice.pick(&[0, most, 2 * most]);
        Clock::new(dice.between(1_000_000_000 * MS, 2_000_000_000 * MS) / 1_000, rate)
    }

    /// The clock of a node.
    pub(crate) fn node_clock(&self, dice: &mut Dice) -> Clock {
        let clock = Self::clock(dice);
        let is_fast = self.mode == Mode::Outside(Outside::FastNodes) && dice.chance(500);
        if is_fast {
            return Clock::new(clock.read(0), 1_100_000);
        }
        // Nodes whose clocks are set by NTP begin their seconds together.
        if self.mode.restarts_groups() { clock.on_the_second() } else { clock }
    }
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

fn weather(ttl: Instant, timeout: Instant, dice: &mut Dice) -> Weather {
    let least = timeout / dice.pick(&[200, 50, 10]);
    Weather {
        delay: (least, least * dice.pick(&[2, 4])),
        slow: dice.pick(&[0, 0, 10, 50, 200]),
        long: if dice.chance(500) { 2 * timeout } else { ttl },
        breaks: dice.pick(&[0, 0, 5, 30]),
        late: dice.pick(&[0, 500, 900]),
    }
}
