//! Methods that run work while holding a lock. They acquire the lock before the work and release it afterwards. If the
//! lease is lost, they drop the work.

use super::acquire::Acquire;
use crate::error::{AcquireError, ReleaseError};
use crate::lease::{Lease, LeaseRef, ReleaseOutcome};
use crate::protocol::Loss;
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use thiserror::Error;

/// Error returned by [`Acquire::using`]: the lock was not acquired, or the lease ended before the work finished. If the
/// work finished, the error contains its output.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum UsingError<T> {
    /// The lock was not acquired, so the work was not started.
    #[error(transparent)]
    NotAcquired(#[from] AcquireError),
    /// The lease was lost while the work was running. The work did not finish: its future was dropped.
    #[error("the lease was lost during the work: {reason}")]
    Lost {
        /// Reason why the lease was lost.
        #[source]
        reason: Loss,
    },
    /// The work finished, but the lease had already ended. Other clients may have held the lock while the work was
    /// running.
    #[error("the work finished after the lease had ended ({})", as_display(found))]
    Overrun {
        /// Return value of the work.
        output: T,
        /// Result of the release, or an error if too few nodes confirmed the release.
        found: Result<ReleaseOutcome, ReleaseError>,
    },
}

/// Error returned by [`Acquire::try_using`]: the work failed, the lock was not acquired, or the lease ended before the
/// work finished.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TryUsingError<T, E> {
    /// The work finished and returned an error. The lock was released, just as when the work succeeds.
    #[error("the work failed: {error}")]
    Work {
        /// Error that the work returned.
        #[source]
        error: E,
        /// The lock's error, if the lease had also ended before the work returned its error. Otherwise `None`.
        lock: Option<UsingError<()>>,
    },
    /// The lock was not acquired, or the lease ended before the work finished. The work itself did not fail. If the
    /// work finished, the error contains its output.
    #[error(transparent)]
    Lock(#[from] UsingError<T>),
}

/// Separates errors of the work from errors of the lock under which the work ran.
pub(crate) fn split_errors<T, E>(
    done: Result<Result<T, E>, UsingError<Result<T, E>>>,
) -> Result<T, TryUsingError<T, E>> {
    let failed = |error, lock| Err(TryUsingError::Work { error, lock });
    let lock = match done {
        Ok(Ok(output)) => return Ok(output),
        Ok(Err(error)) => return failed(error, None),
        Err(UsingError::NotAcquired(error)) => UsingError::NotAcquired(error),
        Err(UsingError::Lost { reason }) => UsingError::Lost { reason },
        Err(UsingError::Overrun { output, found }) => match output {
            Ok(output) => UsingError::Overrun { output, found },
            Err(error) => return failed(error, Some(UsingError::Overrun { output: (), found })),
        },
    };
    Err(TryUsingError::Lock(lock))
}

impl Acquire {
    /// Acquires the lock, runs `work`, and releases the lock. The lease is renewed in the background until the work
    /// ends. **Work that never ends keeps the lock indefinitely**, so set a limit with
    /// [`auto_extend`](Self::auto_extend). If the lease is lost, the work's future is dropped. To warn the work before
    /// the lease expires, use [`stop_before`](Self::stop_before).
    ///
    /// For work that returns a `Result`, see [`try_using`](Self::try_using).
    ///
    /// After the work has ended, this method waits at most one [node timeout](crate::Builder::node_timeout) for the
    /// release, with the exceptions of [`Lease::release`]. If the lease was valid when the work ended but too few nodes
    /// confirm the release, the method returns `Ok`, and the release continues in the background. The client logs the
    /// unconfirmed release at level `warn`, and reports it to the [observer](crate::Builder::observer) as
    /// [`ReleaseResult::NoQuorum`](crate::event::ReleaseResult::NoQuorum). [`close`](crate::Redlock::close) waits for
    /// the release.
    ///
    /// # Errors
    /// See [`UsingError`]. If the work finished, the error contains its output.
    ///
    /// # Cancel safety
    /// If the future is dropped, the work is dropped too, and the lock is released in the background.
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let nodes = quorlock_test::Nodes::start(3);
    /// # let redlock = nodes.client().build()?;
    /// use std::time::Duration;
    ///
    /// let total = redlock
    ///     .acquire("orders/42")
    ///     .auto_extend(Duration::from_secs(600))
    ///     .using(async |lease| {
    ///         println!("ours for {:?}", lease.validity());
    ///         40 + 2
    ///     })
    ///     .await?;
    /// assert_eq!(total, 42);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn using<T, F>(self, work: F) -> Result<T, UsingError<T>>
    where
        F: AsyncFnOnce(&Lease) -> T,
    {
        let lease = self.renewed().await?;
        let done = {
            let working = work(&lease);
            race(working, &lease).await
        };
        finish(done, lease).await
    }

