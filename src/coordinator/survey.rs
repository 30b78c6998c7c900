//! A status request or a forced release under way.

use super::claim::Claim;
use super::slots::RoundId;
use crate::wire::Keys;
use std::sync::Arc;

/// A status request or a forced release under way.
pub(super) struct Survey {
    /// The round under way.
    pub(super) round: RoundId,
    /// Commands of these claims are not sent any more once the round is over.
    pub(super) claims: Vec<Arc<Claim>>,
    /// The keys whose holders are deleted once they are known.
    pub(super) deletes: Option<Keys>,
}
