//! Tests of requests that are submitted while another thread uses the coordinator.

use super::LeaseListener;
use super::shared::{Engine, State};
use super::slot::CallId;
use crate::coordinator::{
    AcquireFailure, AcquireRequest, Completion, Coordinator, LeaseId, NodeSettings, Settings,
};
use crate::node::{Environment, Pool};
use crate::protocol::{ClientId, Drift, Policy, Quorum, Ttl};
use crate::random::Random;
use crate::sync::lock;
use crate::time::OnAlarm;
use crate::wire::Keys;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

struct NoLeases;

impl LeaseListener for NoLeases {
    fn handle_end(&self, _: LeaseId) {}
    fn handle_release(&self, _: LeaseId) {}
    fn handle_close(&self) {}
    fn handle_failure(&self) {}
    fn wake_all(&self) {}
}

fn engine() -> Arc<Engine> {
    engine_in(Environment::default())
}

pub(super) fn engine_in(environment: Environment) -> Arc<Engine> {
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
        nodes: [node].into(),
        prefix: 0,
    };
    let coordinator = Coordinator::new(settings, Random::seeded(1));
    // Outside of simulated worlds, the client is pinned to a runtime without drivers, which cannot serve the client.
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let pinned = (!environment.is_simulated()).then(|| runtime.handle().clone());
    let pool = Pool::new(Box::new([]), pinned, environment);
    Engine::new(coordinator, Arc::new(pool), Arc::new(NoLeases))
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Creates an engine that is marked as having a task, so that requests wait for the next user of the coordinator.
fn served() -> Arc<Engine> {
    let engine = engine();
    engine.is_served.store(true, Ordering::SeqCst);
    engine
}

