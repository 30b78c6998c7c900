//! Calls on locks that no other task uses, while nodes and network are healthy. Stronger guarantees
//! apply to these calls than to calls on contended locks.

mod adoption;
mod deletion;
mod ending;
mod waiting;

use crate::clock::{Instant, MS, S};
use crate::dice::Dice;
use crate::process::{MOST_RUNTIMES, millis, nanos};
use crate::scenario::Scenario;
use crate::worker::Worker;
use quorlock::{Lease, Redlock};

/// A lease that is not polled for 2 s is revoked (DESIGN, section 6).
const LONGEST_PAUSE: Instant = 19 * S / 10;

#[derive(Clone, Copy, Debug)]
pub(crate) enum SoloCall {
    /// The acquire is polled only once per `every`. If `waits` is true, it can make several
    /// attempts; otherwise, it makes only one.
    RarelyPolled { every: Instant, waits: bool },
    /// The acquire is polled only once per `every`. It times out after `wait`, because another
    /// lease of the same client holds the lock.
    TimesOut { every: Instant, wait: Instant },
    /// Another client deletes the key on all nodes, while the holder waits for the report of the
    /// loss. Before the deletion, the holder extends the lease `extensions` times. If `is_extended`
    /// is true, the lease also has auto-extension, and the holder waits for the duration `after`
    /// before the deletion. Otherwise, the holder makes one more extension, with which the client
    /// starts to track the key.
    Deleted { after: Instant, extensions: u32, is_extended: bool },
    /// The key is deleted, and the lease is released before the holder notices the deletion.
    DeletedBeforeRelease,
    /// Another client adopts the lock if `by_another` is true; otherwise, the same client does. If
    /// `is_watched` is true, the previous holder has auto-extension and waits for the report of the
    /// loss. If `is_released` is true, the new lease is released, and the other client then
    /// acquires the lock.
    Adopted { by_another: bool, is_watched: bool, is_released: bool },
    /// One node loses the key, and the lease is extended.
    Repaired { node: usize },
    /// The client is closed after its acquire has run for the duration `after`. If `at_least` is
    /// true, the client has already had a lease, and the acquire requires a minimum validity;
    /// otherwise, the acquire has auto-extension. If `waits` is true, the acquire can make several
    /// attempts; otherwise, it makes only one. If `is_held` is true, another client holds the lock.
    /// If `every` is set, the acquire is polled only once per `every`.
    Closed { after: Instant, at_least: bool, waits: bool, is_held: bool, every: Option<Instant> },
    /// The lease is released on another runtime, which `runtime` selects. The lease's own runtime
    /// is not polled during the release.
    OtherRuntime { runtime: usize },
    /// The lease's own runtime is no longer polled, and is shut down once the duration `after` has
    /// passed. The lease is released on another runtime, which `runtime` selects. If `is_served` is
    /// true, the other runtime has already used the client, and the lease is extended and released
    /// after the shutdown. Otherwise, the release does not wait for the shutdown.
    RuntimeEnds { runtime: usize, after: Instant, is_served: bool },
    /// An acquire with long retry pauses waits for the lock, which is released after the duration
    /// `after`.
    Pushed { after: Instant },
    /// An acquire of two locks has long retry pauses. The first lock is released after the duration
    /// `after`, and the second lock after a further pause of `gap`.
    PushedEach { after: Instant, gap: Instant },
    /// The lock is released while the first of two waiters is not polled. That waiter was polled
    /// for the duration `after` at first, and is dropped once the duration `leaves` has passed
    /// since the release. If `is_skipped` is true, the queue has already skipped that waiter before
    /// the release.
    PushedNext { after: Instant, leaves: Instant, is_skipped: bool },
    /// The first waiter is polled at most `polls` times, and then never again. After that, `others`
    /// further acquires wait for the lock.
    NotPolled { polls: u32, others: u32 },
    /// `count` leases are dropped, and their runtime is shut down before it can run again. Another
    /// runtime, which `runtime` selects, then uses the client. If `is_served_before` is true, that
    /// runtime has also used the client before the leases are dropped.
    Orphaned { runtime: usize, count: u32, is_served_before: bool },
}

