//! The error for a stale token.

use quorlock::FencingToken;
use std::fmt;

/// The resource has seen a higher token: the lease of `token` has ended, and another holder has the lock. The resource
/// was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stale {
    /// The rejected token.
    pub(crate) token: FencingToken,
    /// The highest token that the resource has seen.
    pub(crate) highest: FencingToken,
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "token {} is stale: {} has been used", self.token, self.highest)
    }
}

impl std::error::Error for Stale {}
