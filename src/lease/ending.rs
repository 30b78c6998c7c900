//! Futures that resolve when a lease ends or is about to end.

use super::state::LeaseState;
use crate::protocol::{Loss, Tenure};
use crate::sync::safely;
use std::fmt;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// How a [`Lease`](crate::Lease) ended. Returned by [`LeaseRef::ended`](crate::LeaseRef::ended).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ended {
    /// The lease was lost before its holder released it. Contains the reason.
    Lost(Loss),
    /// The last guard of the lease was released or dropped.
    Released,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(loss) => write!(f, "lost: {loss}"),
            Self::Released => f.write_str("released"),
        }
    }
}

impl LeaseState {
    /// Resolves when the lease has ended, at the latest when its validity ends.
    pub(crate) async fn ended(self: &Arc<Self>) -> Ended {
        loop {
            let mut news = pin!(self.news());
            // Register before the check, so that no notification between the two is missed.
            news.as_mut().enable();
            match self.tenure() {
                Tenure::Lost(loss) => return Ended::Lost(loss),
                Tenure::Released => return Ended::Released,
                Tenure::Held { .. } => self.watch(),
            }
            // Threads that also serve other leases call the waker, so its panics are caught.
            safely(news).await;
        }
    }

    pub(crate) async fn lost(self: &Arc<Self>) -> Loss {
        match self.ended().await {
            Ended::Lost(loss) => loss,
            Ended::Released => pending().await,
        }
    }

    /// Resolves with the remaining validity once it is at most `margin`.
    pub(crate) async fn endangered(self: &Arc<Self>, margin: Duration) -> Duration {
        loop {
            let mut news = pin!(self.news());
            news.as_mut().enable();
            let now = self.now();
            let left = self.validity(now);
            if left <= margin {
                return left;
            }
            self.watch();
            // A renewal does not move this time: the loop then computes a new one.
            let at = now.after(left.saturating_sub(margin));
            let either = pin!(async {
                tokio::select! {
                    biased;
                    () = news => {}
                    () = self.clock().sleep_until(at) => {}
                }
            });
            safely(either).await;
        }
    }
}
