//! The life of a lease: held, extended, lost or released.
//!
//! Make one when the lock is won ([`Renewal::new`]), [kept up](Renewal::kept_up) if it is to be extended
//! without being asked. Whoever wants to extend it takes a round from [`begin`](Renewal::begin), and whoever
//! wants to know whether it is still held from [`begin_check`](Renewal::begin_check). Both report how that
//! round went by [`handle_outcome`](Renewal::handle_outcome). A failed one changes nothing (I9).
//!
//! For one that is kept up, [`step`](Renewal::step) says what is next: extend it, or wait until a time, which
//! is the next timeout. Report how its rounds went by [`handle_upkeep`](Renewal::handle_upkeep);
//! [`hasten`](Renewal::hasten) makes the next one due at once.
//!
//! It ends by [`release`](Renewal::release), by [`lose`](Renewal::lose), or by itself when its validity does
//! (I10): [`tenure`](Renewal::tenure) says where it stands at any time.

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

impl Loss {
    /// One word in small letters, as a label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::QuorumLost => "quorum_lost",
            Self::TakenOver => "taken_over",
            Self::MaxHold => "max_hold",
            Self::Closed => "closed",
        }
    }
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

/// A loss is told this much before the validity ends, so that it has been told when it ends. Of a lease
/// that is kept up not more than [`EARLY_SHARE`] of its validity: so that one of a few milliseconds can
/// be renewed.
const EARLY: Duration = Duration::from_millis(2);
const EARLY_SHARE: u32 = 4;

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
    /// How many nanoseconds before the end it is told: those of [`EARLY`] at most.
    early: u32,
    is_extending: bool,
}

impl Upkeep {
    fn early(&self) -> Duration {
        Duration::from_nanos(self.early.into())
    }
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
            let validity = valid_until.since(t1);
            let (due, early) = (t1.after(validity / 3), EARLY.min(validity / EARLY_SHARE));
            let early = early.subsec_nanos();
            self.upkeep = Some(Upkeep { ttl, ends, due, early, is_extending: false });
        }
        self
    }

    /// What is to be done at `now`. A lease is said to have ended a little early, and then it has.
    pub(crate) fn step(&mut self, now: Time) -> Step {
        let Tenure::Held { valid_until } = self.tenure else { return Step::Ended(self.tenure) };
        let early = self.upkeep.map_or(EARLY, |upkeep| upkeep.early());
        if now.after(early) >= valid_until {
            self.tenure = Tenure::Lost(self.loss_at(valid_until));
            return Step::Ended(self.tenure);
        }
        let end = Time::default().after(valid_until.since(Time::default().after(early)));
        // What an extension gives grows until it is due.
        let mut useful =
            self.upkeep.and_then(|upkeep| self.useful_ttl(now.max(upkeep.due), valid_until));
        if useful.is_none() {
            useful = self.put_off(now, valid_until);
        }
        match (&mut self.upkeep, useful) {
            (Some(upkeep), Some(ttl)) if !upkeep.is_extending && now >= upkeep.due => {
                upkeep.is_extending = true;
                Step::Extend { ttl }
            }
            (Some(upkeep), Some(_)) if !upkeep.is_extending => {
                Step::Wait { until: upkeep.due.min(end) }
            }
            _ => Step::Wait { until: end },
        }
    }

    /// An extension by the holder to a longer ttl may reach beyond what one of the upkeep would give when
    /// that is due: then it is due when no more is left than after a third of an extension's own validity.
    /// Its ttl, if it will lengthen the lease then.
    fn put_off(&mut self, now: Time, current: Time) -> Option<Ttl> {
        let upkeep = self.upkeep?;
        let validity = valid_until(Time::default(), upkeep.ttl, self.drift).since(Time::default());
        let due = current.before(validity / 3 * 2);
        if due <= now.max(upkeep.due) {
            return None;
        }
        let ttl = self.useful_ttl(due, current)?;
        self.upkeep = Some(Upkeep { due, ..upkeep });
        Some(ttl)
    }

    /// The ttl of an extension that lengthens the lease, and not beyond its end.
    fn useful_ttl(&self, now: Time, current: Time) -> Option<Ttl> {
        let upkeep = self.upkeep?;
        let ttl = upkeep.ttl.min(Ttl::within(upkeep.ends.since(now))?);
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
            valid_until.after(self.drift.allowance(upkeep.ttl).saturating_add(EARLY)) >= upkeep.ends
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

    /// Starts an extension that finds out at `t1` whether it is still held, and does not make it longer.
    /// The ttl is the shortest that lets the keys outlive the validity by the allowance for drift.
    pub(crate) fn begin_check(&mut self, t1: Time) -> Result<(Ttl, Round), Tenure> {
        match self.observe(t1) {
            Tenure::Held { valid_until: current } => {
                let ttl = self.drift.ttl_for(current.since(t1)).unwrap_or(Ttl::LONGEST);
                let goal = Goal::Extend { current, proposed: current };
                Ok((ttl, Round::new(self.quorum, goal)))
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

    /// Ends a tenure that is held at `now` by this `loss`. Returns how it ended, then or before.
    pub(crate) fn lose(&mut self, loss: Loss, now: Time) -> Tenure {
        if matches!(self.observe(now), Tenure::Held { .. }) {
            self.tenure = Tenure::Lost(loss);
        }
        self.tenure
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
#[path = "renewal_tests.rs"]
mod tests;
