//! What becomes of nodes' answers in a round, and what is reported of them.

use super::*;
use crate::observe::Holder;
use crate::protocol::{Goal, Quorum};
use crate::wire::{RemainingTtl, Value};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

/// An acquire over three nodes that begins now, and what it wins is valid for so long.
fn acquire(validity: Duration) -> Arc<Tally> {
    let clock = Clock::default();
    let t1 = clock.now();
    let goal = Goal::Acquire { valid_until: t1.after(validity) };
    Tally::new(Round::new(Quorum::majority(3), goal), t1, &clock)
}

/// The same, valid for an hour, with these answers.
fn tally(answers: &[Answer]) -> Arc<Tally> {
    let tally = acquire(Duration::from_hours(1));
    let quorum = Quorum::majority(3);
    for (node, answer) in quorum.ids().zip(answers) {
        tally.count_answer(node, answer.clone(), None);
    }
    tally
}

fn report(tally: &Tally) -> Report {
    tally.report(["a", "b", "c"].into_iter().map(Arc::from))
}

fn granted(counts_from: Option<Time>) -> Answer {
    Answer::Granted(Grant { counts_from, ..Grant::default() })
}

fn restarted() -> NodeFailure {
    let (ago, counts_in) = (Duration::from_secs(3), Duration::from_secs(57));
    NodeFailure::Restarted { ago, counts_in }
}

#[test]
fn a_grant_that_is_excluded_is_reported_as_a_failure_and_counts_again_later() {
    let tally = tally(&[granted(None), Answer::Excluded(restarted())]);
    assert!(tally.with_round(|round| round.outcome().is_none()), "one grant is no quorum");
    let report = report(&tally);
    let votes: Vec<_> = report.nodes().iter().map(NodeReport::vote).collect();
    let failed = NodeVote::Failed(restarted());
    assert_eq!(votes, [&NodeVote::Granted, &failed, &NodeVote::Pending]);
    let again = tally.counts_again_at().expect("it is known when");
    let counts_in = again.since(tally.t1());
    assert!(counts_in >= Duration::from_secs(57) && counts_in < Duration::from_secs(87));
}

#[test]
fn a_quorum_that_comes_when_the_validity_is_over_has_not_won() {
    let tally = acquire(Duration::from_millis(200));
    let [first, second] = [0, 1].map(NodeId::new);
    let at = |ms| Some(tally.t1().after(Duration::from_millis(ms)));
    assert_eq!(tally.count_answer(first, granted(None), at(100)), None);
    assert_eq!(tally.count_answer(second, granted(None), at(300)), Some(Outcome::TooLate));
}

#[test]
fn an_answer_of_which_it_is_not_known_when_it_was_read_counts_now() {
    let tally = acquire(Duration::from_millis(200));
    std::thread::sleep(Duration::from_millis(300));
    let outcome = [0, 1].map(|node| tally.count_answer(NodeId::new(node), granted(None), None));
    assert_eq!(outcome, [None, Some(Outcome::TooLate)]);
}

#[test]
fn what_failed_by_itself_is_not_said_to_count_again() {
    let tally =
        tally(&[Answer::Failed(NodeFailure::ShutDown), Answer::Missing { number: Some(4) }]);
    assert_eq!(tally.counts_again_at(), None);
    assert_eq!((tally.highest_number(), tally.obstacle()), (Some(4), None));
    let report = report(&tally);
    let votes: Vec<_> = report.nodes().iter().map(NodeReport::vote).collect();
    let failed = NodeVote::Failed(NodeFailure::ShutDown);
    assert_eq!(votes, [&failed, &NodeVote::Missing, &NodeVote::Pending]);
}

