//! Containment of panics in wakers.
//!
//! A waker is application code that runs on threads that serve many callers: the timer thread and the client's task. If
//! a waker panics, the thread must not end, and other callers must still be woken.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

/// Runs `work` and returns its result, or `None` if `work` panics. Changes made before the panic remain.
pub(crate) fn catch_panic<T>(work: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => Some(done),
        Err(thrown) => {
            drop_panic_payload(thrown);
            None
        }
    }
}

/// Drops the payload of a panic. If the payload's destructor panics too, that panic is contained.
pub(crate) fn drop_panic_payload(thrown: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(thrown))) {
        std::mem::forget(again);
    }
}

/// Creates a waker that calls `waker` and contains its panics.
pub(crate) fn safe(waker: &Waker) -> Waker {
    Waker::from(Arc::new(SafeWaker(Some(waker.clone()))))
}

/// Awaits `future` with a [safe] waker of this task.
///
/// # Cancel safety
/// Cancel safe if `future` is cancel safe.
pub(crate) async fn with_safe_waker<F: Future>(mut future: Pin<&mut F>) -> F::Output {
    let mut known: Option<(Waker, Waker)> = None;
    poll_fn(|cx| {
        let is_known = known.as_ref().is_some_and(|(task, _)| task.will_wake(cx.waker()));
        if !is_known {
            known = Some((cx.waker().clone(), safe(cx.waker())));
        }
        let waker = known.as_ref().map_or(cx.waker(), |(_, waker)| waker);
        future.as_mut().poll(&mut Context::from_waker(waker))
    })
    .await
}

/// A waker whose panics are contained. The field is `Some` until the waker is dropped.
struct SafeWaker(Option<Waker>);

impl Wake for SafeWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        catch_panic(|| self.0.as_ref().map(Waker::wake_by_ref));
    }
}

impl Drop for SafeWaker {
    fn drop(&mut self) {
        catch_panic(|| drop(self.0.take()));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::pin::pin;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Poll;

    struct Broken;

    impl Wake for Broken {
        fn wake(self: Arc<Self>) {
            panic!("a waker that panics");
        }
    }

    impl Drop for Broken {
        fn drop(&mut self) {
            panic!("and panics when it is dropped");
        }
    }

    #[derive(Default)]
    pub(crate) struct Count(pub(crate) AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    struct Thrown;

    impl Drop for Thrown {
        fn drop(&mut self) {
            panic!("what was thrown panics when it is dropped");
        }
    }

    #[test]
    fn panics_of_a_waker_and_its_drop_are_caught() {
        let theirs = Waker::from(Arc::new(Broken));
        let ours = safe(&theirs);
        // From here on, only the safe waker owns the panicking waker.
        catch_panic(|| drop(theirs));
        ours.wake_by_ref();
        ours.wake();
        assert_eq!(catch_panic(|| std::panic::panic_any(Thrown)), None::<()>);
        assert_eq!(catch_panic(|| 7), Some(7));
    }

    #[test]
    fn waiting_task_is_woken_and_its_waker_compares_equal() {
        let count = Arc::new(Count::default());
        let task = Waker::from(count.clone());
        let seen: Mutex<Vec<Waker>> = Mutex::default();
        let mut waits = pin!(poll_fn(|cx| {
            seen.lock().unwrap().push(cx.waker().clone());
            Poll::<()>::Pending
        }));
        let mut safely = pin!(with_safe_waker(waits.as_mut()));
        for waker in [&task, &task, Waker::noop()] {
            let _ = safely.as_mut().poll(&mut Context::from_waker(waker));
        }
        let seen = seen.lock().unwrap();
        assert!(seen[0].will_wake(&seen[1]) && !seen[1].will_wake(&seen[2]));
        seen[1].wake_by_ref();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
    }
}
