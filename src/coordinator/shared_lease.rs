//! Lease state that the handles of a lease can read without access to the coordinator.

use super::claim::Claim;
use crate::protocol::{LeaseStatus, Loss, Time};
use crate::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// The state of a lease. The coordinator publishes the state, and the lease's handles read it. A handle can also end
/// the lease itself, before the coordinator handles the end.
#[derive(Debug)]
pub(crate) struct SharedLease {
    claim: Arc<Claim>,
    /// End of the validity, in nanoseconds.
    valid_until: AtomicU64,
    /// The lease can be taken only while more than this much validity remains. This is the margin before `valid_until`
    /// at which the renewal ends an auto-extended lease, and zero for other leases.
    needed: Duration,
    /// The code of the loss to report once `valid_until` has passed.
    expiry: AtomicU8,
    /// [`HELD`], [`RELEASED`], or a code for the reason the lease was lost. Never changes back to [`HELD`].
    end: AtomicU8,
    delivery: AtomicU8,
}

const HELD: u8 = 0;
const RELEASED: u8 = 1;
/// The code of the first loss in [`Loss::ALL`]. The codes of the other losses follow in the same order.
const FIRST_LOSS: u8 = 2;

const UNCLAIMED: u8 = 0;
const CLAIMED: u8 = 1;
const REVOKED: u8 = 2;

impl SharedLease {
    /// Creates the state of a held lease. `expiry` is the loss to report once `valid_until` has passed. The caller can
    /// take the lease while more than `needed` of its validity is left.
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

    /// Returns the lease's status at `now`. After `valid_until`, the lease is lost even if the coordinator has not
    /// reported the loss (I10).
    pub(crate) fn status(&self, now: Time) -> LeaseStatus {
        match self.end.load(Ordering::Acquire) {
            HELD => {
                let valid_until = Time::from_nanos(self.valid_until.load(Ordering::Acquire));
                if now < valid_until {
                    return LeaseStatus::Held { valid_until };
                }
                LeaseStatus::Lost(loss(self.expiry.load(Ordering::Acquire)))
            }
            RELEASED => LeaseStatus::Released,
            number => LeaseStatus::Lost(loss(number)),
        }
    }

    /// Marks the lease as released. Must be called before the release is submitted. Returns false if the lease has
    /// already ended at `now`.
    pub(crate) fn end(&self, now: Time) -> bool {
        let status = self.status(now);
        if let LeaseStatus::Lost(_) = status {
            // A lost lease stays lost (I9).
            self.publish(status);
            return false;
        }
        self.set_end(RELEASED)
    }

    /// Marks the lease as lost because of `loss`. Must be called before the release is submitted.
    pub(crate) fn end_as(&self, loss: Loss) {
        self.publish(LeaseStatus::Lost(loss));
    }

    /// Takes the lease for the caller of the acquire. Returns false if the lease has ended, is about to end, or was
    /// revoked. The acquire then continues.
    pub(crate) fn take(&self, now: Time) -> bool {
        self.takeable_until(now).is_some() && self.set_delivery(CLAIMED)
    }

    /// Returns the time until which the caller can take the lease. Returns `None` if the lease cannot be taken at
    /// `now`.
    pub(super) fn takeable_until(&self, now: Time) -> Option<Time> {
        match self.status(now.after(self.needed)) {
            LeaseStatus::Held { valid_until } => Some(valid_until.before(self.needed)),
            LeaseStatus::Lost(_) | LeaseStatus::Released => None,
        }
    }

    /// Revokes the lease before its caller has taken it. Returns false if the lease was already taken.
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

    /// Publishes a new end of the validity. `expiry` is the loss to report once `valid_until` has passed.
    pub(super) fn extend(&self, valid_until: Time, expiry: Loss) {
        self.expiry.store(number(expiry), Ordering::Release);
        self.valid_until.store(valid_until.as_nanos(), Ordering::Release);
    }

    /// Publishes the end of the lease, unless an end was already published.
    pub(super) fn publish(&self, ended: LeaseStatus) {
        match ended {
            LeaseStatus::Held { .. } => {}
            LeaseStatus::Released => _ = self.set_end(RELEASED),
            LeaseStatus::Lost(loss) => _ = self.set_end(number(loss)),
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
            assert_eq!(lease.status(at(9)), LeaseStatus::Held { valid_until: at(10) });
            assert_eq!(lease.status(at(10)), LeaseStatus::Lost(Loss::Expired));
            lease.extend(at(20), Loss::Expired);
            assert_eq!(lease.status(at(19)), LeaseStatus::Held { valid_until: at(20) });
            lease.publish(LeaseStatus::Lost(loss));
            assert!(!lease.end(at(19)), "{place}");
            assert_eq!(lease.status(at(0)), LeaseStatus::Lost(loss));
        }
        let lease = lease();
        assert!(lease.end(at(9)));
        lease.publish(LeaseStatus::Lost(Loss::Expired));
        assert_eq!(lease.status(at(0)), LeaseStatus::Released);
    }

    #[test]
    fn delivered_lease_is_either_taken_or_revoked() {
        let taken = lease();
        assert!(!taken.is_taken() && taken.take(at(0)) && taken.is_taken() && !taken.revoke());
        let revoked = lease();
        assert!(revoked.revoke() && !revoked.take(at(0)) && !revoked.is_taken());
        let ended = lease();
        assert!(!ended.take(at(8)) && ended.takeable_until(at(7)) == Some(at(8)));
        assert!(matches!(ended.status(at(8)), LeaseStatus::Held { .. }) && ended.revoke());
    }
}
