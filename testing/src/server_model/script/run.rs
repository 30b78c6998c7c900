//! State of one script run.

use crate::server_model::reply::Reply;
use crate::server_model::turn::Turn;

/// The longest value in bytes that scripts return.
pub(super) const MAX_VALUE: usize = 4_200;

/// Reply of a script. `Err` if an error ended it.
pub(super) type Answer = Result<Reply, Reply>;

pub(super) struct Run<'a, 'b> {
    pub(super) turn: &'a mut Turn<'b>,
    /// All keys with which the script was called.
    pub(super) keys: &'a [Vec<u8>],
    pub(super) source: &'a str,
    pub(super) digest: &'a str,
    /// From the first write on, the server's refusals no longer stop the script.
    pub(super) has_written: bool,
}

/// A script, with keys and arguments as parameters.
pub(super) type Body = fn(&mut Run<'_, '_>, &[Vec<u8>], &[Vec<u8>]) -> Answer;

/// Result of a `GET`.
pub(super) enum Held {
    Missing,
    Value(Vec<u8>),
    /// A key of another type than a string.
    Other,
}

/// An argument of a script, counted from 1. Empty if it is missing.
pub(super) fn argument(args: &[Vec<u8>], place: usize) -> &[u8] {
    args.get(place - 1).map(Vec::as_slice).unwrap_or_default()
}