#[test]
fn a_grant_that_counts_later_decides_nothing_and_is_void_at_the_end() {
    let later = Clock::default().now().after(Duration::from_mins(30));
    let tally = tally(&[granted(None), granted(Some(later))]);
    assert!(tally.with_round(|round| round.outcome().is_none()));
    assert_eq!(tally.with_round(Round::due), Some(later));
    assert_eq!(tally.counts_again_at(), Some(later));
    assert_eq!(tally.close(), Some(Outcome::NoQuorum));
    let report = report(&tally);
    let vote = report.nodes()[1].vote();
    assert!(matches!(vote, NodeVote::Failed(NodeFailure::Suspect { .. })), "{vote:?}");
}

#[test]
fn what_is_in_the_way_is_told_and_says_when_to_come_again() {
    let denied = |remaining: Option<RemainingTtl>, value: Option<&[u8]>| {
        let value = value.map(Value::of);
        Answer::Denied(Conflict { remaining, value, place: 2, number: Some(7), is_watched: true })
    };
    let limited = |seconds| Some(RemainingTtl::Expires(Duration::from_secs(seconds)));
    let held = tally(&[denied(limited(600), Some(b"held")), denied(limited(1200), None)]);
    assert_eq!((held.obstacle(), held.highest_number()), (Some(2), Some(7)));
    let told = report(&held);
    let holder = told.nodes()[0].holder().expect("it was told");
    assert_eq!(holder.ttl(), Some(Duration::from_mins(10)));
    assert_eq!(told.nodes()[1].holder(), None);
    // One of the two is enough, beside the node that is free.
    let after = told.retry_after().expect("it is known");
    assert!(after <= Duration::from_mins(10) && after > Duration::from_secs(571), "{after:?}");

    let for_ever = denied(Some(RemainingTtl::NoExpiry), Some(b"held"));
    let told = report(&tally(&[for_ever.clone(), for_ever.clone()]));
    assert_eq!(told.nodes()[0].holder().map(Holder::ttl), Some(None));
    assert_eq!(told.retry_after(), None, "it is never free");
    let told = report(&tally(&[for_ever, denied(limited(600), None)]));
    assert!(told.retry_after().is_some(), "the other one is");
    assert_eq!(report(&tally(&[denied(None, None), denied(None, None)])).retry_after(), None);
}

#[test]
fn of_several_keys_the_one_is_the_obstacle_that_most_nodes_name() {
    let denied = |place| {
        let (remaining, value, number) = (None, None, None);
        Answer::Denied(Conflict { remaining, value, place, number, is_watched: true })
    };
    let both = tally(&[denied(4), denied(1)]);
    assert_eq!(both.obstacle(), Some(4), "the first, where as many name either");
    let named: Vec<_> = both.obstacles().into_iter().map(|(_, place)| place).collect();
    assert_eq!(named, [4, 1]);
    let all = tally(&[denied(4), denied(1), denied(1)]);
    assert_eq!(all.obstacle(), Some(1));
    assert_eq!(tally(&[granted(None)]).obstacle(), None);
}

/// Counts how often it was woken.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn who_listens_after_the_decision_is_woken_by_the_next_vote_and_not_by_others() {
    let bell = Arc::<Bell>::default();
    let waker = Waker::from(bell.clone());
    let rung = || bell.0.load(Ordering::SeqCst);
    let held = Answer::Denied(Conflict {
        remaining: None,
        value: None,
        place: 1,
        number: None,
        is_watched: true,
    });
    let late = tally(&[held.clone(), held.clone()]);
    assert_eq!(late.with_round(Round::outcome), Some(Outcome::Denied));
    assert_eq!(late.listen(&waker), 2, "two were heard");
    late.count_answer(NodeId::new(1), held.clone(), None);
    assert_eq!(rung(), 0, "that one had voted");
    late.count_answer(NodeId::new(2), held.clone(), None);
    assert_eq!(rung(), 1);
    assert_eq!(late.listen(&waker), 3);
    assert_eq!(Arc::strong_count(&bell), 2, "nobody is left who could wake it");

    let closed = tally(std::slice::from_ref(&held));
    closed.listen(&waker);
    closed.close();
    closed.count_answer(NodeId::new(1), held, None);
    assert_eq!(rung(), 1, "whoever waited has closed it");
}
