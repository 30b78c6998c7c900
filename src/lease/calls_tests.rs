//! Checks that an extension reports a loss that occurs before the result is polled, and that a release completes even
//! if the coordinator panics.

use super::*;
use crate::engine::memory_tests::MemoryClient;
use crate::engine::{AcquiredLease, Client};
use crate::lease::limits::Limits;
use crate::lease::state::LeaseContext;
use crate::observe::AcquireTag;
use crate::protocol::Drift;
use crate::sync::lock;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

// The TTL and the node timeout that `MemoryClient` uses.
const TTL: Duration = Duration::from_secs(10);
const NODE_TIMEOUT: Duration = Duration::from_secs(1);

struct HeldLease {
    lease: Arc<LeaseState>,
    client: Arc<Client>,
    latest: Arc<Mutex<MemoryClient>>,
}

impl HeldLease {
    fn new() -> Self {
        let latest = Arc::new(Mutex::new(MemoryClient::new()));
        let engines = latest.clone();
        let client = Arc::new(Client::new(move || {
            let mut latest = lock(&engines);
            *latest = latest.another();
            latest.engine.clone()
        }));
        let memory = lock(&latest).clone();
        let mut call = pin!(memory.acquire());
        memory.run();
        let polled = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(Ok(Some(Completion::Acquired { lease, shared, since, .. }))) = polled
        else {
            panic!("the lock is free")
        };
        let acquired = AcquiredLease { engine: memory.engine.clone(), id: lease, shared, since };
        let limits = Limits { max_ttl: 6 * TTL, node_timeout: NODE_TIMEOUT, drift: Drift::DEFAULT };
        let ttl = Ttl::covering(TTL);
        let environment = memory.engine.environment();
        let (clock, observers) = (environment.clock.clone(), environment.observers.clone());
        let context = Arc::new(LeaseContext { clock, observers, limits, prefix: 0 });
        let lease = LeaseState::new(&client, acquired, &context, (ttl, AcquireTag::default()));
        Self { lease, client, latest }
    }

    /// Releases the lease and returns the outcome. During the release, each of the first `panics`
    /// engines panics. The node replies only to an engine that does not panic.
    fn release(&self, panics: usize) -> Result<ReleaseOutcome, ReleaseError> {
        let mut end = pin!(self.lease.end(None));
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..panics {
            assert!(end.as_mut().poll(&mut cx).is_pending());
            self.client.engine().with(|_, _| resume_unwind(Box::new("a defect")));
        }
        let polled = end.as_mut().poll(&mut cx);
        lock(&self.latest).run();
        match polled {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => match end.as_mut().poll(&mut cx) {
                Poll::Ready(outcome) => outcome,
                Poll::Pending => panic!("the node has replied"),
            },
        }
    }

    fn is_locked(&self) -> bool {
        lock(&self.latest).is_locked()
    }
}

#[test]
fn release_is_repeated_on_new_engines_after_panics() {
    for panics in 0..=MAX_REPEATS {
        let held = HeldLease::new();
        assert!(held.is_locked());
        assert_eq!(held.release(panics).ok(), Some(ReleaseOutcome::Released), "{panics} panics");
        assert!(!held.is_locked());
    }
}

#[test]
fn release_fails_after_more_panics_than_repeats() {
    let held = HeldLease::new();
    assert!(matches!(held.release(MAX_REPEATS + 1), Err(ReleaseError::NoQuorum { .. })));
}

#[test]
fn failed_extension_reports_a_loss_that_precedes_its_result() {
    let held = HeldLease::new();
    held.lease.watch();
    let mut extension = pin!(held.lease.extend_to(Some(Ttl::covering(TTL)), Duration::ZERO));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(extension.as_mut().poll(&mut cx).is_pending());
    let memory = lock(&held.latest).clone();
    // The node does not reply within the node timeout.
    memory.advance(NODE_TIMEOUT);
    memory.fire_alarm();
    assert!(matches!(held.lease.status(), LeaseStatus::Held { .. }));
    // A watched lease is lost slightly before its validity ends.
    let validity = held.lease.validity(held.lease.now());
    memory.advance(validity.saturating_sub(Duration::from_millis(1)));
    let Poll::Ready(extended) = extension.as_mut().poll(&mut cx) else {
        panic!("the extension has failed")
    };
    let ended = Extended::Ended(LeaseStatus::Lost(Loss::Expired));
    assert_eq!(extended.map(|(extended, _)| extended), Ok(ended));
}
