//! The network of a run, and how well its processes are looked after.

use crate::clock::{Instant, MS, US};
use crate::dice::Dice;
use crate::mode::Mode;

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
    /// Of a thousand pipelines that ask for the time, how many are cut off before that.
    pub(crate) cuts: u64,
    /// Before how many of a thousand commands a lock's key is gone from the node.
    pub(crate) fades: u64,
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

impl Weather {
    pub(crate) fn draw(mode: Mode, ttl: Instant, timeout: Instant, dice: &mut Dice) -> Self {
        let steps = mode.has_steps();
        let share = dice.pick(match mode {
            Mode::ManyWaiters => &[500, 200, 100],
            _ if steps => &[400, 200, 50],
            _ => &[500, 200, 50],
        });
        let least = (timeout / share).max(20 * US);
        let delay = (least, least * dice.pick(&[2, 4]));
        let is_well =
            matches!(mode, Mode::Quiet | Mode::Outages | Mode::Single(_) | Mode::ManyWaiters);
        if mode.is_fresh() || is_well {
            return Self {
                delay,
                slow: 0,
                long: 0,
                breaks: 0,
                late: 0,
                splits: 0,
                cuts: 0,
                fades: 0,
            };
        }
        Self {
            delay,
            slow: dice.pick(if steps { &[0, 20, 100, 300] } else { &[0, 0, 10, 50, 200] }),
            long: if dice.chance(500) { 2 * timeout } else { ttl },
            breaks: dice.pick(&[0, 0, 5, 30]),
            late: dice.pick(&[0, 500, 900]),
            splits: dice.pick(&[0, 0, 100]),
            cuts: if steps { dice.pick(&[0, 50, 300]) } else { 0 },
            fades: if mode == Mode::Tokens { dice.pick(&[0, 10, 50, 200]) } else { 0 },
        }
    }
}

impl Nerves {
    pub(crate) fn draw(mode: Mode, timeout: Instant, dice: &mut Dice) -> Self {
        if mode.is_fresh() || matches!(mode, Mode::Outages | Mode::Single(_) | Mode::ManyWaiters) {
            return Self { holds: 0, longest: 0, late_alarms: 0 };
        }
        Self {
            // Where clocks step it has to be known when a client has read them.
            holds: if mode.has_steps() { 0 } else { dice.pick(&[0, 0, 10, 100]) },
            longest: if dice.chance(700) { timeout / 10 } else { 3 * timeout },
            late_alarms: dice.pick(&[0, MS, timeout / 2]),
        }
    }
}
