//! Checks the invariants of a round for every combination of votes in every arrival order, with one to five nodes.

use super::quorum::{NodeId, Quorum};
use super::round::{Goal, Outcome, Round, Vote};
use super::validity::Time;

const VOTES: [Vote; 4] = [Vote::Granted, Vote::Denied, Vote::Missing, Vote::Failed];
const END: Time = Time::from_nanos(1_000);
const EARLY: Time = Time::from_nanos(500);

/// Returns every combination of votes that `nodes` nodes can cast, using the first `kinds` elements of [`VOTES`].
fn vectors(nodes: usize, kinds: usize) -> impl Iterator<Item = Vec<Vote>> {
    (0..kinds.pow(nodes.try_into().expect("a few nodes"))).map(move |code| {
        let digit = |place: usize| code / kinds.pow(place.try_into().expect("few")) % kinds;
        (0..nodes).map(|node| VOTES[digit(node)]).collect()
    })
}

fn orders(nodes: usize) -> Vec<Vec<usize>> {
    if nodes == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for shorter in orders(nodes - 1) {
        for place in 0..=shorter.len() {
            let mut order = shorter.clone();
            order.insert(place, nodes - 1);
            all.push(order);
        }
    }
    all
}

fn count(votes: &[Vote], wanted: Vote) -> usize {
    votes.iter().filter(|vote| **vote == wanted).count()
}

/// Passes the votes to a new round in the given `order`, all at the time `now`. Checks I1, I2 and I6 after each vote.
/// Returns the number of decisions, and the round.
fn play(goal: Goal, votes: &[Vote], order: &[usize], now: Time) -> (usize, Round) {
    let mut round = Round::new(Quorum::majority(votes.len()), goal);
    let mut decisions = 0;
    for (arrived, &node) in order.iter().enumerate() {
        let id = NodeId::new(node);
        let before = round.outcome();
        let decided = round.handle_vote(id, votes[node], now);
        decisions += usize::from(decided.is_some());
        assert!(before.is_none() || round.outcome() == before, "I2: a decision is final");
        assert_eq!(round.votes().len(), arrived + 1, "later votes are recorded");
        for other in VOTES {
            assert_eq!(round.handle_vote(id, other, now), None, "I1: a node votes once");
        }
        assert_eq!(round.votes().len(), arrived + 1, "I1: a second vote is not recorded");
        let heard: Vec<_> = order[..=arrived].iter().map(|node| votes[*node]).collect();
        let soon = count(&heard, Vote::Granted);
        if round.quorum().reached(soon) {
            assert!(round.outcome().is_some(), "I6: a quorum decides at once");
        }
    }
    (decisions, round)
}

fn each_round(kinds: usize, mut check: impl FnMut(&[Vote], &[usize])) -> usize {
    let mut rounds = 0;
    for nodes in 1..=5 {
        let orders = orders(nodes);
        for votes in vectors(nodes, kinds) {
            for order in &orders {
                check(&votes, order);
                rounds += 1;
            }
        }
    }
    rounds
}

#[test]
fn acquire_wins_if_and_only_if_a_quorum_granted_in_time() {
    let goal = Goal::Acquire { valid_until: END };
    // An acquire has no Missing votes, so vectors that contain one are skipped.
    let mut seen = 0;
    each_round(4, |votes, order| {
        if votes.contains(&Vote::Missing) {
            return;
        }
        seen += 1;
        let quorum = Quorum::majority(votes.len());
        let (granted, failed) = (count(votes, Vote::Granted), count(votes, Vote::Failed));
        let (decisions, round) = play(goal, votes, order, EARLY);
        assert_eq!(decisions, 1, "I2: all have voted, so it decided once: {votes:?} {order:?}");
        let outcome = round.outcome().expect("decided");
        assert_eq!(outcome == Outcome::Won, quorum.reached(granted), "I3: {votes:?} {order:?}");
        let denied = count(votes, Vote::Denied);
        match outcome {
            Outcome::NoQuorum => assert!(quorum.blocked(failed), "enough failures: {votes:?}"),
            Outcome::Denied => assert!(denied > 0, "I11: contention needs a holder: {votes:?}"),
            _ => assert_eq!(outcome, Outcome::Won),
        }
        if quorum.blocked(failed) && !quorum.blocked(denied) {
            assert_eq!(outcome, Outcome::NoQuorum, "in any order: {votes:?} {order:?}");
        }
        for late in [END, Time::END] {
            let (_, round) = play(goal, votes, order, late);
            assert_ne!(round.outcome(), Some(Outcome::Won), "I3: never won at the end or later");
            let too_late = round.outcome() == Some(Outcome::TooLate);
            assert_eq!(too_late, quorum.reached(granted));
        }
    });
    assert_eq!(seen, 31_287);
}

