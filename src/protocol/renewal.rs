//! The state of a lease: held, lost or released.
//!
//! Create a [`Renewal`] when the lock is won ([`Renewal::new`]). [`auto_extended`](Renewal::auto_extended) enables
//! auto-extension. [`begin`](Renewal::begin) returns the round of an extension. [`begin_check`](Renewal::begin_check)
//! returns a round that checks whether the lease is still held. Report the outcome of either round with
//! [`handle_outcome`](Renewal::handle_outcome). A failed round has no effect (I9).
//!
//! With auto-extension, [`step`](Renewal::step) returns the next step: extend, or wait until a given time. Report the
//! outcome of these rounds with [`handle_auto_extension`](Renewal::handle_auto_extension).
//! [`make_due`](Renewal::make_due) makes the next extension due at once.
//!
//! A lease ends by [`release`](Renewal::release), by [`lose`](Renewal::lose), or at the end of its validity (I10).
//! [`status`](Renewal::status) returns the state of the lease at any time.

use super::quorum::Quorum;
use super::round::{Goal, Outcome, Round};
use super::validity::{Drift, Time, Ttl, valid_until};
use std::time::Duration;
use thiserror::Error;

/// The reason why a lease ended before its holder released it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum Loss {
    /// The validity of the lease ended.
    #[error("its validity ended")]
    Expired,
    /// The key was missing on a majority of the nodes before the validity ended.
    #[error("the key no longer exists on a majority of the nodes")]
    QuorumLost,
    /// Another lease has taken over the lock: the key has a different value on a majority of the
    /// nodes.
    #[error("another client holds the lock on a majority of the nodes")]
    TakenOver,
    /// The lease reached the maximum hold time given to
    /// [`auto_extend`](crate::Acquire::auto_extend).
    #[error("the maximum hold time was reached")]
    MaxHold,
    /// The client of the lease was [closed](crate::Redlock::close), or [released all its
    /// leases](crate::Redlock::release_all).
    #[error("its client was closed or released all leases")]
    Closed,
    /// The client failed internally because its own code panicked. Please report the panic.
    #[error("the client failed internally")]
    Internal,
}

impl Loss {
    pub(crate) const ALL: [Self; 6] = [
        Self::Expired,
        Self::QuorumLost,
        Self::TakenOver,
        Self::MaxHold,
        Self::Closed,
        Self::Internal,
    ];

    /// Returns the name of the reason in snake case. The name is used as a metric label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::QuorumLost => "quorum_lost",
            Self::TakenOver => "taken_over",
            Self::MaxHold => "max_hold",
            Self::Closed => "closed",
            Self::Internal => "internal",
        }
    }
}

/// The state of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseStatus {
    Held { valid_until: Time },
    Lost(Loss),
    Released,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extended {
    /// The new end of validity, which is never earlier than the previous one.
    Until(Time),
    /// The extension failed, and the end of validity is unchanged.
    Unchanged(Time),
    /// The lease has ended with this state.
    Ended(LeaseStatus),
}

/// The next step of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Extend the lease to `ttl` now, and report the outcome.
    Extend { ttl: Ttl },
    /// Call [`Renewal::step`] again at `until`.
    Wait { until: Time },
    /// The lease has ended: notify the holder.
    Ended(LeaseStatus),
}

/// How long before the end of validity a loss is reported, so that the holder is notified before the lease becomes
/// invalid. With auto-extension, the margin is at most the validity divided by [`LOSS_MARGIN_SHARE`], so that leases of
/// a few milliseconds can still be renewed.
const LOSS_MARGIN: Duration = Duration::from_millis(2);
const LOSS_MARGIN_SHARE: u32 = 4;

/// A failed extension is retried after a pause of the remaining validity divided by this number, but at least
/// [`MIN_PAUSE`].
const PAUSE_SHARE: u32 = 8;
const MIN_PAUSE: Duration = Duration::from_millis(10);

/// Renewals are due at multiples of this interval, so that one wake-up can renew many leases. Leases are exempt if a
/// third of their validity is shorter than [`MIN_SLOTS`] intervals.
const SLOT: Duration = Duration::from_millis(50);
const MIN_SLOTS: u32 = 32;

/// Returns when to renew a lease whose validity began at `t1`: after a third of the validity. If the validity is long
/// enough, the time is rounded down to a multiple of [`SLOT`].
fn renewal_due(t1: Time, validity: Duration) -> Time {
    let due = t1.after(validity / 3);
    if validity / 3 < SLOT * MIN_SLOTS {
        return due;
    }
    let nanos = due.as_nanos();
    Time::from_nanos(nanos - nanos % u64::from(SLOT.subsec_nanos()))
}

#[derive(Clone, Copy, Debug)]
struct AutoExtension {
    ttl: Ttl,
    /// When the maximum hold time ends.
    ends: Time,
    due: Time,
    /// How many nanoseconds before the end of validity a loss is reported. At most [`LOSS_MARGIN`].
    margin: u32,
    is_extending: bool,
}

