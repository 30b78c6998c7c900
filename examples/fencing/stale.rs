//! A write or a read that came too late.

use quorlock::FencingToken;
use std::fmt;

/// The resource has seen a higher token: the lease of `token` has ended, and another holder is at
/// work. Nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stale {
    /// The token that was shown.
    pub(crate) token: FencingToken,
    /// The highest that was seen before.
    pub(crate) highest: FencingToken,
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "token {} comes too late: {} was seen before", self.token, self.highest)
    }
}

impl std::error::Error for Stale {}
