use super::*;
use crate::protocol::{NodeId, Vote};
use proptest::prelude::*;

fn ms(ms: u64) -> Time {
    Time::from_nanos(ms * 1_000_000)
}

fn ttl(ms: u64) -> Ttl {
    Ttl::from_duration(Duration::from_millis(ms)).expect("a good ttl")
}

fn held() -> Renewal {
    Renewal::new(Quorum::majority(3), Drift::DEFAULT, ms(100))
}

fn extend(renewal: &mut Renewal, at: u64, votes: &[Vote]) -> Extended {
    let mut round = renewal.begin(ttl(200), ms(at)).expect("still held");
    for (node, vote) in votes.iter().enumerate() {
        round.handle_vote(NodeId::new(node), *vote, ms(at));
    }
    round.handle_close(ms(at));
    renewal.handle_outcome(&round, ms(at))
}

/// Runs the lease for the milliseconds in `range`. The nodes reply to each extension with `answer`. Returns the start
/// times of the extensions and the final state.
fn live(lease: &mut Renewal, range: std::ops::Range<u64>, answer: Vote) -> (Vec<u64>, LeaseStatus) {
    let mut begun = Vec::new();
    for at in range {
        if let Step::Extend { ttl } = lease.step(ms(at)) {
            begun.push(at);
            let mut round = lease.begin(ttl, ms(at)).expect("still held");
            (0..3).for_each(|node| {
                round.handle_vote(NodeId::new(node), answer, ms(at));
            });
            lease.handle_auto_extension(&round, ms(at), ms(at));
        }
    }
    (begun, lease.status)
}

fn auto_extended(most: u64) -> Renewal {
    held().auto_extended(ttl(102), ms(0), Duration::from_millis(most))
}

#[test]
fn auto_extension_runs_each_third_until_the_limit() {
    let mut lease = auto_extended(1_000);
    let (begun, status) = live(&mut lease, 0..400, Vote::Granted);
    assert!(begun.windows(2).all(|pair| (32..=34).contains(&(pair[1] - pair[0]))), "{begun:?}");
    assert!(begun[0] >= 33 && matches!(status, LeaseStatus::Held { .. }));
    let (begun, status) = live(&mut lease, 400..1_100, Vote::Granted);
    assert!(begun.last().is_some_and(|last| *last < 1_000), "none after the limit: {begun:?}");
    assert_eq!(status, LeaseStatus::Lost(Loss::MaxHold));
    assert_eq!(lease.valid_until(ms(1_000)), None);
}

#[test]
fn validity_after_an_auto_extension_counts_from_its_start() {
    let mut lease = auto_extended(10_000);
    let Step::Extend { ttl } = lease.step(ms(40)) else { panic!("an extension is due") };
    let mut round = lease.begin(ttl, ms(40)).expect("still held");
    for node in 0..2 {
        round.handle_vote(NodeId::new(node), Vote::Granted, ms(60));
    }
    let until = valid_until(ms(40), ttl, Drift::DEFAULT);
    assert_eq!(lease.handle_auto_extension(&round, ms(40), ms(60)), Extended::Until(until), "I4");
    assert_eq!(lease.valid_until(ms(60)), Some(until));
}

#[test]
fn renewals_of_long_leases_are_due_together() {
    let due = |t1: u64, validity: u64| renewal_due(ms(t1), Duration::from_millis(validity));
    let (begin, validity) = (7_003, 9_898);
    let exact = begin + validity / 3;
    let slot = due(begin, validity);
    assert!(slot <= ms(exact) && slot > ms(exact - 50), "{slot:?}");
    let next = (1..=50).filter(|later| due(begin + later, validity) != slot).collect::<Vec<_>>();
    assert!(!next.is_empty() && next.windows(2).all(|pair| pair[1] == pair[0] + 1), "{next:?}");
    let other = due(begin + 50, validity);
    assert!(next.iter().all(|later| due(begin + later, validity) == other));
    assert_eq!(other.since(slot), Duration::from_millis(50));
    // Alignment would change a short interval too much.
    assert_eq!(due(7, 4_799), ms(7).after(Duration::from_millis(4_799) / 3));
    assert_eq!(due(7, 4_800), ms(1_600));
}

