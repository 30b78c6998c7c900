use super::*;
use crate::protocol::{NodeId, RetryPolicy, Vote};

const DEADLINE: Time = Time::from_nanos(1_000_000_000);

fn ms(ms: u64) -> Time {
    Time::from_nanos(ms * 1_000_000)
}

fn acquisition(retry: &RetryPolicy) -> Acquisition {
    let ttl = Ttl::from_duration(Duration::from_millis(500)).expect("a good ttl");
    let timings = (ttl, Drift::DEFAULT);
    let node_timeout = Duration::from_millis(50);
    Acquisition::new(Quorum::majority(3), timings, node_timeout, DEADLINE, retry.schedule())
}

fn attempt(acquisition: &mut Acquisition, t1: Time, votes: &[Vote]) -> Round {
    let (mut round, close_at) = acquisition.begin(t1);
    for (node, vote) in votes.iter().enumerate() {
        round.handle_vote(NodeId::new(node), *vote, t1);
    }
    round.handle_close(close_at);
    round
}

fn fixed(delay_ms: u64) -> RetryPolicy {
    RetryPolicy::fixed(Duration::from_millis(delay_ms))
}

#[test]
fn lease_after_long_wait_has_full_validity() {
    let mut it = acquisition(&fixed(300));
    let held = attempt(&mut it, ms(0), &[Vote::Denied; 3]);
    assert_eq!(it.handle_outcome(&held, ms(1), 0), Next::Retry { at: ms(301) });
    let won = attempt(&mut it, ms(301), &[Vote::Granted; 3]);
    assert_eq!(
        it.handle_outcome(&won, ms(302), 0),
        Next::Lease { valid_until: ms(301 + 493), token: None }
    );
}

#[test]
fn hold_limit_below_ttl_shortens_validity() {
    let limited = |most| acquisition(&fixed(300)).with_max_hold(Some(Duration::from_millis(most)));
    for (most, valid_until) in [(80, 80), (493, 493), (494, 493), (60_000, 493)] {
        let won = attempt(&mut limited(most), ms(0), &[Vote::Granted; 3]);
        assert_eq!(won.goal().valid_until(), Some(ms(valid_until)), "{most}");
    }
    let mut it = limited(60);
    let (mut late, _) = it.begin(ms(0));
    (0..3).for_each(|node| {
        late.handle_vote(NodeId::new(node), Vote::Granted, ms(60));
    });
    late.handle_close(ms(60));
    assert!(!matches!(it.handle_outcome(&late, ms(60), 0), Next::Lease { .. }), "the limit passed");
}

fn refused(acquisition: &mut Acquisition, t1: Time, watching: usize) -> Round {
    let mut round = attempt(acquisition, t1, &[Vote::Denied; 3]);
    (0..watching).for_each(|node| round.note_watching(NodeId::new(node)));
    round
}

#[test]
fn watched_quorum_delays_retries_by_a_second() {
    for (watching, policy, at) in [
        (3, fixed(7), 1_008),
        (2, fixed(7), 1_008),
        (1, fixed(7), 8),
        (3, fixed(7).limit(5), 8),
        (3, RetryPolicy::custom(|| std::iter::repeat(Duration::from_millis(7))), 8),
    ] {
        let ttl = Ttl::from_duration(Duration::from_mins(1)).expect("a good ttl");
        let (timings, late) = ((ttl, Drift::DEFAULT), ms(60_000));
        let node_timeout = Duration::from_millis(50);
        let mut it =
            Acquisition::new(Quorum::majority(3), timings, node_timeout, late, policy.schedule());
        let first = refused(&mut it, ms(0), watching);
        assert_eq!(it.handle_outcome(&first, ms(1), 0), Next::Retry { at: ms(8) }, "who holds it?");
        let round = refused(&mut it, ms(0), watching);
        let next = it.handle_outcome(&round, ms(1), 0);
        assert_eq!(next, Next::Retry { at: ms(at) }, "{watching} tell, {policy:?}");
        let mut ending = refused(&mut it, ms(2), watching);
        ending.note_free_at(ms(90));
        ending.note_free_at(ms(70));
        let next = it.handle_outcome(&ending, ms(3), 0);
        assert_eq!(next, Next::Retry { at: ms((at + 2).min(90)) }, "when the key expires");
    }
}

