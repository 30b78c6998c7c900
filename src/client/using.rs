//! Work under a lock: acquired before, released after, stopped at loss.

use super::acquire::Acquire;
use crate::error::{AcquireError, ReleaseError};
use crate::lease::{Lease, LeaseRef, ReleaseOutcome};
use crate::protocol::Loss;
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use thiserror::Error;

/// Why work under a lock did not go as planned. If the work was finished, its [output](Self::output)
/// is in it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum UsingError<T> {
    /// The lock was not acquired, and the work not begun.
    #[error(transparent)]
    NotAcquired(#[from] AcquireError),
    /// The lease was lost while the work was under way; its future was dropped where it stood.
    #[error("the lease was lost during the work: {reason}")]
    Lost {
        /// How the lease ended.
        #[source]
        reason: Loss,
    },
    /// The work was finished, but the lock was not held to its end: others may have worked at the
    /// same time.
    #[error("the work was finished after the lease had ended ({})", told(found))]
    Overrun {
        /// What the work returned.
        output: T,
        /// What the release found; an error if too few nodes said so.
        found: Result<ReleaseOutcome, ReleaseError>,
    },
}

/// Why work that can fail, under a lock, came to nothing.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TryUsingError<T, E> {
    /// The work was finished, and failed. The lock was released all the same.
    #[error("the work failed: {error}")]
    Work {
        /// What the work returned.
        #[source]
        error: E,
        /// What went wrong with the lock as well, if anything did.
        lock: Option<UsingError<()>>,
    },
    /// The work did not fail, but the lock did. If the work was finished, its output is in it.
    #[error(transparent)]
    Lock(#[from] UsingError<T>),
}

impl<T> UsingError<T> {
    /// What the work returned, if it was finished.
    pub fn output(&self) -> Option<&T> {
        match self {
            Self::Overrun { output, .. } => Some(output),
            Self::NotAcquired(_) | Self::Lost { .. } => None,
        }
    }

    /// What the work returned, if it was finished, and the error without it.
    pub fn into_parts(self) -> (Option<T>, UsingError<()>) {
        let mut returned = None;
        let error = self.map_output(|output| returned = Some(output));
        (returned, error)
    }

    /// The same error with another output.
    pub fn map_output<U>(self, change: impl FnOnce(T) -> U) -> UsingError<U> {
        match self {
            Self::NotAcquired(error) => UsingError::NotAcquired(error),
            Self::Lost { reason } => UsingError::Lost { reason },
            Self::Overrun { output, found } => {
                UsingError::Overrun { output: change(output), found }
            }
        }
    }
}

/// What fallible work has come to, with what became of its lock.
pub(crate) fn sorted<T, E>(
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
    /// Acquires the lock, does `work` under it, and releases it. The lease is renewed until the work
    /// ends; **work that hangs keeps the lock**, so set a bound with
    /// [`auto_extend`](Self::auto_extend). At loss the work's future is dropped where it stands; with
    /// [`stop_before`](Self::stop_before) it is told first.
    ///
    /// For work that returns a `Result` see [`try_using`](Self::try_using).
    ///
    /// Waits at most one [node timeout](crate::Builder::node_timeout) for the release, and returns `Ok` for work that
    /// ended under a valid lease also if too few nodes confirmed the release: it continues in the background. That is
    /// logged at warn, and reported as [`ReleaseResult::NoQuorum`](crate::ReleaseResult::NoQuorum) to the
    /// [observer](crate::Builder::observer). [`close`](crate::Redlock::close) waits for such releases.
    ///
    /// # Errors
    /// See [`UsingError`]; the output of work that was finished is never thrown away.
    ///
    /// # Cancel safety
    /// If the future is dropped, so is the work, and the lock is released in the background.
    ///
    /// # Example
    ///
    /// ```
    /// # #[cfg(feature = "test-util")]
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let nodes = quorlock::test_util::Nodes::start(3);
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
    /// # #[cfg(not(feature = "test-util"))]
    /// # fn main() {}
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

    /// The same as [`using`](Self::using) for a closure that returns a future of its own, with a view
    /// of the lease: for generic code, and where an async closure's future is not `Send` enough.
    ///
    /// # Errors
    /// See [`UsingError`]; the output of work that was finished is never thrown away.
    ///
    /// # Cancel safety
    /// If the future is dropped, so is the work, and the lock is released in the background.
    pub async fn using_fut<F, Fut>(self, work: F) -> Result<Fut::Output, UsingError<Fut::Output>>
    where
        F: FnOnce(LeaseRef) -> Fut,
        Fut: Future,
    {
        let lease = self.renewed().await?;
        let done = race(work(lease.view()), &lease).await;
        finish(done, lease).await
    }

    /// The same as [`using`](Self::using) for work that can fail: its error is kept apart from those
    /// of the lock, which is released in any case.
    ///
    /// # Errors
    /// See [`TryUsingError`]; what the work returned is never thrown away.
    ///
    /// # Cancel safety
    /// If the future is dropped, so is the work, and the lock is released in the background.
    ///
    /// # Example
    ///
    /// ```
    /// # #[cfg(feature = "test-util")]
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let nodes = quorlock::test_util::Nodes::start(3);
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
    /// # #[cfg(not(feature = "test-util"))]
    /// # fn main() {}
    /// ```
    pub async fn try_using<T, E, F>(self, work: F) -> Result<T, TryUsingError<T, E>>
    where
        F: AsyncFnOnce(&Lease) -> Result<T, E>,
    {
        sorted(self.using(work).await)
    }

    /// The same as [`try_using`](Self::try_using) for a closure that returns a future of its own; see
    /// [`using_fut`](Self::using_fut).
    ///
    /// # Errors
    /// See [`TryUsingError`]; what the work returned is never thrown away.
    ///
    /// # Cancel safety
    /// If the future is dropped, so is the work, and the lock is released in the background.
    pub async fn try_using_fut<T, E, F, Fut>(self, work: F) -> Result<T, TryUsingError<T, E>>
    where
        F: FnOnce(LeaseRef) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        sorted(self.using_fut(work).await)
    }
}

/// Does the work, unless the lease is lost before. What is not finished by then is dropped.
async fn race<T>(working: impl Future<Output = T>, lease: &Lease) -> Result<T, Loss> {
    let mut working = pin!(working);
    let mut lost = pin!(lease.lost());
    poll_fn(|cx| match lost.as_mut().poll(cx) {
        Poll::Ready(reason) => Poll::Ready(Err(reason)),
        Poll::Pending => working.as_mut().poll(cx).map(Ok),
    })
    .await
}

async fn finish<T>(done: Result<T, Loss>, lease: Lease) -> Result<T, UsingError<T>> {
    let output = done.map_err(|reason| UsingError::Lost { reason })?;
    let was_valid = lease.is_valid();
    finished(output, was_valid, lease.release().await)
}

/// Result of finished work, from the lease's validity at its end and from the release. A release that is not confirmed
/// continues in the background, and does not turn valid work into an error.
pub(crate) fn finished<T>(
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

fn told(found: &Result<ReleaseOutcome, ReleaseError>) -> &dyn fmt::Display {
    match found {
        Ok(outcome) => outcome,
        Err(error) => error,
    }
}
