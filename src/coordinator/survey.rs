//! A status request, a request for a job's counter, or a forced release in progress.

use super::claim::Claim;
use super::slots::RoundId;
use crate::wire::Keys;
use std::sync::Arc;

pub(super) struct Survey {
    pub(super) round: RoundId,
    /// The [`Claim`]s of the current round. Once the round is over, their unsent commands are cancelled.
    pub(super) claims: Vec<Arc<Claim>>,
    /// The keys to delete in the second round of a forced release. `None` for the second round itself, and for
    /// other requests.
    pub(super) deletes: Option<Keys>,
}
