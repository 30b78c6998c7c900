//! Calls on locks that no other task uses, with healthy nodes and network. Stronger guarantees
//! apply to them than to contended locks.

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
    /// Polls the acquire only at the given interval.
    Seldom { every: Instant, waits: bool },
    /// The same, while another task holds the lock for longer than the wait.
    InVain { every: Instant, wait: Instant },
    /// Another client deletes the key after some extensions, and the holder awaits the loss.
    Stolen { after: Instant, extensions: u32, is_kept_up: bool },
    /// The key is deleted, and the lease is released before the holder notices.
    Robbed,
    /// The same client or another one adopts the lock; then a third client acquires it.
    Adopted { by_another: bool, is_watched: bool, is_released: bool },
    /// One node loses the key, and the lease is extended.
    Mended { node: usize },
    /// The client is closed while it acquires the lock, or while another task holds it.
    Closed { after: Instant, at_least: bool, waits: bool, is_held: bool, every: Option<Instant> },
    /// The lease is released on another runtime than its own, which is not polled.
    Undriven { runtime: usize },
    /// The same, and the own runtime is shut down after the given time. The other runtime has used
    /// the client before, or not.
    Ending { runtime: usize, after: Instant, is_served: bool },
    /// An acquire with long retry pauses waits for the lock, which is then released.
    Told { after: Instant },
    /// The same for several locks of one acquire, which are released with a gap.
    ToldOfEach { after: Instant, gap: Instant },
    /// The same, and an earlier waiter is no longer polled and is dropped after the given time. It
    /// was skipped before, or not.
    ToldLater { after: Instant, leaves: Instant, is_bypassed: bool },
    /// The first of several waiters is polled a few times, and then never again.
    Neglected { polls: u32, others: u32 },
    /// The lease is dropped, and its runtime is shut down before it runs again. Another runtime
    /// uses the client before that, or after it.
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

    /// The name of a lock that no other task uses.
    pub(super) fn own_name(&self, which: u32) -> String {
        let mut books = self.checker.books();
        books.calls += 1;
        format!("own{}-{}-{}-{which}", self.process, self.name, books.calls)
    }

    /// Returns true if no part of the process has stalled since `begun`.
    pub(crate) fn was_prompt_since(&self, begun: Instant) -> bool {
        self.is_prompt && self.stalled_since(begun) == 0
    }

    /// Maximum time until a released lock is free. The longest way of a release includes a new
    /// connection.
    pub(super) fn freed_after(&self) -> Instant {
        nanos(self.times.connect_timeout) + 4 * nanos(self.times.node_timeout) + self.slack
    }

    /// Acquires a lock that no other task uses. `None` if the nodes were not reached in time.
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
