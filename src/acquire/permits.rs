//! How many attempts are under way at once.

use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The most attempts under way at once in one client (I12). More callers than that wait for a permit,
/// within their wait bound.
const MAX_ATTEMPTS: usize = 1 << 14;

/// From so many attempts under way on, nodes that are slow to answer say more of this process than of
/// themselves. (Where nodes hang, attempts end at once, and few are under way.)
const CROWD: usize = 1 << 10;

/// The permits of one client.
pub(super) struct Permits(Arc<Semaphore>);

impl Default for Permits {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_ATTEMPTS)))
    }
}

impl Permits {
    /// One, if there is one now.
    pub(super) fn try_take(&self) -> Option<OwnedSemaphorePermit> {
        self.0.clone().try_acquire_owned().ok()
    }

    /// One, as soon as there is one.
    pub(super) async fn take(&self) -> Option<OwnedSemaphorePermit> {
        self.0.clone().acquire_owned().await.ok()
    }

    /// How many attempts are under way.
    pub(super) fn taken(&self) -> usize {
        MAX_ATTEMPTS - self.0.available_permits()
    }

    /// True if so many are that answers can wait here, and be read late.
    pub(super) fn are_crowded(&self) -> bool {
        self.taken() >= CROWD
    }
}