impl AutoExtension {
    fn margin(&self) -> Duration {
        Duration::from_nanos(self.margin.into())
    }
}

/// The state and the auto-extension of a lease, from the acquire to the end of the lease. A lost lease stays lost (I9).
#[derive(Clone, Debug)]
pub(crate) struct Renewal {
    quorum: Quorum,
    drift: Drift,
    status: LeaseStatus,
    auto_extension: Option<AutoExtension>,
}

impl Renewal {
    pub(crate) fn new(quorum: Quorum, drift: Drift, valid_until: Time) -> Self {
        Self { quorum, drift, status: LeaseStatus::Held { valid_until }, auto_extension: None }
    }

    pub(crate) fn is_auto_extended(&self) -> bool {
        self.auto_extension.is_some()
    }

    /// Enables auto-extension of a lease acquired at `t1`. The lease is extended to `ttl` whenever a third of its
    /// validity has passed. It ends at the latest when `most` has passed since `t1`.
    pub(crate) fn auto_extended(mut self, ttl: Ttl, t1: Time, most: Duration) -> Self {
        if let LeaseStatus::Held { valid_until } = &mut self.status {
            let ends = t1.after(most);
            *valid_until = ends.min(*valid_until);
            let validity = valid_until.since(t1);
            let (due, margin) =
                (renewal_due(t1, validity), LOSS_MARGIN.min(validity / LOSS_MARGIN_SHARE));
            let margin = margin.subsec_nanos();
            self.auto_extension =
                Some(AutoExtension { ttl, ends, due, margin, is_extending: false });
        }
        self
    }

    /// Returns the step to take at `now`. Ends the lease slightly before its validity ends, so that the holder is
    /// notified before the lease becomes invalid.
    pub(crate) fn step(&mut self, now: Time) -> Step {
        let LeaseStatus::Held { valid_until } = self.status else {
            return Step::Ended(self.status);
        };
        let margin = self.loss_margin();
        if now.after(margin) >= valid_until {
            self.status = LeaseStatus::Lost(self.loss_at(valid_until));
            return Step::Ended(self.status);
        }
        let end = Time::default().after(valid_until.since(Time::default().after(margin)));
        // The later an extension starts, the more validity it gives. An extension that is not due yet is evaluated at
        // its due time.
        let mut useful = self
            .auto_extension
            .and_then(|auto_extension| self.useful_ttl(now.max(auto_extension.due), valid_until));
        if useful.is_none() {
            useful = self.postpone(now, valid_until);
        }
        match (&mut self.auto_extension, useful) {
            (Some(auto_extension), Some(ttl))
                if !auto_extension.is_extending && now >= auto_extension.due =>
            {
                auto_extension.is_extending = true;
                Step::Extend { ttl }
            }
            (Some(auto_extension), Some(_)) if !auto_extension.is_extending => {
                Step::Wait { until: auto_extension.due.min(end) }
            }
            _ => Step::Wait { until: end },
        }
    }

    /// Returns how long before the end of validity [`step`](Self::step) ends the lease.
    pub(crate) fn loss_margin(&self) -> Duration {
        self.auto_extension.map_or(LOSS_MARGIN, |auto_extension| auto_extension.margin())
    }

    /// Postpones the auto-extension if a manual extension has already made the lease valid for longer. The
    /// auto-extension is then due when two thirds of its usual validity are left. Returns the ttl of the postponed
    /// auto-extension. Returns `None` if it was not postponed.
    fn postpone(&mut self, now: Time, current: Time) -> Option<Ttl> {
        let auto_extension = self.auto_extension?;
        let validity =
            valid_until(Time::default(), auto_extension.ttl, self.drift).since(Time::default());
        let due = current.before(validity / 3 * 2);
        if due <= now.max(auto_extension.due) {
            return None;
        }
        let ttl = self.useful_ttl(due, current)?;
        self.auto_extension = Some(AutoExtension { due, ..auto_extension });
        Some(ttl)
    }

    /// Returns the ttl for an auto-extension at `now`, limited by the maximum hold time. Returns `None` if such an
    /// extension would not lengthen the lease, which is valid until `current`.
    fn useful_ttl(&self, now: Time, current: Time) -> Option<Ttl> {
        let auto_extension = self.auto_extension?;
        let ttl = auto_extension.ttl.min(Ttl::within(auto_extension.ends.since(now))?);
        (valid_until(now, ttl, self.drift) > current).then_some(ttl)
    }

    /// Handles the outcome of an [auto-extension](Self::auto_extended) that started at `t1`, and determines when the
    /// next one is due.
    pub(crate) fn handle_auto_extension(&mut self, round: &Round, t1: Time, now: Time) -> Extended {
        let extended = self.handle_outcome(round, now);
        if let Some(auto_extension) = &mut self.auto_extension {
            auto_extension.is_extending = false;
            auto_extension.due = match extended {
                Extended::Until(until) => renewal_due(t1, until.since(t1)),
                Extended::Unchanged(until) => {
                    now.after((until.since(now) / PAUSE_SHARE).max(MIN_PAUSE))
                }
                Extended::Ended(_) => auto_extension.due,
            };
        }
        extended
    }

