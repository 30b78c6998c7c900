//! Pending releases and extensions of one node: commands to repeat until the node answers.
//!
//! A release has to reach every node that its `SET` was written to, and an extension every node that missed
//! it (I5, I6). Commands that a node did not answer, or answered with an error, are kept here and sent again.
//!
//! Pass each such command to [`add`](PendingCommands::add) with its [`PendingWork`]. All releases are kept; of the
//! extensions of one claim only the longest; other commands are dropped. When a try is due,
//! [`prune`](PendingCommands::prune) drops commands that have become useless, and [`take`](PendingCommands::take)
//! returns the rest, releases first because they free locks for other clients. While the node is unreachable, prune
//! from time to time.
//!
//! A server or proxy can refuse a command by closing the connection. Such a release would be repeated first on each
//! new connection, and close it again for all other commands. So a release that two connections in a row did not
//! answer is isolated: [`take_isolated`](PendingCommands::take_isolated) returns it, to be sent alone.
//!
//! [`Backoff`](super::Backoff) decides when the next try is due.

use super::stale_window::STALE_WINDOW;
use super::validity::Time;
use std::collections::{BTreeMap, VecDeque};

/// Maximum number of releases kept for one node (I12). Only commands that were written need a release,
/// and an unreachable node gets no commands. So only a node that fails again and again under load
/// comes near the maximum. Beyond it the oldest is dropped: its key exists until its ttl ends.
const MAX_RELEASES: usize = 1 << 16;

/// The work that an unanswered command leaves pending on a node. `K` identifies a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PendingWork<K> {
    Release(PendingRelease),
    /// The keys of the claim must not expire before `until`.
    Extension {
        claim: K,
        until: Time,
        /// The claim was released, so its keys need no extension.
        is_withdrawn: bool,
    },
    None,
}

/// A pending release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PendingRelease {
    /// When the last key of its claim must have expired.
    pub(crate) expiry: Time,
    /// A command of its claim was not answered, and may still run late on the node.
    pub(crate) may_run_late: bool,
    /// When the node was first reachable with this release pending: it replied with an error, or a
    /// new connection was set up after one that did not answer.
    pub(crate) reached: Option<Time>,
    /// If it is to be sent alone: the number of connections in a row that were closed without answering it.
    pub(crate) isolated: Option<u8>,
}

impl PendingRelease {
    /// True while there may be a key to delete. If a command may still run late, the release is kept until the node is
    /// reachable, and from then on for as long as a broken connection can deliver bytes. At the `last` chance, when the
    /// client was closed, the expiry replaces the time at which the node was reachable.
    pub(crate) fn is_useful(self, now: Time, last: bool) -> bool {
        let reached = if last { Some(self.expiry) } else { self.reached };
        match (self.may_run_late, reached) {
            (false, _) => now < self.expiry,
            (true, None) => true,
            (true, Some(reached)) => now < self.expiry.max(reached).after(STALE_WINDOW),
        }
    }
}

/// Releases and extensions to repeat when the node answers again.
#[derive(Debug)]
pub(crate) struct PendingCommands<C, K> {
    releases: VecDeque<C>,
    /// Releases that are sent alone, with the number of connections that did not answer them. The lowest number is
    /// first: most of these only shared a pipeline with a command that closes connections.
    isolated: VecDeque<(u8, C)>,
    /// The longest extension of each claim, with its `until`.
    extensions: BTreeMap<K, (Time, C)>,
}

impl<C, K: Ord> PendingCommands<C, K> {
    pub(crate) fn new() -> Self {
        Self { releases: VecDeque::new(), isolated: VecDeque::new(), extensions: BTreeMap::new() }
    }

