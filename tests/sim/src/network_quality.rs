//! The quality of the network, and delays in the scheduling of processes.

use crate::clock::{Instant, MS, US};
use crate::dice::Dice;
use crate::mode::Mode;

#[derive(Clone, Copy, Debug)]
pub(crate) struct NetworkQuality {
    /// The minimum and maximum delay of a normal packet.
    pub(crate) delay: (Instant, Instant),
    /// The number of slow packets per thousand. A slow packet takes up to `longest_delay`.
    pub(crate) slow: u64,
    pub(crate) longest_delay: Instant,
    /// How many of a thousand writes by clients break the connection.
    pub(crate) breaks: u64,
    /// How many of a thousand broken connections deliver their remaining packets late. The other
    /// broken connections lose them.
    pub(crate) late: u64,
    /// The number of packets per thousand that arrive in two parts.
    pub(crate) splits: u64,
    /// How many of a thousand pipelines with `TIME` are cut off before the `TIME`.
    pub(crate) cuts: u64,
    /// The probability per thousand that the node loses a lock's key before it executes a command.
    pub(crate) key_losses: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Delays {
    /// How many of a thousand woken tasks must wait before they are polled. The wait is at most
    /// `longest`.
    pub(crate) holds: u64,
    pub(crate) longest: Instant,
    /// The maximum delay of the alarm thread.
    pub(crate) late_alarms: Instant,
}

impl NetworkQuality {
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
        if mode.is_new_deployment() || is_well {
            return Self {
                delay,
                slow: 0,
                longest_delay: 0,
                breaks: 0,
                late: 0,
                splits: 0,
                cuts: 0,
                key_losses: 0,
            };
        }
        Self {
            delay,
            slow: dice.pick(if steps { &[0, 20, 100, 300] } else { &[0, 0, 10, 50, 200] }),
            longest_delay: if dice.chance(500) { 2 * timeout } else { ttl },
            breaks: dice.pick(&[0, 0, 5, 30]),
            late: dice.pick(&[0, 500, 900]),
            splits: dice.pick(&[0, 0, 100]),
            cuts: if steps { dice.pick(&[0, 50, 300]) } else { 0 },
            key_losses: if mode == Mode::Tokens { dice.pick(&[0, 10, 50, 200]) } else { 0 },
        }
    }
}

impl Delays {
    pub(crate) fn draw(mode: Mode, timeout: Instant, dice: &mut Dice) -> Self {
        if mode.is_new_deployment()
            || matches!(mode, Mode::Outages | Mode::Single(_) | Mode::ManyWaiters)
        {
            return Self { holds: 0, longest: 0, late_alarms: 0 };
        }
        Self {
            // With clock steps, the simulation must know when a client has read a clock.
            holds: if mode.has_steps() { 0 } else { dice.pick(&[0, 0, 10, 100]) },
            longest: if dice.chance(700) { timeout / 10 } else { 3 * timeout },
            late_alarms: dice.pick(&[0, MS, timeout / 2]),
        }
    }
}
