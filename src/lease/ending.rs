//! How the end of a lease is waited for.

use super::state::LeaseState;
use crate::protocol::{Loss, Tenure};
use crate::sync::safely;
use crate::time::Wakeup;
use std::fmt;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// How a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ended {
    /// Before its holder released it.
    Lost(Loss),
    /// Its last guard was released or dropped.
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
    /// Resolves when the lease has ended, not later than its validity ends.
    pub(crate) async fn ended(self: &Arc<Self>) -> Ended {
        loop {
            let mut news = pin!(self.news());
            // What is told from now on is heard.
            news.as_mut().enable();
            match self.tenure() {
                Tenure::Lost(loss) => return Ended::Lost(loss),
                Tenure::Released => return Ended::Released,
                Tenure::Held { .. } => self.watch(),
            }
            // Its waker is called on threads that serve others, too.
            safely(news).await;
        }
    }

    /// Resolves when the lease is lost; never if it is released.
    pub(crate) async fn lost(self: &Arc<Self>) -> Loss {
        match self.ended().await {
            Ended::Lost(loss) => loss,
            Ended::Released => pending().await,
        }
    }

    /// Resolves when no more than `margin` of the validity is left; with what is left.
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
            // If it is renewed by then, that is seen then.
            let wakeup = pin!(Wakeup::at(self.clock(), now.after(left.saturating_sub(margin))));
            let either = pin!(async {
                tokio::select! {
                    biased;
                    () = news => {}
                    () = wakeup => {}
                }
            });
            safely(either).await;
        }
    }
}
