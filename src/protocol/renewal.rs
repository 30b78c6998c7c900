//! The life of a lease: held, extended, lost or released.

use super::quorum::Quorum;
use super::round::{Goal, Outcome, Round};
use super::validity::{Drift, Time, Ttl, valid_until};
use std::fmt;
use std::time::Duration;

/// Why a lease ended before its holder released it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// Its validity ended.
    Expired,
    /// The key was gone from a majority of the nodes before the validity ended.
    QuorumLost,
    /// A majority of the nodes holds another value at the key.
    TakenOver,
    /// It was held for as long as it may be: the limit given to
    /// [`auto_extend`](crate::Acquire::auto_extend).
    MaxHold,
    /// Its client was [closed](crate::Redlock::close), or
    /// [released all its leases](crate::Redlock::release_all).
    Closed,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its validity ended",
            Self::QuorumLost => "the key is gone from a majority of the nodes",
            Self::TakenOver => "another holds it on a majority of the nodes",
            Self::MaxHold => "it was held for as long as it may be",
            Self::Closed => "its client has released all leases",
        })
    }
}

/// Where a lease stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tenure {
    Held { valid_until: Time },
    Lost(Loss),
    Released,
}

/// What an extension came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extended {
    /// Valid until then; never earlier than before.
    Until(Time),
    /// Nothing has changed: valid until then, as before.
    Unchanged(Time),
    /// The lease has ended.
    Ended(Tenure),
}

/// What a lease wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Extend it now, to this ttl; then tell how that ended.
    Extend { ttl: Ttl },
    /// Look again at this time.
    Wait { until: Time },
    /// It has ended: tell whoever waits for that.
    Ended(Tenure),
}

/// A loss is told this much before the validity ends, so that it has been told when it ends.
const EARLY: Duration = Duration::from_millis(2);

/// An extension that failed is tried again after this share of what is left, but not sooner than
/// [`LEAST_PAUSE`].
const PAUSE_SHARE: u32 = 8;
const LEAST_PAUSE: Duration = Duration::from_millis(10);

/// Renewal without being asked.
#[derive(Clone, Copy, Debug)]
struct Upkeep {
    ttl: Ttl,
    /// The lease ends then at the latest.
    ends: Time,
    /// When to extend next.
    due: Time,
    is_extending: bool,
}

/// A lease's tenure, from acquire to its one end (I9: once lost, it stays lost).
#[derive(Clone, Debug)]
pub(crate) struct Renewal {
    quorum: Quorum,
    drift: Drift,
    tenure: Tenure,
    upkeep: Option<Upkeep>,
}

impl Renewal {
    pub(crate) fn new(quorum: Quorum, drift: Drift, valid_until: Time) -> Self {
        Self { quorum, drift, tenure: Tenure::Held { valid_until }, upkeep: None }
    }

    /// A lease acquired at `t1` that is extended to `ttl` again and again, each time a third of its
    /// validity has passed, until `most` has passed.
    pub(crate) fn kept_up(mut self, ttl: Ttl, t1: Time, most: Duration) -> Self {
        if let Tenure::Held { valid_until } = &mut self.tenure {
            let ends = t1.after(most);
            *valid_until = ends.min(*valid_until);
            let due = t1.after(valid_until.since(t1) / 3);
            self.upkeep = Some(Upkeep { ttl, ends, due, is_extending: false });
        }
        self
    }

    /// What is to be done at `now`. A lease is said to have ended a little early, and then it has.
    pub(crate) fn step(&mut self, now: Time) -> Step {
        let Tenure::Held { valid_until } = self.tenure else { return Step::Ended(self.tenure) };
        if now.after(EARLY) >= valid_until {
            self.tenure = Tenure::Lost(self.loss_at(valid_until));
            return Step::Ended(self.tenure);
        }
        let end = Time::default().after(valid_until.since(Time::default().after(EARLY)));
        let useful = self.useful_ttl(now, valid_until);
        match &mut self.upkeep {
            Some(upkeep) if !upkeep.is_extending => match useful {
                Some(ttl) if now >= upkeep.due => {
                    upkeep.is_extending = true;
                    Step::Extend { ttl }
                }
                Some(_) => Step::Wait { until: upkeep.due.min(end) },
                None => Step::Wait { until: end },
            },
            _ => Step::Wait { until: end },
        }
    }

    /// The ttl of an extension that lengthens the lease, and not beyond its end.
    fn useful_ttl(&self, now: Time, current: Time) -> Option<Ttl> {
        let upkeep = self.upkeep?;
        let left = Ttl::from_duration(upkeep.ends.since(now)).ok()?;
        let ttl = upkeep.ttl.min(left);
        (valid_until(now, ttl, self.drift) > current).then_some(ttl)
    }

    /// Takes how an extension of the [upkeep](Self::kept_up) ended.
    pub(crate) fn handle_upkeep(&mut self, round: &Round, t1: Time, now: Time) -> Extended {
        let extended = self.handle_outcome(round, now);
        if let Some(upkeep) = &mut self.upkeep {
            upkeep.is_extending = false;
            upkeep.due = match extended {
                Extended::Until(until) => t1.after(until.since(t1) / 3),
                Extended::Unchanged(until) => {
                    now.after((until.since(now) / PAUSE_SHARE).max(LEAST_PAUSE))
                }
                Extended::Ended(_) => upkeep.due,
            };
        }
        extended
    }