#[test]
fn delay_doubles_with_consecutive_failures_without_a_quorum() {
    let custom = RetryPolicy::custom(|| std::iter::repeat(Duration::from_millis(7)));
    for (policy, delays) in
        [(fixed(7), [7, 14, 28, 56, 56]), (fixed(7).limit(9), [7; 5]), (custom, [7; 5])]
    {
        let mut it = acquisition(&policy);
        let mut next = |vote| {
            let round = attempt(&mut it, ms(0), &[vote; 3]);
            it.handle_outcome(&round, ms(1), 0)
        };
        for delay in delays {
            let at = ms(1 + delay);
            assert_eq!(next(Vote::Failed), Next::Retry { at }, "{policy:?}");
        }
        assert_eq!(next(Vote::Denied), Next::Retry { at: ms(8) }, "a quorum has replied");
        assert_eq!(next(Vote::Failed), Next::Retry { at: ms(8) }, "{policy:?}");
    }
}

#[test]
fn win_evaluated_after_validity_is_expired() {
    let mut it = acquisition(&RetryPolicy::none());
    let won = attempt(&mut it, ms(0), &[Vote::Granted; 3]);
    assert_eq!(won.outcome(), Some(Outcome::Won));
    let refusal = Next::Refuse { refusal: Refusal::Expired, latest: true };
    assert_eq!(it.handle_outcome(&won, ms(493), 0), refusal);
}

#[test]
fn refusals_distinguish_contention_outage_and_timeout() {
    use Vote::{Denied, Failed, Granted};
    let cases: [(u64, &[Vote], Refusal); 6] = [
        (0, &[Denied, Denied], Refusal::Contended),
        (0, &[Granted, Denied, Failed], Refusal::Contended),
        (0, &[Denied, Failed, Failed], Refusal::NoQuorum),
        (0, &[Granted], Refusal::NoQuorum),
        (990, &[Granted], Refusal::Timeout),
        (990, &[Failed, Failed], Refusal::NoQuorum),
    ];
    for (t1, votes, refusal) in cases {
        let mut it = acquisition(&RetryPolicy::none());
        let round = attempt(&mut it, ms(t1), votes);
        let refused = it.handle_outcome(&round, ms(t1 + 50), 0);
        assert_eq!(refused, Next::Refuse { refusal, latest: true }, "{votes:?} at {t1} ms");
    }
}

#[test]
fn attempt_cut_by_deadline_keeps_earlier_refusal() {
    let mut it = acquisition(&fixed(985));
    let held = attempt(&mut it, ms(0), &[Vote::Denied; 3]);
    assert_eq!(it.handle_outcome(&held, ms(1), 0), Next::Retry { at: ms(986) });
    let cut = attempt(&mut it, ms(986), &[Vote::Granted]);
    let refusal = Next::Refuse { refusal: Refusal::Contended, latest: false };
    assert_eq!(it.handle_outcome(&cut, DEADLINE, 0), refusal);
}

#[test]
fn retries_end_at_the_deadline() {
    let mut it = acquisition(&fixed(5_000));
    let held = attempt(&mut it, ms(0), &[Vote::Denied; 3]);
    assert_eq!(it.handle_outcome(&held, ms(1), 0), Next::Retry { at: DEADLINE });
    assert_eq!(it.is_over(ms(999)), None);
    assert_eq!(it.is_over(DEADLINE), Some(Refusal::Contended));
    let unasked = acquisition(&RetryPolicy::none());
    assert_eq!(unasked.is_over(DEADLINE), Some(Refusal::Timeout), "no attempt completed");
}

#[test]
fn abandoned_attempt_counts_as_attempt() {
    let mut it = acquisition(&fixed(10).limit(1));
    assert!(it.handle_abandoned(ms(1), 0) && !it.handle_abandoned(ms(2), 0));
    assert!(!acquisition(&RetryPolicy::none()).handle_abandoned(ms(1), 0));
    assert!(!acquisition(&fixed(10)).handle_abandoned(DEADLINE, 0));
}

fn held(it: &mut Acquisition, free_at: &[u64], failures: usize) -> Round {
    let (mut round, _) = it.begin(ms(0));
    for (node, at) in free_at.iter().enumerate() {
        round.note_free_at(ms(*at));
        round.handle_vote(NodeId::new(node), Vote::Denied, ms(0));
    }
    for node in free_at.len()..free_at.len() + failures {
        round.handle_vote(NodeId::new(node), Vote::Failed, ms(0));
    }
    round
}

