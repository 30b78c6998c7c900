//! The life of a lease: held, extended, lost or released.

use super::quorum::Quorum;
use super::round::{Goal, Outcome, Round};
use super::validity::{Drift, Time, Ttl, valid_until};
use std::fmt;

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
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its validity ended",
            Self::QuorumLost => "the key is gone from a majority of the nodes",
            Self::TakenOver => "another holds it on a majority of the nodes",
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

/// A lease's tenure, from acquire to its one end (I9: once lost, it stays lost).
#[derive(Clone, Debug)]
pub(crate) struct Renewal {
    quorum: Quorum,
    drift: Drift,
    tenure: Tenure,
}

impl Renewal {
    pub(crate) fn new(quorum: Quorum, drift: Drift, valid_until: Time) -> Self {
        Self { quorum, drift, tenure: Tenure::Held { valid_until } }
    }

    /// Where the lease stands at `now`: a validity that has ended is a loss (I10).
    pub(crate) fn tenure(&self, now: Time) -> Tenure {
        match self.tenure {
            Tenure::Held { valid_until } if now >= valid_until => Tenure::Lost(Loss::Expired),
            tenure => tenure,
        }
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
    use std::time::Duration;

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