    /// Where the lease stands at `now`: a validity that has ended is a loss (I10).
    pub(crate) fn tenure(&self, now: Time) -> Tenure {
        match self.tenure {
            Tenure::Held { valid_until } if now >= valid_until => {
                Tenure::Lost(self.loss_at(valid_until))
            }
            tenure => tenure,
        }
    }

    /// Why a validity that ended then was not longer.
    fn loss_at(&self, valid_until: Time) -> Loss {
        // The last extension reaches to the limit, less the drift.
        let is_over = self.upkeep.is_some_and(|upkeep| {
            valid_until.after(self.drift.allowance(upkeep.ttl) + EARLY) >= upkeep.ends
        });
        if is_over { Loss::MaxHold } else { Loss::Expired }
    }

    /// The end of validity while it is held; `now` or earlier says that it is not.
    pub(crate) fn valid_until(&self, now: Time) -> Option<Time> {
        match self.tenure(now) {
            Tenure::Held { valid_until } => Some(valid_until),
            Tenure::Lost(_) | Tenure::Released => None,
        }
    }

    /// Starts an extension to `ttl` from `t1`, read before its first command is sent.
    pub(crate) fn begin(&mut self, ttl: Ttl, t1: Time) -> Result<Round, Tenure> {
        match self.observe(t1) {
            Tenure::Held { valid_until: current } => {
                let proposed = valid_until(t1, ttl, self.drift);
                Ok(Round::new(self.quorum, Goal::Extend { current, proposed }))
            }
            ended => Err(ended),
        }
    }

    /// Takes how an extension's round stands at `now`, after its decision.
    pub(crate) fn handle_outcome(&mut self, round: &Round, now: Time) -> Extended {
        let Tenure::Held { valid_until } = self.observe(now) else {
            return Extended::Ended(self.tenure);
        };
        match (round.outcome(), round.goal()) {
            (Some(Outcome::Won), Goal::Extend { proposed, .. }) => {
                let valid_until = valid_until.max(proposed);
                self.tenure = Tenure::Held { valid_until };
                return Extended::Until(valid_until);
            }
            (Some(Outcome::Denied), _) => self.tenure = Tenure::Lost(Loss::TakenOver),
            (Some(Outcome::Missing), _) => self.tenure = Tenure::Lost(Loss::QuorumLost),
            (Some(Outcome::TooLate | Outcome::NoQuorum | Outcome::Won) | None, _) => {
                return Extended::Unchanged(valid_until);
            }
        }
        Extended::Ended(self.tenure)
    }

    /// Ends the tenure by the holder's will; what it was at `now`.
    pub(crate) fn release(&mut self, now: Time) -> Tenure {
        let was = self.observe(now);
        if matches!(was, Tenure::Held { .. }) {
            self.tenure = Tenure::Released;
        }
        was
    }

    /// Ends the tenure by the client's will, which is a loss for the holder.
    pub(crate) fn close(&mut self, now: Time) {
        if matches!(self.observe(now), Tenure::Held { .. }) {
            self.tenure = Tenure::Lost(Loss::Closed);
        }
    }

    /// The ttl of an extension that finds out whether it is still held, without making it longer.
    pub(crate) fn ttl_to_check(&self, now: Time) -> Option<Ttl> {
        let left = self.valid_until(now)?.since(now);
        Some(Ttl::from_duration(left).unwrap_or(Ttl::SHORTEST))
    }

    /// The upkeep is due by `now`.
    pub(crate) fn hasten(&mut self, now: Time) {
        if let Some(upkeep) = &mut self.upkeep {
            upkeep.due = upkeep.due.min(now);
        }
    }

