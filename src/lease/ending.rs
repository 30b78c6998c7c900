//! Futures that resolve when a lease ends or is about to end.

use super::state::LeaseState;
use crate::protocol::{LeaseStatus, Loss};
use crate::sync::with_safe_waker;
use std::fmt;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// The way in which a [`Lease`](crate::Lease) ended. Returned by
/// [`LeaseRef::ended`](crate::LeaseRef::ended).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ended {
    /// The lease was lost before its holder released it. The field contains the reason.
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
    /// Waits until the lease has ended, at the latest when its validity ends.
    pub(crate) async fn ended(self: &Arc<Self>) -> Ended {
        loop {
            let mut news = pin!(self.end_notified());
            // Register before the status is checked, so that an end of the lease after the check is
            // not missed.
            news.as_mut().enable();
            match self.status() {
                LeaseStatus::Lost(loss) => return Ended::Lost(loss),
                LeaseStatus::Released => return Ended::Released,
                LeaseStatus::Held { .. } => self.watch(),
            }
            // Panics of the waker are caught, because it is called on threads that also serve other
            // leases.
            with_safe_waker(news).await;
        }
    }

    pub(crate) async fn lost(self: &Arc<Self>) -> Loss {
        match self.ended().await {
            Ended::Lost(loss) => loss,
            Ended::Released => pending().await,
        }
    }

    pub(crate) async fn endangered(self: &Arc<Self>, margin: Duration) -> Duration {
        loop {
            let mut news = pin!(self.end_notified());
            news.as_mut().enable();
            let now = self.now();
            let left = self.validity(now);
            if left <= margin {
                return left;
            }
            self.watch();
            // A renewal does not move `at`. The alarm then fires early, and the loop computes a new
            // time.
            let at = now.after(left.saturating_sub(margin));
            let either = pin!(async {
                tokio::select! {
                    biased;
                    () = news => {}
                    () = self.clock().sleep_until(at) => {}
                }
            });
            with_safe_waker(either).await;
        }
    }
}
