//! Work under a lock: acquired before, released after, stopped at loss.

use crate::acquire::Acquire;
use crate::error::{AcquireError, ReleaseError};
use crate::lease::Lease;
use crate::lease_ref::LeaseRef;
use crate::protocol::Loss;
use crate::release::ReleaseOutcome;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use thiserror::Error;

/// Why work under a lock did not go as planned. If the work was finished, its output is in it.
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
        reason: Loss,
    },
    /// The work was finished, but the lock was not held to its end: others may have worked at the
    /// same time.
    #[error("the work was finished after the lease had ended")]
    Overrun {
        /// What the work returned.
        output: T,
        /// What the release found.
        found: ReleaseOutcome,
    },
    /// The work was finished while the lease was valid, but too few nodes confirmed the release. It
    /// is delivered when they answer, and at the latest the lock expires.
    #[error("the work was finished, but {error}")]
    Unreleased {
        /// What the work returned.
        output: T,
        /// What the nodes said.
        error: ReleaseError,
    },
}

impl Acquire {
    /// Acquires the lock, does `work` under it, and releases it. At loss the work's future is dropped
    /// where it stands; combine it with [`auto_extend`](Self::auto_extend) for work of unknown length.
    ///
    /// # Errors
    /// See [`UsingError`]; the output of work that was finished is never thrown away.
    ///
    /// # Cancel safety
    /// If the future is dropped, so is the work, and the lock is released in the background.
    ///
    /// # Example
    ///
    /// ```no_run
    /// # async fn example(redlock: quorlock::Redlock) -> Result<(), Box<dyn std::error::Error>> {
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
        let lease = self.await?;
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
        let lease = self.await?;
        let done = race(work(lease.view()), &lease).await;
        finish(done, lease).await
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
    let is_valid = lease.is_valid();
    match lease.release().await {
        // While other guards hold it on, it is not released.
        Ok(ReleaseOutcome::Released | ReleaseOutcome::StillHeld { .. }) if is_valid => Ok(output),
        Ok(found) => Err(UsingError::Overrun { output, found }),
        Err(error) => Err(UsingError::Unreleased { output, error }),
    }
}
