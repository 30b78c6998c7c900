//! Requests that are submitted while the coordinator is in use.

use super::LeaseListener;
use super::shared::Engine;
use super::slot::CallId;
use crate::coordinator::{Coordinator, LeaseId, NodeSettings, Settings};
use crate::node::{Environment, Pool};
use crate::protocol::{ClientId, Drift, Policy, Quorum, Ttl};
use crate::random::Random;
use crate::sync::lock;
use crate::wire::Fingerprint;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

struct NoLeases;

impl LeaseListener for NoLeases {
    fn handle_end(&self, _: LeaseId) {}
    fn handle_release(&self, _: LeaseId) {}
    fn handle_close(&self) {}
    fn handle_failure(&self) {}
    fn wake_all(&self) {}
}

fn engine() -> Arc<Engine> {
    let second = Duration::from_secs(1);
    let node = NodeSettings { name: "n0".into(), hint_if_closed: "", hint_if_silent: "" };
    let settings = Settings {
        quorum: Quorum::majority(1),
        drift: Drift::DEFAULT,
        node_timeout: second,
        connect_timeout: second,
        opening_timeout: second,
        max_ttl: Ttl::covering(60 * second),
        policy: Policy::Off,
        trusts_persistence: false,
        client: ClientId::from_random(0),
        fingerprint: Fingerprint::new(vec!["n0".to_owned()], 1, 60 * second, b""),
        nodes: [node].into(),
        prefix: 0,
    };
    let coordinator = Coordinator::new(settings, Random::seeded(1));
    // Without drivers, it serves no client: a call is polled below with the coordinator in use.
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let pinned = Some(runtime.handle().clone());
    let pool = Pool::new(Box::new([]), pinned, Environment::default());
    Engine::new(coordinator, Arc::new(pool), Arc::new(NoLeases))
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn requests_during_another_one_are_executed_after_it_in_order() {
    let (engine, log) = (engine(), Arc::<Mutex<Vec<usize>>>::default());
    engine.with(|_, _| {
        for number in 0..3 {
            let log = log.clone();
            engine.request(move |_, _| lock(&log).push(number));
        }
        assert!(lock(&log).is_empty());
    });
    assert_eq!(*lock(&log), [0, 1, 2]);
}

#[test]
fn caller_of_a_queued_request_is_woken_when_the_coordinator_panics() {
    let (engine, count) = (engine(), Arc::<Wakes>::default());
    let waker = Waker::from(count.clone());
    let mut call = None;
    let result: Option<()> = engine.with(|_, _| {
        let mut submitted = engine.call(|_, _| -> Option<CallId> { panic!("not executed") });
        assert!(pin!(&mut submitted).poll(&mut Context::from_waker(&waker)).is_pending());
        call = Some(submitted);
        std::panic::resume_unwind(Box::new("a defect"));
    });
    assert!(result.is_none());
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    let polled = pin!(call.expect("submitted")).poll(&mut Context::from_waker(&waker));
    assert!(matches!(polled, Poll::Ready(Err(_))));
}

#[test]
fn queued_request_that_panics_fails_its_call() {
    let (engine, count) = (engine(), Arc::<Wakes>::default());
    let waker = Waker::from(count.clone());
    let call = engine.with(|_, _| {
        let mut call = engine
            .call(|_, _| -> Option<CallId> { std::panic::resume_unwind(Box::new("a defect")) });
        assert!(pin!(&mut call).poll(&mut Context::from_waker(&waker)).is_pending());
        call
    });
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    let polled = pin!(call.expect("submitted")).poll(&mut Context::from_waker(&waker));
    assert!(matches!(polled, Poll::Ready(Err(_))) && engine.has_panicked());
}

#[test]
fn each_request_of_many_threads_is_executed_once() {
    const EACH: usize = 5_000;
    let (engine, count) = (engine(), Arc::<AtomicUsize>::default());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..EACH {
                    let count = count.clone();
                    engine.request(move |_, _| _ = count.fetch_add(1, Ordering::SeqCst));
                }
            });
        }
    });
    // The last holder of the mutex executes what was queued before it was unlocked.
    assert_eq!(count.load(Ordering::SeqCst), 4 * EACH);
}
