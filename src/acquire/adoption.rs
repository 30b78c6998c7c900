//! Adoption: an acquire that replaces the value of a lock that is held.

use crate::node::Claim;
use crate::wire::Value;
use std::sync::Arc;

/// The value to replace, and this client's lease that has it, if any.
pub(crate) struct Adoption {
    pub(crate) value: Arc<Value>,
    pub(crate) previous: Option<Arc<dyn PreviousLease>>,
}

/// A lease of this client whose value is adopted.
pub(crate) trait PreviousLease: Send + Sync {
    /// The adoption has replaced its value on a node, or may have.
    fn handle_taken_over(&self);
}

/// Ends the previous lease if the adoption fails or is dropped, before its first release is sent: from then on another
/// client can acquire the lock.
pub(crate) struct PreviousGuard {
    previous: Option<Arc<dyn PreviousLease>>,
    claim: Arc<Claim>,
}

impl PreviousGuard {
    pub(super) fn new(previous: Arc<dyn PreviousLease>, claim: Arc<Claim>) -> Self {
        Self { previous: Some(previous), claim }
    }

    /// The adoption succeeded: the registry ends the previous lease when it adds the new one.
    pub(crate) fn disarm(mut self) {
        self.previous = None;
    }
}

impl Drop for PreviousGuard {
    fn drop(&mut self) {
        let Some(previous) = self.previous.take() else { return };
        // No command is written from now on, so the answer cannot change.
        self.claim.withdraw();
        if self.claim.may_be_set() {
            previous.handle_taken_over();
        }
    }
}