#[test]
fn auto_extension_retries_until_the_end_with_pauses() {
    let mut lease = auto_extended(10_000);
    let (begun, status) = live(&mut lease, 0..200, Vote::Failed);
    assert!((3..=8).contains(&begun.len()), "{begun:?}");
    assert!(begun.windows(2).all(|pair| pair[1] - pair[0] >= 8), "{begun:?}");
    assert_eq!(status, LeaseStatus::Lost(Loss::Expired));
    assert!(begun.last().is_some_and(|last| *last >= 80), "until the end: {begun:?}");
}

#[test]
fn auto_extension_continues_after_longer_manual_extension() {
    for (at, longer) in [(0, 134), (0, 1_000), (20, 400), (90, 3_000)] {
        let mut lease = auto_extended(10_000);
        let (before, _) = live(&mut lease, 0..at, Vote::Granted);
        let mut round = lease.begin(ttl(longer), ms(at)).expect("still held");
        (0..3).for_each(|node| {
            round.handle_vote(NodeId::new(node), Vote::Granted, ms(at));
        });
        let Extended::Until(until) = lease.handle_outcome(&round, ms(at)) else {
            panic!("{longer}: {:?}", lease.status);
        };
        let Step::Wait { until: due } = lease.step(ms(at)) else { panic!("{longer}: due at once") };
        let left = until.since(due).as_millis();
        assert!((64..=98).contains(&left), "{longer}: it sleeps until {left} ms are left");
        let (begun, status) = live(&mut lease, at..5_000, Vote::Granted);
        assert!(
            matches!(status, LeaseStatus::Held { .. }),
            "{longer}: {status:?} {before:?} {begun:?}"
        );
        let first = until.since(ms(begun[0])).as_millis();
        assert!((65..=98).contains(&first), "{longer}: {first} ms were left");
        let apart = begun.windows(2).all(|pair| (32..=34).contains(&(pair[1] - pair[0])));
        assert!(apart, "{longer}: {begun:?}");
    }
}

#[test]
fn step_during_extension_waits_for_the_end() {
    let mut lease = auto_extended(10_000);
    let begins = |at: &u64| matches!(lease.step(ms(*at)), Step::Extend { .. });
    let begun = (0..100).find(begins).expect("an extension");
    let Step::Wait { until } = lease.step(ms(begun + 1)) else { panic!("another extension") };
    assert!(until > ms(90) && until <= ms(100), "{until:?}");
}

#[test]
fn useless_auto_extension_is_skipped() {
    let none = drift(0.0, Duration::ZERO);
    let lease = Renewal::new(Quorum::majority(3), none, ms(100));
    let mut lease = lease.auto_extended(ttl(100), ms(0), Duration::from_millis(250));
    let (begun, _) = live(&mut lease, 0..240, Vote::Granted);
    let last = begun.last().expect("it was extended");
    assert!((150..=170).contains(last), "the last one reaches the limit: {begun:?}");
    assert_eq!(lease.valid_until(ms(240)), Some(ms(250)));
}

#[test]
fn hastened_auto_extension_is_due_at_once() {
    let mut lease = auto_extended(10_000);
    assert!(matches!(lease.step(ms(5)), Step::Wait { .. }));
    lease.make_due(ms(5));
    assert!(matches!(lease.step(ms(5)), Step::Extend { .. }));
}

#[test]
fn lose_ends_only_held_leases() {
    let mut lease = held();
    lease.lose(Loss::Closed, ms(5));
    assert_eq!(lease.status(ms(5)), LeaseStatus::Lost(Loss::Closed));
    let mut expired = held();
    expired.lose(Loss::Closed, ms(500));
    assert_eq!(expired.status(ms(500)), LeaseStatus::Lost(Loss::Expired));
}

