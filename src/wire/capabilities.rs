//! Optional capabilities of a connection.

use super::facts::Facts;
use super::requests::Requests;

/// Optional features of a server that this client is permitted to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Capabilities {
    /// Client tracking: the server pushes an invalidation when a watched key changes.
    pub(crate) tracks: bool,
    /// A native compare-and-delete command, which replaces the release script.
    pub(crate) deletes: Option<NativeDelete>,
}

/// Command that deletes a key if it holds a given value. Replies 1 if it did and 0 otherwise, whether the key is
/// missing or holds another value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NativeDelete {
    /// `DELIFEQ key value`, of Valkey 9.0 and later.
    DelIfEq,
    /// `DELEX key IFEQ value`, of Redis 8.4 and later.
    DelEx,
}

impl NativeDelete {
    /// The command that the server supports, by the version that it reports.
    pub(super) fn of(facts: &Facts) -> Option<Self> {
        match (facts.valkey_level(), facts.level()) {
            (Some(valkey), _) => (valkey >= (9, 0)).then_some(Self::DelIfEq),
            (None, redis) => (redis? >= (8, 4)).then_some(Self::DelEx),
        }
    }

    pub(super) fn write(self, key: &[u8], value: &[u8], requests: &mut Requests) {
        match self {
            Self::DelIfEq => requests.command("DELIFEQ", 2).arg(key).arg(value).end(),
            Self::DelEx => requests.command("DELEX", 3).arg(key).arg("IFEQ").arg(value).end(),
        }
    }
}
