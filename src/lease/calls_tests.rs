//! Checks that a release completes even if the coordinator panics during it.

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

struct Release {
    lease: Arc<LeaseState>,
    client: Arc<Client>,
    latest: Arc<Mutex<MemoryClient>>,
}

impl Release {
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
        let second = Duration::from_secs(1);
        let limits = Limits { max_ttl: 60 * second, node_timeout: second, drift: Drift::DEFAULT };
        let ttl = Ttl::covering(10 * second);
        let environment = memory.engine.environment();
        let (clock, observers) = (environment.clock.clone(), environment.observers.clone());
        let context = Arc::new(LeaseContext { clock, observers, limits, prefix: 0 });
        let lease = LeaseState::new(&client, acquired, &context, (ttl, AcquireTag::default()));
        Self { lease, client, latest }
    }

    /// Releases the lease and returns the outcome. During the release, each of the first `panics`
    /// engines panics. The node replies only to an engine that does not panic.
    fn run(&self, panics: usize) -> Result<ReleaseOutcome, ReleaseError> {
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
        let release = Release::new();
        assert!(release.is_locked());
        assert_eq!(release.run(panics).ok(), Some(ReleaseOutcome::Released), "{panics} panics");
        assert!(!release.is_locked());
    }
}

#[test]
fn release_fails_after_more_panics_than_repeats() {
    let release = Release::new();
    assert!(matches!(release.run(MAX_REPEATS + 1), Err(ReleaseError::NoQuorum { .. })));
}
