//! What a node that is away still has to be told.
//!
//! A release has to reach every node that its `SET` was written to, and an extension every node that missed
//! it (I5, I6). What a node did not answer, or answered with an error, is kept here and written again.
//!
//! Give each command that a node is still owed to [`keep`](Pending::keep), with what [`Owed`] says of it: a
//! release is kept beside the others, of the extensions of a claim only the longest, and anything else is
//! owed to nobody. When a try is due, [`prune`](Pending::prune) drops what has no use any more, and
//! [`take`](Pending::take) gives out the rest, releases first: they free locks for others. While the node is
//! away, prune from time to time.
//!
//! When the next try is due is the business of a [`Backoff`](super::Backoff): that is about the node, this
//! is about keys.

use super::stale_window::STALE_WINDOW;
use super::validity::Time;
use std::collections::{BTreeMap, VecDeque};

/// The most releases kept for one node (I12). Only commands that were written are owed a release,
/// and nothing is written to a node that is away, so a node has to fail again and again under load
/// to come near. Beyond, the oldest is dropped: its key lives for its ttl.
const MAX_RELEASES: usize = 1 << 16;

/// What a command is to a node that has not done it. `K` tells claims apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owed<K> {
    Release(OwedRelease),
    /// The keys of the claim are to stand until then.
    Extension {
        claim: K,
        until: Time,
        /// The claim was given up: its keys are to go.
        is_withdrawn: bool,
    },
    Nothing,
}

/// A release that is owed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwedRelease {
    /// When the last key must have expired that was written for its claim.
    pub(crate) expiry: Time,
    /// A command of its claim was left unanswered, and may still run late on the node.
    pub(crate) is_in_doubt: bool,
    /// The node refuses it, and will go on to until somebody sees to that.
    pub(crate) is_refused: bool,
}

impl OwedRelease {
    /// True while there may be a key to be released. What may still run late is waited for until the node
    /// answers; but only for as long as a connection that broke can deliver anything, if the node refuses
    /// it for good, and at the `last` chance, when there is nobody left to serve.
    fn is_of_use(self, now: Time, last: bool) -> bool {
        match (self.is_in_doubt, last || self.is_refused) {
            (false, _) => now < self.expiry,
            (true, false) => true,
            (true, true) => now < self.expiry.after(STALE_WINDOW),
        }
    }
}

/// Releases and extensions that have to reach a node when it answers again.
#[derive(Debug)]
pub(crate) struct Pending<C, K> {
    releases: VecDeque<C>,
    /// By claim, the longest, with until when that is.
    extensions: BTreeMap<K, (Time, C)>,
}

impl<C, K: Ord> Pending<C, K> {
    /// Nothing is owed.
    pub(crate) fn new() -> Self {
        Self { releases: VecDeque::new(), extensions: BTreeMap::new() }
    }

    /// Keeps `command`, if it is owed.
    pub(crate) fn keep(&mut self, command: C, owed: Owed<K>) {
        match owed {
            Owed::Release(_) => {
                self.releases.push_back(command);
                if self.releases.len() > MAX_RELEASES {
                    self.releases.pop_front();
                }
            }
            Owed::Extension { claim, until, is_withdrawn: false } => {
                if self.extensions.get(&claim).is_none_or(|(known, _)| *known < until) {
                    self.extensions.insert(claim, (until, command));
                }
            }
            Owed::Extension { .. } | Owed::Nothing => {}
        }
    }

    /// How many releases are owed.
    pub(crate) fn releases(&self) -> usize {
        self.releases.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.releases.is_empty() && self.extensions.is_empty()
    }

    /// Drops what has no use any more by what `owed` says of it now. `last` says that there is nobody left
    /// to serve.
    pub(crate) fn prune(&mut self, now: Time, last: bool, owed: impl Fn(&C) -> Owed<K>) {
        let is_of_use = |command: &C| match owed(command) {
            Owed::Release(release) => release.is_of_use(now, last),
            Owed::Extension { until, is_withdrawn, .. } => now < until && !is_withdrawn,
            Owed::Nothing => false,
        };
        self.releases.retain(is_of_use);
        self.extensions.retain(|_, (_, command)| is_of_use(command));
    }