    /// Keeps `command` if `work` is a release or an extension that is not withdrawn.
    pub(crate) fn add(&mut self, command: C, work: PendingWork<K>) {
        match work {
            PendingWork::Release(PendingRelease { isolated: Some(unanswered), .. }) => {
                let place = self.isolated.partition_point(|(other, _)| *other <= unanswered);
                self.isolated.insert(place, (unanswered, command));
                self.isolated.truncate(MAX_RELEASES);
            }
            PendingWork::Release(_) => {
                self.releases.push_back(command);
                if self.releases.len() > MAX_RELEASES {
                    self.releases.pop_front();
                }
            }
            PendingWork::Extension { claim, until, is_withdrawn: false } => {
                if self.extensions.get(&claim).is_none_or(|(known, _)| *known < until) {
                    self.extensions.insert(claim, (until, command));
                }
            }
            PendingWork::Extension { .. } | PendingWork::None => {}
        }
    }

    /// Number of pending releases.
    pub(crate) fn releases(&self) -> usize {
        self.releases.len() + self.isolated.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.has_shared() && !self.has_isolated()
    }

    /// True if there are commands that can share a pipeline.
    pub(crate) fn has_shared(&self) -> bool {
        !self.releases.is_empty() || !self.extensions.is_empty()
    }

    pub(crate) fn has_isolated(&self) -> bool {
        !self.isolated.is_empty()
    }

    /// Drops commands that have become useless; `work` returns their current state. `last` is true when the client
    /// was closed.
    pub(crate) fn prune(&mut self, now: Time, last: bool, work: impl Fn(&C) -> PendingWork<K>) {
        let is_useful = |command: &C| match work(command) {
            PendingWork::Release(release) => release.is_useful(now, last),
            PendingWork::Extension { until, is_withdrawn, .. } => now < until && !is_withdrawn,
            PendingWork::None => false,
        };
        self.releases.retain(is_useful);
        self.isolated.retain(|(_, command)| is_useful(command));
        self.extensions.retain(|_, (_, command)| is_useful(command));
    }

    /// Takes up to `most` commands that can share a pipeline, releases first.
    pub(crate) fn take(&mut self, most: usize) -> Vec<C> {
        let releases = self.releases.len().min(most);
        let mut taken: Vec<_> = self.releases.drain(..releases).collect();
        while taken.len() < most
            && let Some((_, (_, command))) = self.extensions.pop_first()
        {
            taken.push(command);
        }
        taken
    }

    /// Takes the next release to be sent alone.
    pub(crate) fn take_isolated(&mut self) -> Option<C> {
        self.isolated.pop_front().map(|(_, command)| command)
    }

