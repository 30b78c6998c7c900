//! State of one script run.

use crate::server_model::reply::Reply;
use crate::server_model::turn::Turn;

/// Length in bytes of the longest value that scripts return.
pub(super) const MAX_VALUE: usize = 4_200;

/// Reply of a script. `Err` contains the error that ended the script.
pub(super) type Answer = Result<Reply, Reply>;

pub(super) struct Run<'a, 'b> {
    pub(super) turn: &'a mut Turn<'b>,
    /// All keys with which the script was called.
    pub(super) keys: &'a [Vec<u8>],
    pub(super) source: &'a str,
    pub(super) digest: &'a str,
    /// Set by the script's first write. The server then refuses a command only if the user lacks the
    /// permission for it.
    pub(super) has_written: bool,
}

/// Implementation of a script. The second parameter contains the keys, the third the arguments.
pub(super) type Body = fn(&mut Run<'_, '_>, &[Vec<u8>], &[Vec<u8>]) -> Answer;

pub(super) enum Held {
    Missing,
    Value(Vec<u8>),
    /// The key is not a string.
    Other,
}

/// Returns an argument of a script, or an empty slice if the argument is missing. Places are counted
/// from 1, as in Lua.
pub(super) fn argument(args: &[Vec<u8>], place: usize) -> &[u8] {
    args.get(place - 1).map(Vec::as_slice).unwrap_or_default()
}
