//! The error that a resource returns for a stale token.

use quorlock::FencingToken;
use std::fmt;

/// The error for a stale token: the resource has recorded a higher one. The lease of `token` has ended, and the lock
/// has had another holder since. The resource was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stale {
    /// The rejected token.
    pub(crate) token: FencingToken,
    /// The highest token that the resource has recorded.
    pub(crate) highest: FencingToken,
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "token {} is stale: {} has been used", self.token, self.highest)
    }
}

impl std::error::Error for Stale {}