#[test]
fn retry_comes_when_a_quorum_can_be_free() {
    // With N = 3 and three keys, a quorum is free when the second key expires. With two keys and one failed node, a
    // quorum is free when both keys have expired.
    for (free_at, failures, at) in [
        (vec![70, 30, 50], 0, 50),
        (vec![70, 30], 0, 30),
        (vec![70, 30], 1, 70),
        (vec![300, 400], 0, 100),
        // Expired keys do not shorten the minimum delay.
        (vec![0, 0], 0, 1),
    ] {
        let mut it = acquisition(&fixed(100));
        let round = held(&mut it, &free_at, failures);
        assert_eq!(round.outcome(), Some(Outcome::Denied), "{free_at:?} {failures}");
        let next = it.handle_outcome(&round, ms(0), 0);
        assert_eq!(next, Next::Retry { at: ms(at) }, "{free_at:?} {failures}");
    }
}

#[test]
fn refusals_of_free_lock_double_the_pause() {
    let mut it = acquisition(&fixed(10));
    for (free_at, at) in [(0, 1), (0, 2), (0, 4), (0, 8), (0, 10), (0, 10), (9, 10), (400, 10)] {
        let round = held(&mut it, &[free_at; 3], 0);
        let next = it.handle_outcome(&round, ms(0), 0);
        assert_eq!(next, Next::Retry { at: ms(at) }, "free at {free_at} ms");
    }
    let round = held(&mut it, &[0; 3], 0);
    assert_eq!(it.handle_outcome(&round, ms(0), 0), Next::Retry { at: ms(1) }, "was not free");
    let mut it = acquisition(&fixed(10));
    for _ in 0..3 {
        // The keys expire only when the policy retries anyway.
        let round = held(&mut it, &[1; 3], 0);
        assert_eq!(it.handle_outcome(&round, ms(0), 0), Next::Retry { at: ms(1) });
    }
}

#[test]
fn giving_up_early_refuses_if_holder_outlasts_deadline() {
    let refusal = Next::Refuse { refusal: Refusal::Contended, latest: true };
    for (free_at, next) in [(2_000, refusal), (500, Next::Retry { at: ms(100) })] {
        let mut it = acquisition(&fixed(100)).giving_up_early(true);
        let round = held(&mut it, &[free_at; 3], 0);
        assert_eq!(it.handle_outcome(&round, ms(0), 0), next);
    }
}

fn numbered(it: &mut Acquisition, numbers: &[u64]) -> Next {
    let (mut round, _) = it.begin(ms(0));
    for (node, number) in numbers.iter().enumerate() {
        round.note_counter(NodeId::new(node), *number);
        round.handle_vote(NodeId::new(node), Vote::Granted, ms(1));
    }
    round.handle_close(ms(1));
    it.handle_outcome(&round, ms(1), 0)
}

fn raised(it: &mut Acquisition, token: u64, numbers: &[u64]) -> Next {
    let valid_until = ms(493);
    let (mut round, close_at) = it.begin_confirm(valid_until, token, ms(1));
    assert_eq!(close_at, ms(51));
    for (node, number) in numbers.iter().enumerate() {
        round.note_counter(NodeId::new(node), *number);
        round.handle_vote(NodeId::new(node), Vote::Granted, ms(2));
    }
    round.handle_close(ms(2));
    it.handle_outcome(&round, ms(2), 0)
}

#[test]
fn token_is_committed_at_once_or_by_second_round() {
    let valid_until = ms(493);
    let lease = |token| Next::Lease { valid_until, token: Some(token) };
    let refusal = Next::Refuse { refusal: Refusal::NoQuorum, latest: true };
    let fenced = || acquisition(&RetryPolicy::none()).fenced(true);
    assert_eq!(numbered(&mut fenced(), &[7, 7]), lease(7));
    assert_eq!(numbered(&mut fenced(), &[7, 9, 7]), lease(7), "a later number does not matter");
    assert_eq!(numbered(&mut fenced(), &[7, 9]), Next::Confirm { valid_until, token: 9 });
    assert_eq!(raised(&mut fenced(), 9, &[9, 9]), lease(9));
    assert_eq!(raised(&mut fenced(), 9, &[9, 10, 9]), lease(9));
    assert_eq!(raised(&mut fenced(), 9, &[9, 10, 12]), refusal, "higher than the token");
    let mut unheard = fenced();
    let won = attempt(&mut unheard, ms(0), &[Vote::Granted; 3]);
    assert_eq!(unheard.handle_outcome(&won, ms(1), 0), refusal, "no counters, no token");
}