    /// Acquires the lock, runs the future that `work` returns, and releases the lock; see [`using`](Self::using).
    /// `work` is a closure that takes a view of the lease. Use this method in generic code, or if the future of an
    /// async closure does not satisfy a `Send` bound.
    ///
    /// # Errors
    /// See [`UsingError`]. If the work finished, the error contains its output.
    ///
    /// # Cancel safety
    /// If the future is dropped, the work is dropped too, and the lock is released in the background.
    pub async fn using_fut<F, Fut>(self, work: F) -> Result<Fut::Output, UsingError<Fut::Output>>
    where
        F: FnOnce(LeaseRef) -> Fut,
        Fut: Future,
    {
        let lease = self.renewed().await?;
        let done = race(work(lease.view()), &lease).await;
        finish(done, lease).await
    }

    /// Acquires the lock, runs `work`, which returns a `Result`, and releases the lock; see [`using`](Self::using).
    /// [`TryUsingError`] has separate variants for errors of the work and errors of the lock. The lock is released in
    /// both cases.
    ///
    /// # Errors
    /// See [`TryUsingError`]. If the work finished, the error contains its output or its error.
    ///
    /// # Cancel safety
    /// If the future is dropped, the work is dropped too, and the lock is released in the background.
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let nodes = quorlock_test::Nodes::start(3);
    /// # let redlock = nodes.client().build()?;
    /// use quorlock::TryUsingError;
    ///
    /// let work = async |_: &quorlock::Lease| "42".parse::<u32>();
    /// match redlock.acquire("orders/42").try_using(work).await {
    ///     Ok(number) => println!("{number}"),
    ///     Err(TryUsingError::Work { error, .. }) => println!("no number: {error}"),
    ///     Err(locking) => println!("not done, or not done alone: {locking}"),
    /// }
    /// # redlock.close().await?;
    /// # assert_eq!(nodes.count("orders/42"), 0);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_using<T, E, F>(self, work: F) -> Result<T, TryUsingError<T, E>>
    where
        F: AsyncFnOnce(&Lease) -> Result<T, E>,
    {
        split_errors(self.using(work).await)
    }

    /// Acquires the lock, runs the fallible future that `work` returns, and releases the lock; see
    /// [`try_using`](Self::try_using) and [`using_fut`](Self::using_fut).
    ///
    /// # Errors
    /// See [`TryUsingError`]. If the work finished, the error contains its output or its error.
    ///
    /// # Cancel safety
    /// If the future is dropped, the work is dropped too, and the lock is released in the background.
    pub async fn try_using_fut<T, E, F, Fut>(self, work: F) -> Result<T, TryUsingError<T, E>>
    where
        F: FnOnce(LeaseRef) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        split_errors(self.using_fut(work).await)
    }
}

/// Polls `working` until it ends or the lease is lost.
pub(super) async fn race<T>(working: impl Future<Output = T>, lease: &LeaseRef) -> Result<T, Loss> {
    let mut working = pin!(working);
    let mut lost = pin!(lease.lost());
    poll_fn(|cx| match lost.as_mut().poll(cx) {
        Poll::Ready(reason) => Poll::Ready(Err(reason)),
        Poll::Pending => working.as_mut().poll(cx).map(Ok),
    })
    .await
}

pub(super) async fn finish<T>(done: Result<T, Loss>, lease: Lease) -> Result<T, UsingError<T>> {
    let output = done.map_err(|reason| UsingError::Lost { reason })?;
    let was_valid = lease.is_valid();
    work_result(output, was_valid, lease.release().await)
}

/// Returns the result of finished work. `was_valid` is true if the lease was valid when the work finished, and `found`
/// is the result of the release. If the lease was valid, an unconfirmed release is not an error and continues in the
/// background.
pub(crate) fn work_result<T>(
    output: T,
    was_valid: bool,
    found: Result<ReleaseOutcome, ReleaseError>,
) -> Result<T, UsingError<T>> {
    match found {
        found @ Ok(ReleaseOutcome::Expired | ReleaseOutcome::TakenOver) => {
            Err(UsingError::Overrun { output, found })
        }
        _ if was_valid => Ok(output),
        found => Err(UsingError::Overrun { output, found }),
    }
}

fn as_display(found: &Result<ReleaseOutcome, ReleaseError>) -> &dyn fmt::Display {
    match found {
        Ok(outcome) => outcome,
        Err(error) => error,
    }
}