    /// Writes an expiry down, so that no later, smaller `now` can undo it.
    fn observe(&mut self, now: Time) -> Tenure {
        self.tenure = self.tenure(now);
        self.tenure
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{NodeId, Vote};

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

    /// Asks for steps every millisecond from `from` to `to`; `answer` says whether an extension
    /// succeeds. Returns when extensions began, and how it ended.
    fn live(lease: &mut Renewal, range: std::ops::Range<u64>, answer: Vote) -> (Vec<u64>, Tenure) {
        let mut begun = Vec::new();
        for at in range {
            if let Step::Extend { ttl } = lease.step(ms(at)) {
                begun.push(at);
                let mut round = lease.begin(ttl, ms(at)).expect("still held");
                (0..3).for_each(|node| {
                    round.handle_vote(NodeId::new(node), answer, ms(at));
                });
                lease.handle_upkeep(&round, ms(at), ms(at));
            }
        }
        (begun, lease.tenure)
    }

    fn kept_up(most: u64) -> Renewal {
        held().kept_up(ttl(102), ms(0), Duration::from_millis(most))
    }

    #[test]
    fn upkeep_extends_at_each_third_and_stops_at_its_limit() {
        let mut lease = kept_up(1_000);
        let (begun, tenure) = live(&mut lease, 0..400, Vote::Granted);
        assert!(begun.windows(2).all(|pair| (32..=34).contains(&(pair[1] - pair[0]))), "{begun:?}");
        assert!(begun[0] >= 33 && matches!(tenure, Tenure::Held { .. }));
        let (begun, tenure) = live(&mut lease, 400..1_100, Vote::Granted);
        assert!(
            begun.last().is_some_and(|last| *last < 1_000),
            "never beyond the limit: {begun:?}"
        );
        assert_eq!(tenure, Tenure::Lost(Loss::MaxHold));
        assert_eq!(lease.valid_until(ms(1_000)), None);
    }

    #[test]
    fn upkeep_tries_again_until_the_end_and_never_hot() {
        let mut lease = kept_up(10_000);
        let (begun, tenure) = live(&mut lease, 0..200, Vote::Failed);
        assert!((3..=8).contains(&begun.len()), "{begun:?}");
        assert!(begun.windows(2).all(|pair| pair[1] - pair[0] >= 8), "{begun:?}");
        assert_eq!(tenure, Tenure::Lost(Loss::Expired));
        assert!(begun.last().is_some_and(|last| *last >= 80), "to the end: {begun:?}");
    }

    #[test]
    fn an_end_is_told_a_little_early_and_stays() {
        let mut lease = held();
        assert_eq!(lease.step(ms(0)), Step::Wait { until: ms(98) });
        assert_eq!(lease.step(ms(98)), Step::Ended(Tenure::Lost(Loss::Expired)));
        assert_eq!(lease.valid_until(ms(98)), None, "who was told so is right");
        let mut short = held().kept_up(ttl(102), ms(0), Duration::from_millis(20));
        assert_eq!(short.step(ms(0)), Step::Wait { until: ms(18) }, "a limit below the ttl");
        assert_eq!(short.step(ms(18)), Step::Ended(Tenure::Lost(Loss::MaxHold)));
    }

    #[test]
    fn a_quorum_in_time_extends() {
        let mut lease = held();
        let until = extend(&mut lease, 50, &[Vote::Granted, Vote::Failed, Vote::Granted]);
        assert_eq!(until, Extended::Until(ms(50 + 196)));
        assert_eq!(lease.valid_until(ms(245)), Some(ms(246)));
        assert_eq!(lease.valid_until(ms(246)), None, "I10");
    }

    #[test]
    fn a_failed_extension_changes_nothing() {
        let mut lease = held();
        let failed = extend(&mut lease, 50, &[Vote::Granted, Vote::Failed, Vote::Failed]);
        assert_eq!(failed, Extended::Unchanged(ms(100)));
        assert_eq!(lease.tenure(ms(99)), Tenure::Held { valid_until: ms(100) });
        assert_eq!(lease.tenure(ms(100)), Tenure::Lost(Loss::Expired));
    }

    #[test]
    fn a_majority_without_the_key_is_a_loss_that_stays() {
        use Vote::{Denied, Granted, Missing};
        for (votes, loss) in [
            ([Denied, Denied, Granted], Loss::TakenOver),
            ([Missing, Denied, Granted], Loss::QuorumLost),
            ([Missing, Missing, Granted], Loss::QuorumLost),
        ] {
            let mut lease = held();
            let lost = Tenure::Lost(loss);
            assert_eq!(extend(&mut lease, 50, &votes), Extended::Ended(lost));
            assert_eq!(lease.begin(ttl(200), ms(51)).err(), Some(lost), "once lost, stays lost");
            assert_eq!(lease.release(ms(52)), lost);
        }
    }

    #[test]
    fn an_extension_never_shortens() {
        let mut lease = Renewal::new(Quorum::majority(3), Drift::DEFAULT, ms(10_000));
        assert_eq!(extend(&mut lease, 50, &[Vote::Granted; 3]), Extended::Until(ms(10_000)));
    }

    #[test]
    fn a_win_seen_after_the_old_end_is_a_loss() {
        let mut lease = held();
        let mut round = lease.begin(ttl(200), ms(50)).expect("still held");
        for node in 0..3 {
            round.handle_vote(NodeId::new(node), Vote::Granted, ms(60));
        }
        assert_eq!(round.outcome(), Some(Outcome::Won));
        let lost = Tenure::Lost(Loss::Expired);
        assert_eq!(lease.handle_outcome(&round, ms(100)), Extended::Ended(lost));
        assert_eq!(lease.tenure(ms(0)), lost, "an expiry that was seen is not undone");
    }

    #[test]
    fn a_release_ends_it_once() {
        let mut lease = held();
        assert_eq!(lease.release(ms(50)), Tenure::Held { valid_until: ms(100) });
        assert_eq!(lease.release(ms(51)), Tenure::Released);
        assert_eq!(lease.begin(ttl(200), ms(52)).err(), Some(Tenure::Released));
        assert_eq!(lease.tenure(ms(1_000)), Tenure::Released);
    }
}
