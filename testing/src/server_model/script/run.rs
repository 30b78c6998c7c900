//! One run of a script: what it has of the server.

use crate::server_model::reply::Reply;
use crate::server_model::turn::Turn;

/// The longest value in bytes that scripts return.
pub(super) const MAX_VALUE: usize = 4_200;

/// What a script answers; `Err` where it was ended by an error.
pub(super) type Answer = Result<Reply, Reply>;

pub(super) struct Run<'a, 'b> {
    pub(super) turn: &'a mut Turn<'b>,
    /// All that it was called with.
    pub(super) keys: &'a [Vec<u8>],
    pub(super) source: &'a str,
    pub(super) digest: &'a str,
    /// From then on it is not stopped halfway, as far as that can be helped.
    pub(super) has_written: bool,
}

/// A script, with its keys and arguments as parameters.
pub(super) type Body = fn(&mut Run<'_, '_>, &[Vec<u8>], &[Vec<u8>]) -> Answer;

/// What `GET` finds.
pub(super) enum Held {
    Nothing,
    Value(Vec<u8>),
    /// What is no string.
    Other,
}

/// An argument of a script, or nothing where it was not given.
pub(super) fn argument(args: &[Vec<u8>], place: usize) -> &[u8] {
    args.get(place - 1).map(Vec::as_slice).unwrap_or_default()
}
