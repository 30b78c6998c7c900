//! The part of a lease's state that its handles read without the coordinator.

use super::claim::Claim;
use crate::protocol::{Loss, Tenure, Time};
use crate::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// The state of a lease, as published by the coordinator. A handle can end the lease before the coordinator does.
#[derive(Debug)]
pub(crate) struct SharedLease {
    claim: Arc<Claim>,
    /// End of the validity, in nanoseconds.
    valid_until: AtomicU64,
    /// Margin before `valid_until` in which the lease can no longer be taken: at least the margin with which its
    /// renewal ends the lease.
    needed: Duration,
    /// The loss that is reported from `valid_until` on.
    expiry: AtomicU8,
    /// [`HELD`], [`RELEASED`] or the number of a loss; never changes back to [`HELD`].
    end: AtomicU8,
    delivery: AtomicU8,
}

const HELD: u8 = 0;
const RELEASED: u8 = 1;
/// Number of the first loss in [`Loss::ALL`]. The other losses follow in the same order.
const FIRST_LOSS: u8 = 2;

const UNCLAIMED: u8 = 0;
const CLAIMED: u8 = 1;
const REVOKED: u8 = 2;

impl SharedLease {
    /// Creates the state of a held lease. `expiry` is the loss at `valid_until`. The lease can be taken while more than
    /// `needed` of its validity is left.
    pub(super) fn new(
        claim: Arc<Claim>,
        valid_until: Time,
        expiry: Loss,
        needed: Duration,
    ) -> Arc<Self> {
        Arc::new(Self {
            claim,
            valid_until: AtomicU64::new(valid_until.as_nanos()),
            needed,
            expiry: AtomicU8::new(number(expiry)),
            end: AtomicU8::new(HELD),
            delivery: AtomicU8::new(UNCLAIMED),
        })
    }

    pub(crate) fn claim(&self) -> &Arc<Claim> {
        &self.claim
    }

    /// Returns the lease's state at `now`. From `valid_until` on, the lease is lost (I10).
    pub(crate) fn tenure(&self, now: Time) -> Tenure {
        match self.end.load(Ordering::Acquire) {
            HELD => {
                let valid_until = Time::from_nanos(self.valid_until.load(Ordering::Acquire));
                if now < valid_until {
                    return Tenure::Held { valid_until };
                }
                Tenure::Lost(loss(self.expiry.load(Ordering::Acquire)))
            }
            RELEASED => Tenure::Released,
            number => Tenure::Lost(loss(number)),
        }
    }

    /// Ends the lease as released. Call this before the release is submitted. Returns false if the lease has already
    /// ended at `now`.
    pub(crate) fn end(&self, now: Time) -> bool {
        let tenure = self.tenure(now);
        if let Tenure::Lost(_) = tenure {
            // A lost lease stays lost (I9).
            self.publish(tenure);
            return false;
        }
        self.set_end(RELEASED)
    }

    /// Ends the lease as lost. Call this before the release is submitted.
    pub(crate) fn end_as(&self, loss: Loss) {
        self.publish(Tenure::Lost(loss));
    }

    /// Takes a lease that was delivered to an acquire. Returns false if the lease has ended, is about to end, or was
    /// revoked. The acquire then continues.
    pub(crate) fn take(&self, now: Time) -> bool {
        self.takeable_until(now).is_some() && self.set_delivery(CLAIMED)
    }

    /// Returns the time until which a delivered lease can be taken, or `None` if it cannot be taken at `now`.
    pub(super) fn takeable_until(&self, now: Time) -> Option<Time> {
        match self.tenure(now.after(self.needed)) {
            Tenure::Held { valid_until } => Some(valid_until.before(self.needed)),
            Tenure::Lost(_) | Tenure::Released => None,
        }
    }

    /// Revokes a delivered lease. Returns false if the lease was already taken.
    pub(super) fn revoke(&self) -> bool {
        self.set_delivery(REVOKED)
    }

    pub(super) fn is_taken(&self) -> bool {
        self.delivery.load(Ordering::Acquire) == CLAIMED
    }

    fn set_delivery(&self, to: u8) -> bool {
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        self.delivery.compare_exchange(UNCLAIMED, to, success, failure).is_ok()
    }

    /// Publishes that the lease is valid until `valid_until`. `expiry` is the loss at that time.
    pub(super) fn extend(&self, valid_until: Time, expiry: Loss) {
        self.expiry.store(number(expiry), Ordering::Release);
        self.valid_until.store(valid_until.as_nanos(), Ordering::Release);
    }

    /// Publishes the end of the lease, unless an end was published before.
    pub(super) fn publish(&self, ended: Tenure) {
        match ended {
            Tenure::Held { .. } => {}
            Tenure::Released => _ = self.set_end(RELEASED),
            Tenure::Lost(loss) => _ = self.set_end(number(loss)),
        }
    }

    fn set_end(&self, end: u8) -> bool {
        self.end.compare_exchange(HELD, end, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

fn number(loss: Loss) -> u8 {
    let place = Loss::ALL.iter().position(|known| *known == loss).unwrap_or_default();
    FIRST_LOSS + u8::try_from(place).unwrap_or_default()
}

fn loss(number: u8) -> Loss {
    Loss::ALL[usize::from(number - FIRST_LOSS)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Keys, Value};

    fn at(ms: u64) -> Time {
        Time::default().after(Duration::from_millis(ms))
    }

    fn lease() -> Arc<SharedLease> {
        let keys = Keys::one(b"k".as_slice().into());
        let claim = Claim::new(keys, Value::of(b"v"), None, 1, Time::END);
        SharedLease::new(Arc::new(claim), at(10), Loss::Expired, Duration::from_millis(2))
    }

    #[test]
    fn lease_ends_once() {
        for (loss, place) in Loss::ALL.into_iter().zip(0..) {
            let lease = lease();
            assert_eq!(lease.tenure(at(9)), Tenure::Held { valid_until: at(10) });
            assert_eq!(lease.tenure(at(10)), Tenure::Lost(Loss::Expired));
            lease.extend(at(20), Loss::Expired);
            assert_eq!(lease.tenure(at(19)), Tenure::Held { valid_until: at(20) });
            lease.publish(Tenure::Lost(loss));
            assert!(!lease.end(at(19)), "{place}");
            assert_eq!(lease.tenure(at(0)), Tenure::Lost(loss));
        }
        let lease = lease();
        assert!(lease.end(at(9)));
        lease.publish(Tenure::Lost(Loss::Expired));
        assert_eq!(lease.tenure(at(0)), Tenure::Released);
    }

    #[test]
    fn delivered_lease_is_either_taken_or_revoked() {
        let taken = lease();
        assert!(!taken.is_taken() && taken.take(at(0)) && taken.is_taken() && !taken.revoke());
        let revoked = lease();
        assert!(revoked.revoke() && !revoked.take(at(0)) && !revoked.is_taken());
        let ended = lease();
        assert!(!ended.take(at(8)) && ended.takeable_until(at(7)) == Some(at(8)));
        assert!(matches!(ended.tenure(at(8)), Tenure::Held { .. }) && ended.revoke());
    }
}
