//! Loom tests that concurrent calls to a [`SharedLease`] agree on whether the lease is taken, valid or ended.

use super::{Claim, SharedLease};
use crate::protocol::{LeaseStatus, Loss, Time};
use crate::wire::{Keys, Value};
use loom::thread;
use std::sync::Arc;
use std::time::Duration;

fn at(ms: u64) -> Time {
    Time::default().after(Duration::from_millis(ms))
}

/// Returns a lease that is valid until 10 ms and can be taken until 8 ms.
fn lease() -> Arc<SharedLease> {
    let keys = Keys::one(b"k".as_slice().into());
    let claim = Claim::new(keys, Value::of(b"v"), None, 1, Time::END);
    SharedLease::new(Arc::new(claim), at(10), Loss::Expired, Duration::from_millis(2))
}

fn is_held(lease: &SharedLease, now: Time) -> bool {
    matches!(lease.status(now), LeaseStatus::Held { .. })
}

#[test]
fn lease_is_taken_or_revoked_once() {
    loom::model(|| {
        let lease = lease();
        let actions: [fn(&SharedLease) -> bool; 2] = [|it| it.take(at(0)), |it| it.revoke()];
        let threads = actions.map(|action| {
            let lease = lease.clone();
            thread::spawn(move || action(&lease))
        });
        let is_taken = lease.take(at(0));
        let [is_taken_too, is_revoked] = threads.map(|thread| thread.join().expect("no panic"));
        let successes = [is_taken, is_taken_too, is_revoked].into_iter().filter(|it| *it).count();
        assert_eq!(successes, 1);
        assert_eq!(lease.is_taken(), !is_revoked);
    });
}

#[test]
fn lease_has_one_end_that_stays() {
    loom::model(|| {
        let lease = lease();
        let actions: [fn(&SharedLease) -> bool; 2] = [
            |it| it.end(at(0)),
            |it| {
                it.publish(LeaseStatus::Lost(Loss::QuorumLost));
                false
            },
        ];
        let threads = actions.map(|action| {
            let lease = lease.clone();
            thread::spawn(move || {
                let is_released = action(&lease);
                assert!(!is_held(&lease, at(0)), "the end was published");
                is_released
            })
        });
        let (first, second) = (lease.status(at(0)), lease.status(at(0)));
        let [is_released, _] = threads.map(|thread| thread.join().expect("no panic"));
        let end = lease.status(at(0));
        assert_eq!(end == LeaseStatus::Released, is_released);
        for (earlier, later) in [(first, second), (second, end)] {
            assert!(matches!(earlier, LeaseStatus::Held { .. }) || earlier == later);
        }
    });
}

#[test]
fn extension_never_shortens_and_ends_with_its_own_loss() {
    loom::model(|| {
        let lease = lease();
        let coordinator = {
            let lease = lease.clone();
            thread::spawn(move || {
                lease.extend(at(20), Loss::QuorumLost);
                lease.extend(at(30), Loss::MaxHold);
            })
        };
        let mut last = at(10);
        for _ in 0..2 {
            let LeaseStatus::Held { valid_until } = lease.status(at(5)) else { panic!("held") };
            assert!(valid_until >= last);
            last = valid_until;
        }
        if last == at(30) {
            assert_eq!(lease.status(at(30)), LeaseStatus::Lost(Loss::MaxHold));
        }
        coordinator.join().expect("no panic");
    });
}

#[test]
fn lease_is_taken_with_its_margin_only() {
    loom::model(|| {
        let lease = lease();
        let coordinator = {
            let lease = lease.clone();
            thread::spawn(move || lease.extend(at(20), Loss::Expired))
        };
        let is_taken = lease.take(at(8));
        // A lease can be taken at 8 ms only if the extension was visible, and the extension must stay visible.
        assert!(!is_taken || is_held(&lease, at(19)));
        coordinator.join().expect("no panic");
        assert!(is_taken || (!lease.take(at(18)) && lease.take(at(17))));
    });
}