#[test]
fn request_without_a_task_is_executed_at_once() {
    let (engine, count) = (engine(), Arc::<AtomicUsize>::default());
    let counted = count.clone();
    engine.request(move |_, _| _ = counted.fetch_add(1, Ordering::SeqCst));
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[test]
fn urgent_request_runs_at_once_if_the_coordinator_is_free() {
    let (engine, log) = (served(), Arc::<Mutex<Vec<usize>>>::default());
    let push = |number| {
        let log = log.clone();
        move |_: &mut State, _| lock(&log).push(number)
    };
    engine.request(push(0));
    engine.request_now(push(1));
    assert_eq!(*lock(&log), [0, 1]);
    engine.with(|_, _| engine.request_now(push(2)));
    assert_eq!(*lock(&log), [0, 1]);
    assert!(engine.task.is_woken());
}

#[test]
fn queued_requests_are_executed_in_order_before_the_next_call() {
    let (engine, log) = (served(), Arc::<Mutex<Vec<usize>>>::default());
    for number in 0..3 {
        let log = log.clone();
        engine.request(move |_, _| lock(&log).push(number));
    }
    assert!(lock(&log).is_empty());
    engine.with(|_, _| lock(&log).push(3));
    assert_eq!(*lock(&log), [0, 1, 2, 3]);
}

#[test]
fn task_is_woken_once_for_all_requests_until_it_runs() {
    let (engine, count) = (served(), Arc::<Wakes>::default());
    let woken = || count.0.load(Ordering::SeqCst);
    assert!(engine.task.register(0, &Waker::from(count.clone())));
    for times in 1..3 {
        engine.request(|_, _| ());
        engine.request(|_, _| ());
        assert_eq!(woken(), times);
        assert!(engine.task.register(0, &Waker::from(count.clone())));
    }
}

#[test]
fn queued_requests_of_a_task_that_has_ended_are_executed() {
    let (engine, count) = (served(), Arc::<AtomicUsize>::default());
    let counted = count.clone();
    engine.request(move |_, _| _ = counted.fetch_add(1, Ordering::SeqCst));
    engine.is_served.store(false, Ordering::SeqCst);
    engine.execute_requests();
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[test]
fn callers_are_woken_when_the_coordinator_panics() {
    let (engine, count) = (served(), Arc::<Wakes>::default());
    let waker = Waker::from(count.clone());
    let inner = engine.clone();
    engine.request(move |_, _| {
        // Queued while the coordinator is in use.
        inner.request(|_, _| panic!("not executed"));
        std::panic::resume_unwind(Box::new("a defect"));
    });
    let mut call = engine.call(|_, _| -> Option<CallId> { panic!("not executed") });
    let mut polled = || pin!(&mut call).poll(&mut Context::from_waker(&waker));
    assert!(polled().is_pending());
    assert!(engine.with(|_, _| ()).is_none());
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    assert!(matches!(polled(), Poll::Ready(Err(_))) && engine.has_panicked());
    let late = engine.call(|_, _| -> Option<CallId> { panic!("not executed") });
    let polled = pin!(late).poll(&mut Context::from_waker(&waker));
    assert!(matches!(polled, Poll::Ready(Err(_))));
}

#[test]
fn caller_is_woken_if_the_request_after_its_own_panics() {
    let (engine, count) = (served(), Arc::<Wakes>::default());
    let waker = Waker::from(count.clone());
    let mut call = engine.call(|_, _| None);
    let mut polled = || pin!(&mut call).poll(&mut Context::from_waker(&waker));
    assert!(polled().is_pending());
    engine.request(|_, _| std::panic::resume_unwind(Box::new("a defect")));
    assert!(engine.with(|_, _| ()).is_none());
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    assert!(polled().is_ready() && engine.has_panicked());
}

#[test]
fn queued_request_that_panics_fails_its_call() {
    let (engine, count) = (served(), Arc::<Wakes>::default());
    let waker = Waker::from(count.clone());
    let mut call =
        engine.call(|_, _| -> Option<CallId> { std::panic::resume_unwind(Box::new("a defect")) });
    let mut polled = || pin!(&mut call).poll(&mut Context::from_waker(&waker));
    assert!(polled().is_pending());
    assert!(engine.with(|_, _| ()).is_none());
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    assert!(matches!(polled(), Poll::Ready(Err(_))) && engine.has_panicked());
}

#[test]
fn calls_that_end_in_one_batch_of_requests_all_complete() {
    let engine = served();
    engine.with(|it, now| it.handle_close(Duration::MAX, now));
    let refused = || {
        engine.call(|it, now| {
            let keys = Keys::one(b"k".as_slice().into());
            let request = AcquireRequest::once(keys, Ttl::covering(Duration::from_secs(1)));
            Some(CallId::Acquire(it.handle_acquire(request, now)))
        })
    };
    let calls = [refused(), refused(), refused()];
    engine.with(|_, _| ());
    for call in calls {
        let polled = pin!(call).poll(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(Ok(Some(Completion::AcquireFailed { failure, .. }))) = polled else {
            panic!("a call has not ended");
        };
        assert!(matches!(failure, AcquireFailure::Closed));
    }
}

#[test]
fn each_request_of_many_threads_is_executed_once() {
    const EACH: usize = 5_000;
    let (engine, count) = (served(), Arc::<AtomicUsize>::default());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..EACH {
                    let count = count.clone();
                    engine.request(move |_, _| _ = count.fetch_add(1, Ordering::SeqCst));
                    engine.with(|_, _| ());
                }
            });
        }
    });
    engine.execute_requests();
    assert_eq!(count.load(Ordering::SeqCst), 4 * EACH);
}

#[test]
fn alarm_does_not_wait_for_a_thread_that_uses_the_coordinator() {
    let engine = engine();
    let used = lock(&engine.state);
    let firing = thread::spawn({
        let engine = engine.clone();
        move || engine.clone().on_alarm(engine.now())
    });
    let started = Instant::now();
    while !firing.is_finished() {
        assert!(started.elapsed() < Duration::from_secs(20), "the alarm waits");
        thread::sleep(Duration::from_millis(1));
    }
    drop(used);
    let next = firing.join().expect("no panic").expect("the client is open");
    assert!(next <= engine.now().after(Duration::from_millis(1)), "it fires again soon");
}