    /// Takes all releases, for example to move them to another queue.
    pub(crate) fn take_releases(&mut self) -> impl Iterator<Item = C> {
        self.releases.drain(..).chain(self.isolated.drain(..).map(|(_, command)| command))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    type Command = (u32, PendingWork<u32>);

    fn at(secs: u64) -> Time {
        Time::default().after(Duration::from_secs(secs))
    }

    fn release(expiry: u64, may_run_late: bool, reached: Option<u64>) -> PendingWork<u32> {
        let (expiry, reached) = (at(expiry), reached.map(at));
        PendingWork::Release(PendingRelease { expiry, may_run_late, reached, isolated: None })
    }

    fn isolated(expiry: u64, unanswered: u8) -> PendingWork<u32> {
        let (expiry, reached) = (at(expiry), Some(at(0)));
        PendingWork::Release(PendingRelease {
            expiry,
            may_run_late: true,
            reached,
            isolated: Some(unanswered),
        })
    }

    fn extension(claim: u32, until: u64) -> PendingWork<u32> {
        PendingWork::Extension { claim, until: at(until), is_withdrawn: false }
    }

    fn pending(commands: &[PendingWork<u32>]) -> PendingCommands<Command, u32> {
        let mut pending = PendingCommands::new();
        for (command, id) in commands.iter().zip(0..) {
            pending.add((id, *command), *command);
        }
        pending
    }

    fn ids(taken: Vec<Command>) -> Vec<u32> {
        taken.into_iter().map(|(id, _)| id).collect()
    }

    #[test]
    fn pending_release_ends_with_the_stale_window_of_a_reachable_node() {
        for (may_run_late, reached, last, until) in [
            (false, None, false, 1),
            (false, Some(5), false, 1),
            (true, None, false, 1_000_000),
            (true, Some(0), false, 11),
            (true, Some(500), false, 510),
            (true, None, true, 11),
            (true, Some(5), true, 11),
        ] {
            let mut it = pending(&[release(1, may_run_late, reached)]);
            assert!(!it.is_empty(), "useful before {until} s");
            assert!(!it.is_empty(), "of use before {until} s");
            if until < 1_000 {
                it.prune(at(until), last, |(_, work)| *work);
                assert!(it.is_empty(), "useless: {may_run_late} {reached:?} {last}");
            }
        }
    }

    #[test]
    fn isolated_releases_are_taken_one_by_one_and_end() {
        let mut it =
            pending(&[isolated(1, 2), release(9, false, None), isolated(9, 2), extension(1, 9)]);
        assert!(it.has_isolated() && it.has_shared());
        assert_eq!((it.releases(), ids(it.take(9))), (3, vec![1, 3]));
        assert!(it.has_isolated() && !it.has_shared() && !it.is_empty());
        it.prune(at(11), false, |(_, work)| *work);
        assert_eq!(it.take_isolated().map(|(id, _)| id), Some(2));
        assert!(it.take_isolated().is_none() && it.is_empty());
        let mut it = pending(&[isolated(1, 2)]);
        assert_eq!(ids(it.take_releases().collect()), [0]);
    }

    #[test]
    fn isolated_release_with_the_fewest_tries_is_taken_first() {
        let mut it = pending(&[isolated(9, 4), isolated(9, 2), isolated(9, 3), isolated(9, 2)]);
        let order: Vec<_> = std::iter::from_fn(|| it.take_isolated().map(|(id, _)| id)).collect();
        assert_eq!(order, [1, 3, 2, 0]);
    }

    #[test]
    fn longest_useful_extension_of_a_claim_is_kept() {
        let gone = PendingWork::Extension { claim: 3, until: at(9), is_withdrawn: true };
        let mut it = pending(&[
            extension(1, 5),
            extension(1, 4),
            extension(2, 3),
            extension(2, 6),
            gone,
            PendingWork::None,
        ]);
        it.prune(at(4), false, |(_, work)| *work);
        assert_eq!(ids(it.take(9)), [0, 3]);
        assert!(it.is_empty());
        let mut it = pending(&[extension(1, 5), extension(2, 6)]);
        it.prune(at(5), false, |(_, work)| *work);
        assert_eq!(ids(it.take(9)), [1], "the other lease has ended");
        let mut it = pending(&[extension(1, 5), extension(1, 5)]);
        assert_eq!(ids(it.take(9)), [0], "the second is not longer");
        let mut it = pending(&[extension(1, 5)]);
        it.prune(at(1), false, |_| gone);
        assert!(it.is_empty(), "withdrawn since");
    }

    #[test]
    fn releases_come_first_and_in_order() {
        let mut it = pending(&[
            extension(2, 5),
            release(9, false, None),
            extension(1, 5),
            release(9, true, None),
        ]);
        assert_eq!(ids(it.take(1)), [1]);
        assert_eq!(ids(it.take(2)), [3, 2]);
        assert_eq!(ids(it.take(2)), [0]);
        assert_eq!((ids(it.take(2)), it.is_empty()), (vec![], true));
        let mut it = pending(&[release(9, false, None), extension(1, 5)]);
        assert_eq!(ids(it.take_releases().collect()), [0]);
        assert!(!it.is_empty());
    }

    #[test]
    fn oldest_release_is_dropped_at_the_maximum() {
        let most = u32::try_from(MAX_RELEASES).expect("the maximum fits");
        let mut it = PendingCommands::new();
        for id in 0..most + 2 {
            it.add((id, release(9, true, None)), release(9, true, None));
        }
        let kept = ids(it.take(usize::MAX));
        assert_eq!(
            (kept.len(), kept.first(), kept.last()),
            (MAX_RELEASES, Some(&2), Some(&(most + 1)))
        );
    }

    #[derive(Clone, Copy, Debug)]
    enum Operation {
        Release { lasts: u64, may_run_late: bool, is_reached: bool },
        Extend { claim: u32, lasts: u64 },
        Withdraw(u32),
        Prune { pause: u64, last: bool },
        Take(usize),
    }

    fn operations() -> impl Strategy<Value = Vec<Operation>> {
        let coin = any::<bool>;
        let operation = prop_oneof![
            (0..40_u64, coin(), coin()).prop_map(|(lasts, may_run_late, is_reached)| {
                Operation::Release { lasts, may_run_late, is_reached }
            }),
            (0..4_u32, 0..40_u64).prop_map(|(claim, lasts)| Operation::Extend { claim, lasts }),
            (0..4_u32).prop_map(Operation::Withdraw),
            (0..20_u64, coin()).prop_map(|(pause, last)| Operation::Prune { pause, last }),
            (0..6_usize).prop_map(Operation::Take),
        ];
        proptest::collection::vec(operation, 1..60)
    }

    proptest! {
        /// Compares with a plain list of all commands. Each command that is still useful is taken
        /// once, and no other is.
        #[test]
        fn useful_commands_are_taken_once(operations in operations()) {
            let (mut it, mut now) = (PendingCommands::new(), 0);
            let mut truth: Vec<Command> = Vec::new();
            let mut withdrawn = [false; 4];
            let mut ids = 0..;
            for operation in operations {
                let id = ids.next().unwrap_or_default();
                match operation {
                    Operation::Release { lasts, may_run_late, is_reached } => {
                        let work = release(now + lasts, may_run_late, is_reached.then_some(now));
                        it.add((id, work), work);
                        truth.push((id, work));
                    }
                    Operation::Extend { claim, lasts } => {
                        let is_withdrawn = withdrawn[claim as usize];
                        let work = PendingWork::Extension { claim, until: at(now + lasts), is_withdrawn };
                        it.add((id, work), work);
                        if !is_withdrawn {
                            truth.push((id, work));
                        }
                    }
                    Operation::Withdraw(claim) => withdrawn[claim as usize] = true,
                    Operation::Prune { pause, last } => {
                        now += pause;
                        it.prune(at(now), last, |(_, work)| match *work {
                            PendingWork::Extension { claim, until, .. } => {
                                PendingWork::Extension { claim, until, is_withdrawn: withdrawn[claim as usize] }
                            }
                            work => work,
                        });
                        truth.retain(|(_, work)| match *work {
                            PendingWork::Release(it) => {
                                let hangs = if it.reached.is_some() || last { 10 } else { u64::MAX };
                                let more = if it.may_run_late { hangs } else { 0 };
                                at(now) < it.expiry.after(Duration::from_secs(more))
                            }
                            PendingWork::Extension { claim, until, .. } => {
                                at(now) < until && !withdrawn[claim as usize]
                            }
                            PendingWork::None => false,
                        });
                    }
                    Operation::Take(most) => {
                        let taken = it.take(most);
                        prop_assert!(taken.len() <= most);
                        let is_release = |work: &PendingWork<u32>| matches!(work, PendingWork::Release(_));
                        prop_assert!(taken.is_sorted_by_key(|(_, work)| !is_release(work)));
                        for (id, work) in &taken {
                            prop_assert!(truth.iter().any(|(known, _)| known == id), "{id}");
                            // One extension replaces all that are not longer.
                            truth.retain(|(known, other)| match (work, other) {
                                (
                                    PendingWork::Extension { claim, until, .. },
                                    PendingWork::Extension { claim: of, until: to, .. },
                                ) => {
                                    assert!(claim != of || to <= until, "there was a longer one");
                                    claim != of
                                }
                                _ => known != id,
                            });
                        }
                        prop_assert!(taken.len() == most || truth.is_empty(), "{truth:?}");
                    }
                }
                prop_assert_eq!(it.is_empty(), truth.is_empty());
            }
        }
    }
}