#[test]
fn losses_display_their_reason() {
    for (loss, says) in [
        (Loss::Expired, "its validity ended"),
        (Loss::QuorumLost, "no longer exists on a majority"),
        (Loss::TakenOver, "another client holds the lock"),
        (Loss::MaxHold, "maximum hold time"),
        (Loss::Closed, "released all leases"),
        (Loss::Internal, "failed internally"),
    ] {
        assert!(loss.to_string().contains(says), "{loss}");
    }
}

#[test]
fn loss_is_reported_early_and_is_final() {
    let mut lease = held();
    assert_eq!(lease.step(ms(0)), Step::Wait { until: ms(98) });
    assert_eq!(lease.step(ms(98)), Step::Ended(LeaseStatus::Lost(Loss::Expired)));
    assert_eq!(lease.valid_until(ms(98)), None, "the reported loss is final");
    let mut short = held().auto_extended(ttl(102), ms(0), Duration::from_millis(20));
    assert_eq!(short.step(ms(0)), Step::Wait { until: ms(18) }, "a limit below the ttl");
    assert_eq!(short.step(ms(18)), Step::Ended(LeaseStatus::Lost(Loss::MaxHold)));
}

#[test]
fn quorum_in_time_extends() {
    let mut lease = held();
    let until = extend(&mut lease, 50, &[Vote::Granted, Vote::Failed, Vote::Granted]);
    assert_eq!(until, Extended::Until(ms(50 + 196)));
    assert_eq!(lease.valid_until(ms(245)), Some(ms(246)));
    assert_eq!(lease.valid_until(ms(246)), None, "I10");
}

#[test]
fn failed_extension_changes_nothing() {
    let mut lease = held();
    let failed = extend(&mut lease, 50, &[Vote::Granted, Vote::Failed, Vote::Failed]);
    assert_eq!(failed, Extended::Unchanged(ms(100)));
    assert_eq!(lease.status(ms(99)), LeaseStatus::Held { valid_until: ms(100) });
    assert_eq!(lease.status(ms(100)), LeaseStatus::Lost(Loss::Expired));
}

#[test]
fn missing_key_on_majority_is_a_final_loss() {
    use Vote::{Denied, Granted, Missing};
    for (votes, loss) in [
        ([Denied, Denied, Granted], Loss::TakenOver),
        ([Missing, Denied, Granted], Loss::QuorumLost),
        ([Missing, Missing, Granted], Loss::QuorumLost),
    ] {
        let mut lease = held();
        let lost = LeaseStatus::Lost(loss);
        assert_eq!(extend(&mut lease, 50, &votes), Extended::Ended(lost));
        assert_eq!(lease.begin(ttl(200), ms(51)).err(), Some(lost), "once lost, stays lost");
        assert_eq!(lease.release(ms(52)), lost);
    }
}

#[test]
fn extension_never_shortens() {
    let mut lease = Renewal::new(Quorum::majority(3), Drift::DEFAULT, ms(10_000));
    assert_eq!(extend(&mut lease, 50, &[Vote::Granted; 3]), Extended::Until(ms(10_000)));
}

#[test]
fn win_evaluated_after_old_end_is_a_loss() {
    let mut lease = held();
    let mut round = lease.begin(ttl(200), ms(50)).expect("still held");
    for node in 0..3 {
        round.handle_vote(NodeId::new(node), Vote::Granted, ms(60));
    }
    assert_eq!(round.outcome(), Some(Outcome::Won));
    let lost = LeaseStatus::Lost(Loss::Expired);
    assert_eq!(lease.handle_outcome(&round, ms(100)), Extended::Ended(lost));
    assert_eq!(lease.status(ms(0)), lost, "an observed expiry is final");
}

#[test]
fn release_ends_a_lease_once() {
    let mut lease = held();
    assert_eq!(lease.release(ms(50)), LeaseStatus::Held { valid_until: ms(100) });
    assert_eq!(lease.release(ms(51)), LeaseStatus::Released);
    assert_eq!(lease.begin(ttl(200), ms(52)).err(), Some(LeaseStatus::Released));
    assert_eq!(lease.status(ms(1_000)), LeaseStatus::Released);
}

