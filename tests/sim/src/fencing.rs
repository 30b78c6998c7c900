//! Fencing settings of a run: the clients' wall clocks, and the initial values of counters.

use crate::clock::{Instant, MS, S};
use crate::dice::Dice;
use crate::mode::{Hint, Mode};
use crate::shared::Core;
use crate::worker::name;
use quorlock_test::internals::{Kind, Stored};

/// A wall clock reading, in nanoseconds since 1970, that is too far in the future for clients to
/// derive a minimum token from it. In microseconds, it exceeds 2^52.
const NO_HINT: u64 = 5_000_000_000 * S;

/// The lowest reading of a node's wall clock at the start of the run, in nanoseconds since 1970.
/// The wall clocks of clients show about 100 s more.
pub(crate) const EPOCH: u64 = 1_700_000_000 * S;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Fencing {
    /// Whether all locks have fencing tokens.
    pub(crate) is_on: bool,
    hints: bool,
    /// The maximum error of a client's wall clock in either direction: a duration, in nanoseconds.
    skew: Instant,
    pub(crate) wall_jump: Instant,
    /// The upper limit of the counters' initial values.
    first_numbers: u64,
}

impl Fencing {
    pub(crate) fn draw(mode: Mode, dice: &mut Dice) -> Self {
        let is_on = dice.chance(500);
        let off = Self { is_on, hints: true, skew: 0, wall_jump: 0, first_numbers: 0 };
        match mode {
            Mode::Tokens => Self {
                is_on: true,
                hints: dice.chance(500),
                skew: dice.pick(&[0, 5 * MS, 5 * S, 3_600 * S]),
                wall_jump: dice.pick(&[0, 10 * MS, 10 * S, 3_600 * S]),
                first_numbers: dice.pick(&[0, 5, 1_000]),
            },
            Mode::Wiped(wiped) => {
                let skew = if let Hint::Within(ms) = wiped.hint { ms * MS / 2 } else { 0 };
                Self { is_on: true, hints: wiped.hint != Hint::None, skew, ..off }
            }
            Mode::Promise | Mode::Quiet | Mode::Outages => Self { is_on: dice.chance(330), ..off },
            Mode::Guarded(_) | Mode::Stepped(_) | Mode::Single(_) => {
                Self { hints: dice.chance(500), ..off }
            }
            Mode::ManyWaiters => Self { is_on: false, ..off },
            Mode::Outside(_) => off,
        }
    }

    /// Returns true if clients derive minimum tokens from their wall clocks, and no wall clock
    /// jumps.
    pub(crate) fn trusts_wall_clocks(&self) -> bool {
        self.hints && self.wall_jump == 0
    }

    pub(crate) fn wall(&self, dice: &mut Dice) -> u64 {
        if !self.hints {
            return NO_HINT;
        }
        EPOCH + 100 * S - self.skew + dice.below(2 * self.skew)
    }
}

/// The text between the name of a lock and the rest of the key of its fencing counter.
pub(crate) const COUNTER: &[u8] = b"#quorlock:token";

/// Returns the key of a counter of the lock `resource`: `token` or `period`.
pub(crate) fn counter(resource: &str, kind: &str) -> String {
    format!("{resource}#quorlock:{kind}:{{{resource}}}")
}

impl Core {
    /// Returns the value of the fencing counter of `resource` on `node`, or 0 if the counter does not exist.
    pub(crate) fn fencing_counter(&self, node: usize, resource: usize) -> u64 {
        self.counter(node, &counter(&name(resource), "token"))
    }

    /// Returns the number at the key `counter` on `node`, or 0 if the key does not exist.
    pub(crate) fn counter(&self, node: usize, counter: &str) -> u64 {
        let mut keys = self.nodes[node].server.keys(self.node_wall(node));
        let found = keys.find_map(|(key, Stored { kind, .. })| match kind {
            Kind::String(value) if key == counter.as_bytes() => String::from_utf8(value).ok(),
            _ => None,
        });
        found.and_then(|digits| digits.parse().ok()).unwrap_or_default()
    }

    pub(crate) fn fill_counters(&mut self, fencing: &Fencing, resources: usize, dice: &mut Dice) {
        if fencing.first_numbers == 0 {
            return;
        }
        for node in 0..self.nodes.len() {
            let wall = self.node_wall(node);
            let server = &mut self.nodes[node].server;
            let session = server.connect();
            for resource in 0..resources {
                let (key, number) = (
                    counter(&name(resource), "token"),
                    dice.below(fencing.first_numbers).to_string(),
                );
                let command = format!(
                    "*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${}\r\n{number}\r\n",
                    key.len(),
                    number.len()
                );
                let _ = server.receive(session, command.as_bytes(), wall);
            }
            server.disconnect(session);
        }
    }
}
