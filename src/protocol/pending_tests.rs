//! Tests of pending releases and extensions: their order, when they become useless, and the maximum number.

use super::*;
use proptest::prelude::*;
use std::time::Duration;

type Command = (u32, PendingWork<u32>);

fn at(secs: u64) -> Time {
    Time::default().after(Duration::from_secs(secs))
}

fn release(expiry: u64, may_run_late: bool, reached: Option<u64>) -> PendingWork<u32> {
    let (expiry, reached) = (at(expiry), reached.map(at));
    PendingWork::Release(PendingRelease {
        expiry,
        may_run_late,
        reached,
        isolated_unanswered: None,
    })
}

fn isolated(expiry: u64, unanswered: u8) -> PendingWork<u32> {
    let (expiry, reached) = (at(expiry), Some(at(0)));
    PendingWork::Release(PendingRelease {
        expiry,
        may_run_late: true,
        reached,
        isolated_unanswered: Some(unanswered),
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
fn pending_release_ends_with_stale_window_of_reachable_node() {
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
}

#[test]
fn isolated_release_with_the_fewest_tries_is_taken_first() {
    let mut it = pending(&[isolated(9, 4), isolated(9, 2), isolated(9, 3), isolated(9, 2)]);
    let order: Vec<_> = std::iter::from_fn(|| it.take_isolated().map(|(id, _)| id)).collect();
    assert_eq!(order, [1, 3, 2, 0]);
}

#[test]
fn isolated_releases_like_a_failed_one_are_taken_after_others() {
    let mut it = pending(&[isolated(9, 3), isolated(9, 2), isolated(9, 4), isolated(9, 2)]);
    it.defer_isolated(3, |(id, _)| [1, 2].contains(id));
    let order: Vec<_> = std::iter::from_fn(|| it.take_isolated().map(|(id, _)| id)).collect();
    assert_eq!(order, [3, 1, 0, 2]);
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
    /// Compares with a plain list of all commands. Checks that each useful command is taken exactly once, and that no
    /// other command is taken.
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
                        // One extension replaces all extensions of its claim that are not longer.
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
