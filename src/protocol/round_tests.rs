//! Tests of [`Round`]: sets of nodes by vote, late decisions, surveys, and deferred grants.

use super::*;

fn ms(ms: u64) -> Time {
    Time::from_nanos(ms * 1_000_000)
}

fn round(nodes: usize, goal: Goal) -> Round {
    Round::new(Quorum::majority(nodes), goal)
}

#[test]
fn votes_are_kept_by_kind() {
    let mut it = round(5, Goal::Release);
    let votes = [Vote::Granted, Vote::Missing, Vote::Denied, Vote::Granted, Vote::Missing];
    for (node, vote) in votes.into_iter().enumerate() {
        it.handle_vote(NodeId::new(node), vote, ms(1));
    }
    let of = |nodes: [usize; 2]| nodes.map(NodeId::new).into_iter().collect::<NodeSet>();
    assert_eq!((it.granted(), it.missing()), (of([0, 3]), of([1, 4])));
    assert_eq!(it.votes().len(), 5);
}

#[test]
fn late_vote_of_a_quorum_is_too_late_in_any_order() {
    for times in [[12, 8], [8, 12]] {
        let mut it = round(3, Goal::Acquire { valid_until: ms(10) });
        let [first, second] = times.map(ms);
        assert_eq!(it.handle_vote(NodeId::new(0), Vote::Granted, first), None);
        let outcome = it.handle_vote(NodeId::new(1), Vote::Granted, second);
        assert_eq!(outcome, Some(Outcome::TooLate), "read at {times:?} ms");
    }
}

#[test]
fn earliest_free_is_when_a_quorum_can_be_free() {
    for (failures, free_at) in [(0, 20), (1, 30), (2, 40)] {
        let mut it = round(5, Goal::Acquire { valid_until: ms(1_000) });
        for node in 0..failures {
            it.handle_vote(NodeId::new(node), Vote::Failed, ms(1));
        }
        for (node, at) in (failures..5).zip([10, 40, 30, 20]) {
            it.note_free_at(ms(at));
            it.handle_vote(NodeId::new(node), Vote::Denied, ms(1));
        }
        assert_eq!(it.earliest_free(), Some(ms(free_at)), "{failures} failed");
    }
    let mut blocked = round(5, Goal::Acquire { valid_until: ms(1_000) });
    for node in 0..3 {
        blocked.handle_vote(NodeId::new(node), Vote::Failed, ms(1));
    }
    assert_eq!(blocked.earliest_free(), None, "failures are the reason, not holders");
}

#[test]
fn survey_is_decided_by_the_last_vote() {
    let mut it = round(3, Goal::Survey);
    let vote = |it: &mut Round, node| it.handle_vote(NodeId::new(node), Vote::Granted, ms(1));
    assert_eq!((vote(&mut it, 0), vote(&mut it, 1)), (None, None), "the third may vote");
    assert_eq!(vote(&mut it.clone(), 2), Some(Outcome::Won));
    assert_eq!(it.handle_close(ms(5)), Some(Outcome::Won));
}

/// Creates an acquire round on `nodes` nodes, two of which have granted. The second grant counts only from
/// `counts_from` onwards, in milliseconds.
fn deferred(nodes: usize, counts_from: u64) -> Round {
    let mut it = round(nodes, Goal::Acquire { valid_until: ms(1_000) });
    it.note_counts_from(NodeId::new(1), ms(counts_from));
    for node in 0..2 {
        assert_eq!(it.handle_vote(NodeId::new(node), Vote::Granted, ms(1)), None);
    }
    it
}

#[test]
fn deferred_grant_counts_from_its_time() {
    let mut it = deferred(3, 10);
    let is_uncounted_grant =
        |it: &Round| [0, 1].map(|node| it.is_uncounted_grant(NodeId::new(node)));
    assert_eq!((it.handle_time(ms(9)), is_uncounted_grant(&it)), (None, [false, true]));
    assert_eq!(
        (it.handle_time(ms(10)), is_uncounted_grant(&it)),
        (Some(Outcome::Won), [false, false])
    );
    assert_eq!(is_uncounted_grant(&deferred(5, 10)), [false, false], "they are no quorum anyway");
}

#[test]
fn grant_deferred_beyond_close_is_a_failure() {
    assert_eq!(deferred(3, 50).handle_close(ms(20)), Some(Outcome::NoQuorum));
    // The deferred grant counts just in time, so the denial is the cause.
    let mut it = deferred(5, 20);
    assert_eq!(it.handle_vote(NodeId::new(2), Vote::Denied, ms(2)), None);
    assert_eq!(it.handle_close(ms(20)), Some(Outcome::Denied));
}
