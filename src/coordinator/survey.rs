//! A status request or a forced release under way.

use super::claim::Claim;
use super::slots::RoundId;
use crate::wire::Keys;
use std::sync::Arc;

pub(super) struct Survey {
    pub(super) round: RoundId,
    /// Claims whose unsent commands are cancelled once the round is over.
    pub(super) claims: Vec<Arc<Claim>>,
    /// For the first round of a forced release, the keys whose holders the second round deletes.
    pub(super) deletes: Option<Keys>,
}