#[test]
fn token_confirmed_after_validity_is_expired() {
    let mut it = acquisition(&RetryPolicy::none()).fenced(true);
    let (mut round, _) = it.begin_confirm(ms(493), 9, ms(480));
    for node in 0..2 {
        round.note_counter(NodeId::new(node), 9);
        round.handle_vote(NodeId::new(node), Vote::Granted, ms(493));
    }
    assert_eq!(round.outcome(), Some(Outcome::TooLate));
    let refusal = Next::Refuse { refusal: Refusal::Expired, latest: true };
    assert_eq!(it.handle_outcome(&round, ms(493), 0), refusal);
    let (mut round, _) = it.begin_confirm(ms(493), 9, ms(480));
    for node in 0..2 {
        round.note_counter(NodeId::new(node), 9);
        round.handle_vote(NodeId::new(node), Vote::Granted, ms(481));
    }
    assert_eq!(round.outcome(), Some(Outcome::Won));
    assert_eq!(it.handle_outcome(&round, ms(493), 0), refusal, "evaluated too late");
}

#[test]
fn shared_token_needs_no_confirmation() {
    let token = |now, numbers: &[u64]| {
        let mut it = acquisition(&RetryPolicy::none()).fenced(true).with_shared_token(true);
        let (mut round, _) = it.begin(ms(960));
        for (node, number) in numbers.iter().enumerate() {
            round.note_counter(NodeId::new(node), *number);
            round.handle_vote(NodeId::new(node), Vote::Granted, ms(961));
        }
        match it.handle_outcome(&round, now, 0) {
            Next::Lease { token, .. } => token,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!([&[7, 7], &[7, 9]].map(|numbers| token(ms(999), numbers)), [Some(7), Some(9)]);
    assert_eq!(token(DEADLINE, &[7, 9]), Some(9), "needs no time for a second round");
}

#[test]
fn confirming_round_never_begins_after_deadline() {
    let mut it = acquisition(&RetryPolicy::none()).fenced(true);
    let (mut round, _) = it.begin(ms(960));
    for (node, number) in [7, 9].into_iter().enumerate() {
        round.note_counter(NodeId::new(node), number);
        round.handle_vote(NodeId::new(node), Vote::Granted, ms(961));
    }
    assert!(matches!(it.handle_outcome(&round, ms(999), 0), Next::Confirm { token: 9, .. }));
    let refusal = Next::Refuse { refusal: Refusal::Timeout, latest: true };
    assert_eq!(it.handle_outcome(&round, DEADLINE, 0), refusal);
}

#[test]
fn round_closes_at_node_timeout_or_deadline() {
    let mut it = acquisition(&RetryPolicy::none());
    assert_eq!(it.begin(ms(0)).1, ms(50));
    assert_eq!(it.begin(ms(960)).1, DEADLINE);
    assert_eq!(it.begin(ms(2_000)).1, DEADLINE, "a deadline in the past");
}

#[test]
fn attempt_held_by_one_node_retries_within_a_second() {
    let it = acquisition(&fixed(7));
    assert!(it.is_endless());
    let far = Time::END;
    assert_eq!(it.handle_single_refusal(far, ms(100), 0), ms(600));
    let latest = it.handle_single_refusal(far, ms(100), u64::MAX);
    assert!(latest > ms(999) && latest <= DEADLINE, "{latest:?}");
    assert_eq!(it.handle_single_refusal(ms(130), ms(100), 0), ms(130), "the key expires");
    assert_eq!(
        it.handle_single_refusal(ms(90), ms(100), 0),
        ms(101),
        "the key seems to have expired"
    );
    assert_eq!(it.handle_single_refusal(far, ms(700), u64::MAX), DEADLINE);
    let limited = acquisition(&fixed(7).limit(5));
    assert!(!limited.is_endless(), "the number of attempts is limited");
    let once = acquisition(&RetryPolicy::none());
    assert!(!once.is_endless(), "there is only one attempt");
}