#[test]
fn deferred_grants_count_later_and_the_round_waits() {
    const SOON: Time = Time::from_nanos(600);
    const LATER: Time = Time::from_nanos(700);
    let mut seen = 0;
    each_round(4, |votes, order| {
        if votes.contains(&Vote::Missing) || votes.len() == 5 {
            return;
        }
        let quorum = Quorum::majority(votes.len());
        // A node's grant counts at once, later, or too late for this round.
        for kinds in 0..3_usize.pow(u32::try_from(votes.len()).expect("few")) {
            seen += 1;
            let counts_from =
                |node: usize| match kinds / 3_usize.pow(u32::try_from(node).expect("few")) % 3 {
                    0 => None,
                    1 => Some(SOON),
                    _ => Some(END),
                };
            let granted = |by: Time| {
                let counts = |node: &usize| counts_from(*node).is_none_or(|at| at <= by);
                (0..votes.len()).filter(|n| votes[*n] == Vote::Granted && counts(n)).count()
            };
            let case = format!("{votes:?} {order:?} {kinds}");
            let mut round = Round::new(quorum, Goal::Acquire { valid_until: END });
            let mut decisions = 0;
            for &node in order {
                let id = NodeId::new(node);
                if let Some(at) = counts_from(node) {
                    round.note_counts_from(id, at);
                }
                decisions += usize::from(round.handle_vote(id, votes[node], EARLY).is_some());
            }
            if quorum.reached(granted(EARLY)) {
                assert_eq!((decisions, round.outcome()), (1, Some(Outcome::Won)), "{case}");
            } else if quorum.reached(granted(SOON)) {
                assert_eq!(
                    (decisions, round.outcome(), round.due()),
                    (0, None, Some(SOON)),
                    "{case}"
                );
                let mut closed = round.clone();
                assert!(closed.handle_close(EARLY).is_some_and(|it| it != Outcome::Won), "{case}");
                assert_eq!(round.handle_time(EARLY), None, "{case}");
                assert_eq!(round.handle_time(LATER), Some(Outcome::Won), "{case}");
            } else {
                assert_eq!((decisions, round.due()), (1, None), "{case}");
                assert_ne!(round.outcome(), Some(Outcome::Won), "{case}");
            }
        }
    });
    assert_eq!(seen, 162_009);
}

#[test]
fn extension_needs_quorum_before_the_old_end() {
    let later = Time::from_nanos(2_000);
    let goal = Goal::Extend { current: END, proposed: later };
    let rounds = each_round(4, |votes, order| {
        let quorum = Quorum::majority(votes.len());
        let gone = count(votes, Vote::Denied) + count(votes, Vote::Missing);
        let (decisions, round) = play(goal, votes, order, EARLY);
        assert_eq!(decisions, 1);
        let outcome = round.outcome().expect("decided");
        assert_eq!(outcome == Outcome::Won, quorum.reached(count(votes, Vote::Granted)), "I9");
        if matches!(outcome, Outcome::Denied | Outcome::Missing) {
            assert!(quorum.blocked(gone), "lost needs a majority that lost it: {votes:?}");
        }
        let (_, round) = play(goal, votes, order, END);
        assert_ne!(round.outcome(), Some(Outcome::Won), "I9: decided at the old end is too late");
    });
    assert_eq!(rounds, 129_444);
}

#[test]
fn release_outcome_is_exact() {
    each_round(4, |votes, order| {
        let quorum = Quorum::majority(votes.len());
        let (deleted, failed) = (count(votes, Vote::Granted), count(votes, Vote::Failed));
        let (foreign, missing) = (count(votes, Vote::Denied), count(votes, Vote::Missing));
        let expected = if quorum.reached(deleted) {
            Outcome::Won
        } else if quorum.blocked(failed) {
            Outcome::NoQuorum
        } else if quorum.blocked(foreign) {
            Outcome::Denied
        } else if quorum.blocked(foreign + missing) {
            Outcome::Missing
        } else {
            Outcome::NoQuorum
        };
        let (decisions, round) = play(Goal::Release, votes, order, EARLY);
        assert_eq!((decisions, round.outcome()), (1, Some(expected)), "{votes:?} {order:?}");
    });
}

#[test]
fn closing_decides_once_and_late_votes_change_nothing() {
    let extend = Goal::Extend { current: END, proposed: Time::from_nanos(2_000) };
    for goal in [Goal::Acquire { valid_until: END }, extend, Goal::Release] {
        each_round(4, |votes, order| {
            for closed_after in 0..=votes.len() {
                let mut round = Round::new(Quorum::majority(votes.len()), goal);
                let mut decisions = 0;
                for &node in &order[..closed_after] {
                    decisions += usize::from(
                        round.handle_vote(NodeId::new(node), votes[node], EARLY).is_some(),
                    );
                }
                decisions += usize::from(round.handle_close(EARLY).is_some());
                let outcome = round.outcome().expect("I2: a closed round is decided");
                for &node in &order[closed_after..] {
                    decisions += usize::from(
                        round.handle_vote(NodeId::new(node), votes[node], EARLY).is_some(),
                    );
                }
                assert_eq!(decisions, 1, "I2: {goal:?} {votes:?} {order:?} {closed_after}");
                assert_eq!(round.outcome(), Some(outcome), "I2");
                assert_eq!(round.votes().len(), votes.len(), "late votes are recorded");
                let heard: Vec<_> = order[..closed_after].iter().map(|n| votes[*n]).collect();
                let won = round.quorum().reached(count(&heard, Vote::Granted));
                assert_eq!(outcome == Outcome::Won, won, "silence is never a grant");
            }
        });
    }
}