#[test]
fn check_keeps_validity_and_covers_drift() {
    // The ttl of a check at several times in a lease with a 10 s ttl. At the last time, no ttl in whole milliseconds
    // gives exactly the remaining validity.
    let until = valid_until(ms(0), ttl(10_000), Drift::DEFAULT);
    for (at, expected) in [(0, 10_000), (1, 9_999), (98, 9_902), (99, 9_900), (9_897, 4)] {
        let mut lease = Renewal::new(Quorum::majority(3), Drift::DEFAULT, until);
        let (asked, mut round) = lease.begin_check(ms(at)).expect("still held");
        assert_eq!(asked, ttl(expected), "at {at} ms");
        assert!(valid_until(ms(at), asked, Drift::DEFAULT) >= until, "the keys expire too early");
        for node in 0..2 {
            round.handle_vote(NodeId::new(node), Vote::Granted, ms(at));
        }
        assert_eq!(lease.handle_outcome(&round, ms(at)), Extended::Until(until), "not longer");
    }
    let mut lease = held();
    assert_eq!(lease.begin_check(ms(100)).err(), Some(LeaseStatus::Lost(Loss::Expired)));
}

struct Life {
    begun: usize,
    end: Option<(LeaseStatus, Time)>,
}

/// Runs the lease from `t1` onwards, for a limited number of steps. The nodes reply to the extensions with `answers`,
/// which are used cyclically.
fn life(lease: &mut Renewal, t1: Time, ends: Time, answers: &[Vote]) -> Life {
    let (mut now, mut begun) = (t1, 0);
    let mut until = lease.valid_until(now);
    for _ in 0..400 {
        match lease.step(now) {
            Step::Wait { until } => {
                assert!(until > now, "it spins at {now:?}");
                now = until;
            }
            Step::Ended(status) => {
                assert!(now <= ends && lease.valid_until(now).is_none());
                return Life { begun, end: Some((status, now)) };
            }
            Step::Extend { ttl } => {
                let mut round = lease.begin(ttl, now).expect("still held");
                let answer = answers[begun % answers.len()];
                for node in 0..3 {
                    round.handle_vote(NodeId::new(node), answer, now);
                }
                round.handle_close(now);
                lease.handle_auto_extension(&round, now, now);
                begun += 1;
                let later = lease.valid_until(now);
                assert!(later >= until, "it was shortened from {until:?} to {later:?}");
                assert!(later <= Some(ends), "it is held beyond its limit");
                until = later;
            }
        }
    }
    Life { begun, end: None }
}

fn drift(factor: f64, constant: Duration) -> Drift {
    Drift::DEFAULT.with_factor(factor).expect("in range").with_constant(constant)
}

const CENTURIES: Duration = Duration::from_nanos(u64::MAX / 2);