    /// Takes up to `most` commands, releases first.
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

    /// Takes all releases, to be kept elsewhere.
    pub(crate) fn take_releases(&mut self) -> impl Iterator<Item = C> {
        self.releases.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    type Command = (u32, Owed<u32>);

    fn at(secs: u64) -> Time {
        Time::default().after(Duration::from_secs(secs))
    }

    fn release(expiry: u64, is_in_doubt: bool, is_refused: bool) -> Owed<u32> {
        Owed::Release(OwedRelease { expiry: at(expiry), is_in_doubt, is_refused })
    }

    fn extension(claim: u32, until: u64) -> Owed<u32> {
        Owed::Extension { claim, until: at(until), is_withdrawn: false }
    }

    fn pending(commands: &[Owed<u32>]) -> Pending<Command, u32> {
        let mut pending = Pending::new();
        for (command, id) in commands.iter().zip(0..) {
            pending.keep((id, *command), *command);
        }
        pending
    }

    fn ids(taken: Vec<Command>) -> Vec<u32> {
        taken.into_iter().map(|(id, _)| id).collect()
    }

    #[test]
    fn a_release_that_is_refused_for_good_is_not_repeated_for_ever() {
        for (is_in_doubt, is_refused, last, until) in [
            (false, false, false, 1),
            (false, true, false, 1),
            (true, false, false, 1_000_000),
            (true, true, false, 11),
            (true, false, true, 11),
            (true, true, true, 11),
        ] {
            let mut it = pending(&[release(1, is_in_doubt, is_refused)]);
            it.prune(at(until - 1), last, |(_, owed)| *owed);
            assert!(!it.is_empty(), "of use before {until} s");
            if until < 1_000 {
                it.prune(at(until), last, |(_, owed)| *owed);
                assert!(it.is_empty(), "no more: {is_in_doubt} {is_refused} {last}");
            }
        }
    }

    #[test]
    fn of_the_extensions_of_a_claim_the_longest_is_kept_while_it_is_of_use() {
        let gone = Owed::Extension { claim: 3, until: at(9), is_withdrawn: true };
        let mut it = pending(&[
            extension(1, 5),
            extension(1, 4),
            extension(2, 3),
            extension(2, 6),
            gone,
            Owed::Nothing,
        ]);
        it.prune(at(4), false, |(_, owed)| *owed);
        assert_eq!(ids(it.take(9)), [0, 3]);
        assert!(it.is_empty());
        let mut it = pending(&[extension(1, 5), extension(2, 6)]);
        it.prune(at(5), false, |(_, owed)| *owed);
        assert_eq!(ids(it.take(9)), [1], "the lease of the other has ended");
        let mut it = pending(&[extension(1, 5), extension(1, 5)]);
        assert_eq!(ids(it.take(9)), [0], "the other brings nothing more");
        let mut it = pending(&[extension(1, 5)]);
        it.prune(at(1), false, |_| gone);
        assert!(it.is_empty(), "given up since");
    }

    #[test]
    fn releases_come_first_and_in_order() {
        let mut it = pending(&[
            extension(2, 5),
            release(9, false, false),
            extension(1, 5),
            release(9, true, false),
        ]);
        assert_eq!(ids(it.take(1)), [1]);
        assert_eq!(ids(it.take(2)), [3, 2]);
        assert_eq!(ids(it.take(2)), [0]);
        assert_eq!((ids(it.take(2)), it.is_empty()), (vec![], true));
        let mut it = pending(&[release(9, false, false), extension(1, 5)]);
        assert_eq!(ids(it.take_releases().collect()), [0]);
        assert!(!it.is_empty());
    }

    #[test]
    fn of_too_many_releases_the_oldest_is_dropped() {
        let most = u32::try_from(MAX_RELEASES).expect("not so many");
        let mut it = Pending::new();
        for id in 0..most + 2 {
            it.keep((id, release(9, true, false)), release(9, true, false));
        }
        let kept = ids(it.take(usize::MAX));
        assert_eq!(
            (kept.len(), kept.first(), kept.last()),
            (MAX_RELEASES, Some(&2), Some(&(most + 1)))
        );
    }

    #[derive(Clone, Copy, Debug)]
    enum Deed {
        Release { lasts: u64, is_in_doubt: bool, is_refused: bool },
        Extend { claim: u32, lasts: u64 },
        Withdraw(u32),
        Prune { pause: u64, last: bool },
        Take(usize),
    }

    fn deeds() -> impl Strategy<Value = Vec<Deed>> {
        let coin = any::<bool>;
        let deed = prop_oneof![
            (0..40_u64, coin(), coin()).prop_map(|(lasts, is_in_doubt, is_refused)| {
                Deed::Release { lasts, is_in_doubt, is_refused }
            }),
            (0..4_u32, 0..40_u64).prop_map(|(claim, lasts)| Deed::Extend { claim, lasts }),
            (0..4_u32).prop_map(Deed::Withdraw),
            (0..20_u64, coin()).prop_map(|(pause, last)| Deed::Prune { pause, last }),
            (0..6_usize).prop_map(Deed::Take),
        ];
        proptest::collection::vec(deed, 1..60)
    }

    proptest! {
        /// The truth is a plain list of all that was ever kept. Whatever a node needs to be told is told
        /// once, and nothing else is.
        #[test]
        fn what_is_needed_is_told_once(deeds in deeds()) {
            let (mut it, mut now) = (Pending::new(), 0);
            let mut truth: Vec<Command> = Vec::new();
            let mut withdrawn = [false; 4];
            let mut ids = 0..;
            for deed in deeds {
                let id = ids.next().unwrap_or_default();
                match deed {
                    Deed::Release { lasts, is_in_doubt, is_refused } => {
                        let owed = release(now + lasts, is_in_doubt, is_refused);
                        it.keep((id, owed), owed);
                        truth.push((id, owed));
                    }
                    Deed::Extend { claim, lasts } => {
                        let is_withdrawn = withdrawn[claim as usize];
                        let owed = Owed::Extension { claim, until: at(now + lasts), is_withdrawn };
                        it.keep((id, owed), owed);
                        if !is_withdrawn {
                            truth.push((id, owed));
                        }
                    }
                    Deed::Withdraw(claim) => withdrawn[claim as usize] = true,
                    Deed::Prune { pause, last } => {
                        now += pause;
                        it.prune(at(now), last, |(_, owed)| match *owed {
                            Owed::Extension { claim, until, .. } => {
                                Owed::Extension { claim, until, is_withdrawn: withdrawn[claim as usize] }
                            }
                            owed => owed,
                        });
                        truth.retain(|(_, owed)| match *owed {
                            Owed::Release(it) => {
                                let hangs = if it.is_refused || last { 10 } else { u64::MAX };
                                let more = if it.is_in_doubt { hangs } else { 0 };
                                at(now) < it.expiry.after(Duration::from_secs(more))
                            }
                            Owed::Extension { claim, until, .. } => {
                                at(now) < until && !withdrawn[claim as usize]
                            }
                            Owed::Nothing => false,
                        });
                    }
                    Deed::Take(most) => {
                        let taken = it.take(most);
                        prop_assert!(taken.len() <= most);
                        let is_release = |owed: &Owed<u32>| matches!(owed, Owed::Release(_));
                        prop_assert!(taken.is_sorted_by_key(|(_, owed)| !is_release(owed)));
                        for (id, owed) in &taken {
                            prop_assert!(truth.iter().any(|(known, _)| known == id), "{id}");
                            // One extension stands for all that are not longer.
                            truth.retain(|(known, other)| match (owed, other) {
                                (
                                    Owed::Extension { claim, until, .. },
                                    Owed::Extension { claim: of, until: to, .. },
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