impl SoloCall {
    pub(crate) fn draw(scenario: &Scenario, dice: &mut Dice) -> Self {
        let (ttl, node) = (scenario.ttl(), nanos(scenario.times.node_timeout));
        let often = |dice: &mut Dice| dice.log_uniform(MS, ttl / 4);
        let runtime = dice.index(MOST_RUNTIMES);
        match dice.below(12) {
            0 => Self::RarelyPolled {
                every: often(dice).min(LONGEST_PAUSE),
                waits: dice.chance(500),
            },
            1 => Self::Deleted {
                after: dice.log_uniform(MS, ttl),
                extensions: u32::try_from(dice.below(3)).expect("few"),
                is_extended: dice.chance(600),
            },
            2 => Self::Closed {
                after: dice.log_uniform(MS / 20, node / 2),
                at_least: dice.chance(500),
                waits: dice.chance(500),
                is_held: dice.chance(300),
                every: dice.chance(500).then(|| often(dice) / 8),
            },
            3 => Self::OtherRuntime { runtime },
            4 => {
                Self::RuntimeEnds { runtime, after: dice.below(node), is_served: dice.chance(500) }
            }
            5 if dice.chance(500) => Self::Pushed { after: dice.log_uniform(MS, ttl / 10) },
            5 => Self::PushedEach {
                after: dice.log_uniform(MS, ttl / 10),
                gap: dice.log_uniform(MS / 20, 5 * MS),
            },
            6 => Self::PushedNext {
                after: dice.log_uniform(MS, ttl / 10),
                leaves: dice.log_uniform(MS / 20, 50 * MS),
                is_skipped: dice.chance(500),
            },
            7 if dice.chance(500) => {
                Self::TimesOut { every: often(dice), wait: dice.log_uniform(node, ttl / 4) }
            }
            7 => Self::NotPolled {
                polls: 1 + u32::try_from(dice.below(3)).expect("few"),
                others: 1 + u32::try_from(dice.below(2)).expect("few"),
            },
            8 => Self::DeletedBeforeRelease,
            9 => Self::Repaired { node: dice.index(scenario.nodes) },
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
    pub(crate) async fn run_solo(self, solo: SoloCall) {
        match solo {
            SoloCall::RarelyPolled { every, waits } => {
                self.acquire_rarely_polled(every, waits).await;
            }
            SoloCall::Deleted { after, extensions, is_extended } => {
                self.delete_while_held(after, extensions, is_extended).await;
            }
            SoloCall::DeletedBeforeRelease => self.release_after_deletion().await,
            SoloCall::Adopted { by_another, is_watched, is_released } => {
                self.check_adoption(by_another, is_watched, is_released).await;
            }
            SoloCall::Repaired { node } => self.check_repair(node).await,
            SoloCall::Closed { .. } => self.close_during_acquire(solo).await,
            SoloCall::OtherRuntime { runtime } => self.release_elsewhere(runtime, true, None).await,
            SoloCall::RuntimeEnds { runtime, after, is_served } => {
                self.release_elsewhere(runtime, is_served, Some(after)).await;
            }
            SoloCall::Pushed { after } => self.expect_push(after).await,
            SoloCall::PushedEach { after, gap } => self.expect_push_of_each(after, gap).await,
            SoloCall::PushedNext { after, leaves, is_skipped } => {
                self.expect_push_of_next(after, leaves, is_skipped).await;
            }
            SoloCall::TimesOut { every, wait } => self.wait_until_timeout(every, wait).await,
            SoloCall::NotPolled { polls, others } => self.leave_unpolled(polls, others).await,
            SoloCall::Orphaned { runtime, count, is_served_before } => {
                self.leave_orphans(runtime, count, is_served_before).await;
            }
        }
    }

    pub(super) fn own_name(&self, which: u32) -> String {
        let mut state = self.checker.state();
        state.calls += 1;
        format!("own{}-{}-{}-{which}", self.process, self.name, state.calls)
    }

    pub(crate) fn was_prompt_since(&self, begun: Instant) -> bool {
        self.is_prompt && self.stalled_since(begun) == 0
    }

    /// Returns the maximum time until a released lock is free. The slowest release needs a new
    /// connection.
    pub(super) fn freed_after(&self) -> Instant {
        nanos(self.times.connect_timeout) + 4 * nanos(self.times.node_timeout) + self.slack
    }

    /// Acquires a lock that no other task uses. Returns `None` if the acquire fails, for example
    /// because this process is stalled.
    pub(super) async fn own_lease(&self, own: &str) -> Option<Lease> {
        let acquire = self.redlock.acquire(own).wait(millis(self.times.ttl_ms));
        acquire.await.ok()
    }

    pub(crate) fn another_client(&self) -> (u64, Redlock) {
        let number = 1_000 * (self.name as u64 + 1) + self.checker.state().calls % 1_000;
        (number, (self.another)(number))
    }
}
