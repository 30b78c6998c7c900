//! Loom tests of a client that several threads use at the same time.

use super::loom_threads_tests::{block_on, check, serve, spawn};
use super::memory_tests::MemoryClient;
use super::signal::TaskSignal;
use super::slot::CallId;
use crate::coordinator::Completion;
use crate::protocol::Time;
use crate::sync::lock;
use std::future::poll_fn;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

type Result = std::result::Result<Option<Completion>, super::failure::EngineFailure>;

fn poll(call: &mut super::calls::Call) -> Poll<Result> {
    pin!(call).poll(&mut Context::from_waker(Waker::noop()))
}

fn is_taken(polled: &Poll<Result>) -> bool {
    match polled {
        Poll::Ready(Ok(Some(Completion::Acquired { .. }))) => true,
        Poll::Pending => false,
        Poll::Ready(_) => panic!("the acquire has failed"),
    }
}

#[test]
fn concurrent_requests_are_executed_once_and_in_order() {
    check(2, || {
        let (client, log) = (MemoryClient::new(), Arc::<Mutex<Vec<u32>>>::default());
        let threads = [[1, 2].as_slice(), &[3]].map(|numbers| {
            let (engine, log) = (client.engine.clone(), log.clone());
            spawn(move || {
                for number in numbers {
                    let log = log.clone();
                    engine.request(move |_, _| lock(&log).push(*number));
                }
            })
        });
        client.engine.with(|_, _| ());
        for thread in threads {
            thread.join().expect("no panic");
        }
        let mut log = std::mem::take(&mut *lock(&log));
        let place = |number| log.iter().position(|it| *it == number);
        assert!(place(1) < place(2), "{log:?}");
        log.sort_unstable();
        assert_eq!(log, [1, 2, 3]);
    });
}

#[test]
fn caller_of_a_concurrent_request_is_woken() {
    check(3, || {
        let client = MemoryClient::new();
        let engine = client.engine.clone();
        let caller = spawn(move || block_on(engine.call(|_, _| None)));
        client.engine.with(|_, _| ());
        assert!(matches!(caller.join().expect("no panic"), Ok(None)));
    });
}

#[test]
fn callers_are_woken_by_a_panic_of_the_coordinator() {
    check(2, || {
        let client = MemoryClient::new();
        let executed = Arc::<AtomicUsize>::default();
        let (engine, count) = (client.engine.clone(), executed.clone());
        let caller = spawn(move || {
            block_on(engine.call(move |_, _| {
                count.fetch_add(1, Ordering::SeqCst);
                None
            }))
        });
        let engine = &client.engine;
        let broken = engine.call(|_, _| -> Option<CallId> { resume_unwind(Box::new("a defect")) });
        assert!(block_on(broken).is_err());
        let result = caller.join().expect("no panic");
        assert!(client.engine.has_panicked());
        // A caller whose request was executed before the panic may learn of the panic first.
        assert!(result.is_err() || executed.load(Ordering::SeqCst) == 1);
        assert!(executed.load(Ordering::SeqCst) <= 1);
    });
}

#[test]
fn caller_in_a_call_is_woken_if_the_coordinator_panics() {
    check(2, || {
        let client = MemoryClient::new();
        let other = client.clone();
        let caller = spawn(move || block_on(other.acquire()));
        client.engine.with(|_, _| resume_unwind(Box::new("a defect")));
        assert!(caller.join().expect("no panic").is_err());
    });
}

#[test]
fn task_acquires_and_closes_for_a_caller() {
    check(2, || {
        let client = MemoryClient::new();
        let served = client.clone();
        let task = spawn(move || assert!(serve(&served)));
        let completion = block_on(client.acquire());
        assert!(matches!(completion, Ok(Some(Completion::Acquired { .. }))) && client.is_locked());
        client.engine.with(|it, now| it.handle_close(Duration::MAX, now));
        task.join().expect("no panic");
        assert!(!client.is_locked());
    });
}

#[test]
fn delivered_lease_is_taken_or_released_after_a_drop() {
    check(3, || {
        let client = MemoryClient::new();
        let mut call = client.acquire();
        assert!(poll(&mut call).is_pending());
        client.turn();
        assert!(client.is_locked());
        let caller = spawn(move || is_taken(&poll(&mut call)));
        // Reads the grant.
        client.turn();
        let is_taken = caller.join().expect("no panic");
        client.run();
        assert_eq!(client.is_locked(), is_taken);
    });
}

#[test]
fn untaken_lease_is_taken_or_revoked() {
    check(2, || {
        let client = MemoryClient::new();
        let (mut call, mut next) = (client.acquire(), client.acquire());
        client.run();
        assert!(client.is_locked() && poll(&mut next).is_pending());
        client.advance(Duration::from_secs(3));
        let caller = spawn(move || (is_taken(&poll(&mut call)), call));
        client.fire_alarm();
        let (is_taken_first, call) = caller.join().expect("no panic");
        client.run();
        let is_taken_next = is_taken(&poll(&mut next));
        assert!(client.is_locked() && is_taken_first != is_taken_next);
        drop(call);
    });
}

#[test]
fn dropped_call_passes_its_lease_on() {
    check(2, || {
        let client = MemoryClient::new();
        let (call, mut next) = (client.acquire(), client.acquire());
        client.run();
        assert!(client.is_locked() && poll(&mut next).is_pending());
        client.advance(Duration::from_secs(3));
        let caller = spawn(move || drop(call));
        client.fire_alarm();
        caller.join().expect("no panic");
        client.run();
        assert!(is_taken(&poll(&mut next)) && client.is_locked());
    });
}

#[test]
fn task_that_finds_its_connections_in_use_is_woken() {
    check(2, || {
        let client = MemoryClient::new();
        let (served, alarm) = (client.clone(), client.clone());
        let task = spawn(move || assert!(serve(&served)));
        // Takes a turn in place of the task.
        let alarm = spawn(move || alarm.turn());
        client.engine.with(|it, now| it.handle_close(Duration::MAX, now));
        alarm.join().expect("no panic");
        task.join().expect("no panic");
    });
}

#[test]
fn replaced_task_ends_and_the_next_one_is_woken() {
    check(3, || {
        let (signal, now) = (Arc::<TaskSignal>::default(), Time::from_nanos(1));
        let is_over = Arc::<crate::sync::Mutex<bool>>::default();
        let poll = |generation| {
            let (signal, is_over) = (signal.clone(), is_over.clone());
            move |cx: &mut Context<'_>| {
                let is_over = !signal.register(generation, cx.waker()) || *lock(&is_over);
                if is_over { Poll::Ready(()) } else { Poll::Pending }
            }
        };
        let first = poll_fn(poll(signal.handle_start(now)));
        let first = spawn(move || block_on(first));
        let replaced = signal.handle_end();
        replaced.into_iter().for_each(Waker::wake);
        let next = poll_fn(poll(signal.handle_start(now)));
        let next = spawn(move || block_on(next));
        first.join().expect("no panic");
        *lock(&is_over) = true;
        signal.wake(now);
        next.join().expect("no panic");
    });
}