    /// Returns the state of the lease at `now`. A lease whose validity has ended is lost (I10).
    pub(crate) fn status(&self, now: Time) -> LeaseStatus {
        match self.status {
            LeaseStatus::Held { valid_until } if now >= valid_until => {
                LeaseStatus::Lost(self.loss_at(valid_until))
            }
            status => status,
        }
    }

    /// Returns the loss to report if the lease is not extended before `valid_until`. The loss is [`Loss::MaxHold`] if
    /// the lease has reached its maximum hold time, and [`Loss::Expired`] otherwise.
    pub(crate) fn loss_at(&self, valid_until: Time) -> Loss {
        // The last extension reaches the maximum hold time minus the drift allowance.
        let is_over = self.auto_extension.is_some_and(|auto_extension| {
            valid_until.after(self.drift.allowance(auto_extension.ttl).saturating_add(LOSS_MARGIN))
                >= auto_extension.ends
        });
        if is_over { Loss::MaxHold } else { Loss::Expired }
    }

    /// Returns the end of validity, or `None` if the lease is not held at `now`.
    pub(crate) fn valid_until(&self, now: Time) -> Option<Time> {
        match self.status(now) {
            LeaseStatus::Held { valid_until } => Some(valid_until),
            LeaseStatus::Lost(_) | LeaseStatus::Released => None,
        }
    }

    /// Starts an extension to `ttl` and returns its round. The caller must read `t1` before it sends the extension's
    /// first command. If the lease has ended, returns its final state as an error.
    pub(crate) fn begin(&mut self, ttl: Ttl, t1: Time) -> Result<Round, LeaseStatus> {
        match self.record_expiry(t1) {
            LeaseStatus::Held { valid_until: current } => {
                let proposed = valid_until(t1, ttl, self.drift);
                Ok(Round::new(self.quorum, Goal::Extend { current, proposed }))
            }
            ended => Err(ended),
        }
    }

    /// Starts a round that verifies that the lease is still held. The round is an extension that does not lengthen the
    /// lease. Returns the ttl to request and the round. The ttl is the shortest that covers the remaining validity plus
    /// the drift allowance. If the lease has ended, returns its final state as an error.
    pub(crate) fn begin_check(&mut self, t1: Time) -> Result<(Ttl, Round), LeaseStatus> {
        match self.record_expiry(t1) {
            LeaseStatus::Held { valid_until: current } => {
                let ttl = self.drift.ttl_for(current.since(t1)).unwrap_or(Ttl::LONGEST);
                let goal = Goal::Extend { current, proposed: current };
                Ok((ttl, Round::new(self.quorum, goal)))
            }
            ended => Err(ended),
        }
    }

    pub(crate) fn handle_outcome(&mut self, round: &Round, now: Time) -> Extended {
        let LeaseStatus::Held { valid_until } = self.record_expiry(now) else {
            return Extended::Ended(self.status);
        };
        match (round.outcome(), round.goal()) {
            (Some(Outcome::Won), Goal::Extend { proposed, .. }) => {
                let valid_until = valid_until.max(proposed);
                self.status = LeaseStatus::Held { valid_until };
                return Extended::Until(valid_until);
            }
            (Some(Outcome::Denied), _) => self.status = LeaseStatus::Lost(Loss::TakenOver),
            (Some(Outcome::Missing), _) => self.status = LeaseStatus::Lost(Loss::QuorumLost),
            (Some(Outcome::TooLate | Outcome::NoQuorum | Outcome::Won) | None, _) => {
                return Extended::Unchanged(valid_until);
            }
        }
        Extended::Ended(self.status)
    }

    /// Marks the lease as released if it is still held at `now`. Returns its state at `now`, before the change.
    pub(crate) fn release(&mut self, now: Time) -> LeaseStatus {
        let was = self.record_expiry(now);
        if matches!(was, LeaseStatus::Held { .. }) {
            self.status = LeaseStatus::Released;
        }
        was
    }

    /// Marks the lease as lost because of `loss` if it is still held at `now`. Returns its final state.
    pub(crate) fn lose(&mut self, loss: Loss, now: Time) -> LeaseStatus {
        if matches!(self.record_expiry(now), LeaseStatus::Held { .. }) {
            self.status = LeaseStatus::Lost(loss);
        }
        self.status
    }

    /// Makes the next auto-extension due at `now`, unless it is due earlier.
    pub(crate) fn make_due(&mut self, now: Time) {
        if let Some(auto_extension) = &mut self.auto_extension {
            auto_extension.due = auto_extension.due.min(now);
        }
    }

    /// Marks the lease as lost if its validity has ended at `now`, and returns its state. A later call with an earlier
    /// `now` cannot undo the loss.
    fn record_expiry(&mut self, now: Time) -> LeaseStatus {
        self.status = self.status(now);
        self.status
    }
}

#[cfg(test)]
#[path = "renewal_tests.rs"]
mod tests;
