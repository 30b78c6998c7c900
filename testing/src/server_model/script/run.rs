//! State of one script run.

use crate::server_model::command_context::CommandContext;
use crate::server_model::reply::Reply;

/// Maximum length of a lock value in bytes, as in the Lua scripts. Longer values are not returned.
pub(super) const MAX_VALUE: usize = 4_200;

/// Reply of a script. `Err` is the error reply that ended the script.
pub(super) type Answer = Result<Reply, Reply>;

pub(super) struct Run<'a, 'b> {
    pub(super) context: &'a mut CommandContext<'b>,
    pub(super) keys: &'a [Vec<u8>],
    pub(super) source: &'a str,
    pub(super) digest: &'a str,
    /// True after the script's first write. From then on, the server refuses a command only if the
    /// user lacks permission for it.
    pub(super) has_written: bool,
}

/// Implementation of a script, called with the keys and the arguments.
pub(super) type Body = fn(&mut Run<'_, '_>, &[Vec<u8>], &[Vec<u8>]) -> Answer;

pub(super) enum KeyContent {
    Missing,
    Value(Vec<u8>),
    /// The key is not a string.
    Other,
}

/// Returns an argument of a script, or an empty slice if the argument is missing. `place` starts at
/// 1, as in Lua.
pub(super) fn argument(args: &[Vec<u8>], place: usize) -> &[u8] {
    args.get(place - 1).map(Vec::as_slice).unwrap_or_default()
}
