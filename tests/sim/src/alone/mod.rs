//! What a task does with a lock of its own, where nodes and network are well: nobody is in its way, so more is
//! promised than where others want the lock, too.

mod adoption;
mod ending;
mod patience;
mod theft;

use crate::clock::{Instant, MS};
use crate::dice::Dice;
use crate::process::{MOST_RUNTIMES, millis, nanos};
use crate::scenario::Scenario;
use crate::worker::Worker;
use quorlock::{Lease, Redlock};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Alone {
    /// Its acquire is polled only so often.
    Seldom { every: Instant, waits: bool },
    /// The same, and somebody else has it for longer than it waits.
    InVain { every: Instant, wait: Instant },
    /// Somebody takes it away from who has extended it so often, or lets it be renewed, and waits for the loss.
    Stolen { after: Instant, extensions: u32, is_kept_up: bool },
    /// It is taken away, and released before its holder knows.
    Robbed,
    /// It is adopted by the same client or another one, and then acquired by a third.
    Adopted { by_another: bool, is_watched: bool, is_released: bool },
    /// One node loses it, and it is extended.
    Mended { node: usize },
    /// Its client is closed while it is acquired, or while somebody else has it.
    Closed { after: Instant, at_least: bool, waits: bool, is_held: bool, every: Option<Instant> },
    /// It is released by another runtime than it was acquired on, which does not run.
    Undriven { runtime: usize },
    /// The same, and that one is shut down so long after. The other has used the client before, or not.
    Ending { runtime: usize, after: Instant, is_served: bool },
    /// Somebody waits for it with much patience, and it is let go of.
    Told { after: Instant },
    /// The same for several together, of which one is let go of so long after the other.
    ToldOfEach { after: Instant, gap: Instant },
    /// The same, and before it another waits, that is not polled any more, and gives up so long after that. It
    /// was passed by before, or not.
    ToldLater { after: Instant, leaves: Instant, is_bypassed: bool },
    /// The first of some that wait for it is polled so often, and then never again.
    Neglected { polls: u32, others: u32 },
    /// It is dropped, and its runtime is shut down before anything else runs there. Another uses the client
    /// before that, or after.
    Orphaned { runtime: usize, count: u32, is_served_before: bool },
}

impl Alone {
    pub(crate) fn draw(scenario: &Scenario, dice: &mut Dice) -> Self {
        let (ttl, node) = (scenario.ttl(), nanos(scenario.times.node_timeout));
        let often = |dice: &mut Dice| dice.of_any_size(MS, ttl / 4);
        let runtime = dice.index(MOST_RUNTIMES);
        match dice.below(12) {
            0 => Self::Seldom { every: often(dice), waits: dice.chance(500) },
            1 => Self::Stolen {
                after: dice.of_any_size(MS, ttl),
                extensions: u32::try_from(dice.below(3)).expect("few"),
                is_kept_up: dice.chance(600),
            },
            2 => Self::Closed {
                after: dice.of_any_size(MS / 20, node / 2),
                at_least: dice.chance(500),
                waits: dice.chance(500),
                is_held: dice.chance(300),
                every: dice.chance(500).then(|| often(dice) / 8),
            },
            3 => Self::Undriven { runtime },
            4 => Self::Ending { runtime, after: dice.below(node), is_served: dice.chance(500) },
            5 if dice.chance(500) => Self::Told { after: dice.of_any_size(MS, ttl / 10) },
            5 => Self::ToldOfEach {
                after: dice.of_any_size(MS, ttl / 10),
                gap: dice.of_any_size(MS / 20, 5 * MS),
            },
            6 => Self::ToldLater {
                after: dice.of_any_size(MS, ttl / 10),
                leaves: dice.of_any_size(MS / 20, 50 * MS),
                is_bypassed: dice.chance(500),
            },
            7 if dice.chance(500) => {
                Self::InVain { every: often(dice), wait: dice.of_any_size(node, ttl / 4) }
            }
            7 => Self::Neglected {
                polls: 1 + u32::try_from(dice.below(3)).expect("few"),
                others: 1 + u32::try_from(dice.below(2)).expect("few"),
            },
            8 => Self::Robbed,
            9 => Self::Mended { node: dice.index(scenario.nodes) },
            10 => Self::Adopted {
                by_another: dice.chance(500),
                is_watched: dice.chance(700),
                is_released: dice.chance(700),
            },
            _ => Self::Orphaned {
                runtime,
                count: 1 + u32::try_from(dice.below(3)).expect("few"),
                is_served_before: dice.chance(500),
            },
        }
    }
}

impl Worker {
    pub(crate) async fn act_alone(self, alone: Alone) {
        match alone {
            Alone::Seldom { every, waits } => self.be_polled_seldom(every, waits).await,
            Alone::Stolen { after, extensions, is_kept_up } => {
                self.be_stolen_from(after, extensions, is_kept_up).await;
            }
            Alone::Robbed => self.be_robbed().await,
            Alone::Adopted { by_another, is_watched, is_released } => {
                self.be_adopted(by_another, is_watched, is_released).await;
            }
            Alone::Mended { node } => self.be_mended(node).await,
            Alone::Closed { .. } => self.close_meanwhile(alone).await,
            Alone::Undriven { runtime } => self.release_elsewhere(runtime, true, None).await,
            Alone::Ending { runtime, after, is_served } => {
                self.release_elsewhere(runtime, is_served, Some(after)).await;
            }
            Alone::Told { after } => self.be_told(after).await,
            Alone::ToldOfEach { after, gap } => self.be_told_of_each(after, gap).await,
            Alone::ToldLater { after, leaves, is_bypassed } => {
                self.be_told_later(after, leaves, is_bypassed).await;
            }
            Alone::InVain { every, wait } => self.wait_in_vain(every, wait).await,
            Alone::Neglected { polls, others } => self.neglect(polls, others).await,
            Alone::Orphaned { runtime, count, is_served_before } => {
                self.leave_orphans(runtime, count, is_served_before).await;
            }
        }
    }

    /// The name of a lock that nobody else asks for.
    pub(super) fn own_name(&self, which: u32) -> String {
        let mut books = self.checker.books();
        books.calls += 1;
        format!("own{}-{}-{}-{which}", self.process, self.name, books.calls)
    }

    /// True if nothing of the process has been held up since then.
    pub(crate) fn was_prompt_since(&self, begun: Instant) -> bool {
        self.is_prompt && self.stalled_since(begun) == 0
    }

    /// What is let go of is free after so long: the longest way of a release is by way of a connection that is
    /// yet to be made.
    pub(super) fn freed_after(&self) -> Instant {
        nanos(self.times.connect_timeout) + 4 * nanos(self.times.node_timeout) + self.slack
    }

    /// A lease of a lock of its own; none if nodes were not asked in time.
    pub(super) async fn own_lease(&self, own: &str) -> Option<Lease> {
        let acquire = self.redlock.acquire(own).wait(millis(self.times.ttl_ms));
        acquire.await.ok()
    }

    /// Another client of this process, and its number.
    pub(crate) fn another_client(&self) -> (u64, Redlock) {
        let number = 1_000 * (self.name as u64 + 1) + self.checker.books().calls % 1_000;
        (number, (self.another)(number))
    }
}