#[test]
fn auto_extension_works_with_extreme_settings() {
    let (ns, year) = (Duration::from_nanos(1), Duration::from_hours(24 * 365));
    let (long, longest) = (Duration::from_mins(1), Ttl::LONGEST.as_duration());
    for (ttl, factor, constant) in [
        (ttl(1), 0.0, Duration::ZERO),
        (ttl(1), 0.0, ns),
        (ttl(1), 0.99, ns),
        (ttl(3), 0.0, Duration::ZERO),
        (ttl(10_000), 0.01, Duration::from_millis(2)),
        (ttl(10_000), 0.999_999, Duration::ZERO),
        (ttl(60_000), 0.0, long.saturating_sub(Duration::from_micros(1))),
        (Ttl::LONGEST, 0.0, Duration::ZERO),
        (Ttl::LONGEST, 0.01, ns),
        (Ttl::LONGEST, 0.0, longest.saturating_sub(Duration::from_millis(1))),
    ] {
        let drift = drift(factor, constant);
        let (t1, ttl_long) = (ms(7), ttl.as_duration());
        for most in [ttl_long * 4, ttl_long * 100, 100 * year, 101 * year, Duration::MAX] {
            let (until, ends) = (valid_until(t1, ttl, drift), t1.after(most));
            let new =
                || Renewal::new(Quorum::majority(3), drift, until).auto_extended(ttl, t1, most);
            let settings = format!("{ttl:?} {drift:?} {most:?}");
            let Life { begun, end } = life(&mut new(), t1, ends, &[Vote::Granted]);
            assert!(begun >= 2 || most < ttl_long * 4, "{settings}: {begun}, {end:?}");
            // If the limit is centuries long, the range of `Time` ends first.
            if let Some((status, at)) = end.filter(|(_, at)| at.since(t1) < CENTURIES) {
                assert_eq!(status, LeaseStatus::Lost(Loss::MaxHold), "{settings}");
                let unused = ends.since(at);
                assert!(unused <= drift.allowance(ttl).saturating_add(LOSS_MARGIN), "{settings}");
            }
            let in_vain = life(&mut new(), t1, ends, &[Vote::Failed]);
            let at = in_vain.end.map(|(_, at)| at);
            assert!(
                at.is_some_and(|at| at.after(LOSS_MARGIN) >= until.min(ends)),
                "{settings}: {at:?}"
            );
        }
    }
}

#[test]
fn limit_above_node_timeout_ends_lease_at_the_limit() {
    for most in [Duration::from_micros(2), Duration::from_micros(501), Duration::from_millis(51)] {
        let (t1, ends) = (ms(7), ms(7).after(most));
        let until = valid_until(t1, ttl(10_000), Drift::DEFAULT);
        let lease = Renewal::new(Quorum::majority(3), Drift::DEFAULT, until);
        let mut lease = lease.auto_extended(ttl(10_000), t1, most);
        assert!(matches!(lease.step(t1), Step::Wait { .. }), "it starts as a valid lease");
        let (status, at) = life(&mut lease, t1, ends, &[Vote::Granted]).end.expect("it ends");
        assert_eq!(status, LeaseStatus::Lost(Loss::MaxHold));
        assert!(ends.since(at) <= LOSS_MARGIN.min(most / LOSS_MARGIN_SHARE));
    }
}

proptest! {
    #[test]
    fn lease_never_shortens_nor_exceeds_its_limit(
        t1 in 0..u64::MAX, of in 1..=Ttl::MAX_MS, sizes in (0..37u32, 0..64u32, 0..96u32),
        factor in 0.0..1.0f64, constant in any::<u64>(), most in any::<u128>(),
        answers in proptest::collection::vec(0..3u8, 1..9),
    ) {
        // The shifts vary the values over all orders of magnitude.
        let ttl = Ttl::within(Duration::from_millis((of >> sizes.0).max(1))).expect("a good ttl");
        let drift = drift(factor, Duration::from_nanos(constant >> sizes.1));
        let most = u64::try_from(most >> 64 >> (sizes.2 % 64)).expect("64 bits");
        let most = if sizes.2 == 95 { Duration::MAX } else { Duration::from_nanos(most) };
        let t1 = Time::from_nanos(t1);
        let answers: Vec<_> = answers
            .into_iter()
            .map(|answer| if answer == 0 { Vote::Failed } else { Vote::Granted })
            .collect();
        let until = valid_until(t1, ttl, drift);
        let mut lease = Renewal::new(Quorum::majority(3), drift, until).auto_extended(ttl, t1, most);
        life(&mut lease, t1, t1.after(most), &answers);
        let mut lease = Renewal::new(Quorum::majority(3), drift, until);
        if let Ok((asked, round)) = lease.begin_check(t1) {
            prop_assert_eq!(round.goal(), Goal::Extend { current: until, proposed: until });
            prop_assert!(asked <= ttl, "a check requests no longer ttl than was granted");
        }
    }
}
