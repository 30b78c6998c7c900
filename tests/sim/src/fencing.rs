//! Fencing in a run: clients' wall clocks and initial counters.

use crate::clock::{Instant, MS, S};
use crate::dice::Dice;
use crate::mode::{Hint, Mode};
use crate::shared::Core;
use crate::worker::name;

/// Wall clock from which a client gives no hint, because its microseconds reach 2^52. In
/// nanoseconds since 1970.
const NO_HINT: u64 = 5_000_000_000 * S;

/// Start of correct wall clocks.
pub(crate) const EPOCH: u64 = 1_700_000_000 * S;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Fencing {
    /// All locks have tokens.
    pub(crate) is_on: bool,
    hints: bool,
    /// Maximum error of clients' wall clocks in either direction.
    skew: Instant,
    pub(crate) wall_jump: Instant,
    /// Upper limit of the initial counters.
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

    /// Returns true if hints come from wall clocks that are never set.
    pub(crate) fn trusts_wall_clocks(&self) -> bool {
        self.hints && self.wall_jump == 0
    }

    /// Initial reading of a client's wall clock.
    pub(crate) fn wall(&self, dice: &mut Dice) -> u64 {
        if !self.hints {
            return NO_HINT;
        }
        EPOCH + 100 * S - self.skew + dice.below(2 * self.skew)
    }
}

/// The key of a lock's counter.
pub(crate) fn counter(resource: &str) -> String {
    format!("{resource}#quorlock:token:{{{resource}}}")
}

impl Core {
    /// Sets initial counters.
    pub(crate) fn fill_counters(&mut self, fencing: &Fencing, resources: usize, dice: &mut Dice) {
        if fencing.first_numbers == 0 {
            return;
        }
        for node in 0..self.nodes.len() {
            let wall = self.node_wall(node);
            let server = &mut self.nodes[node].server;
            let session = server.connect();
            for resource in 0..resources {
                let (key, number) =
                    (counter(&name(resource)), dice.below(fencing.first_numbers).to_string());
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
