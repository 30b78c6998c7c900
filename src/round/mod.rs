//! One round: every node is asked, its votes are counted, and whoever was asked is told what to clean up.
//!
//! Here live the tally of one round, what it reports, the guard that releases, and what is only asked: by no
//! round, of one node. No second attempt, no waiting for others, no lease: a round knows nothing of what comes after it.

mod asked;
mod cleanup;
mod first_vote;
mod heard;
mod tally;

pub(crate) use asked::Asked;
pub(crate) use cleanup::{ReleaseGuard, ReleaseListener};
pub(crate) use first_vote::FirstVote;
pub(crate) use tally::Tally;
