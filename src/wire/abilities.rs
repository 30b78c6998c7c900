//! What can be had on a connection, beyond what every server has.

use super::facts::Facts;
use super::requests::Requests;

/// What a server, and our user there, can do beyond what all do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Abilities {
    /// It tells when keys that we asked about change.
    pub(crate) tracks: bool,
    /// It has a command that deletes a key if a value stands there: no script is needed for that.
    pub(crate) deletes: Option<NativeDelete>,
}

/// The command that deletes a key if a value stands there. It answers 1 if it did, and 0 if not, whatever
/// stands there instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NativeDelete {
    /// `DELIFEQ key value`, of Valkey 9.0 and later.
    DelIfEq,
    /// `DELEX key IFEQ value`, of Redis 8.4 and later.
    DelEx,
}

impl NativeDelete {
    /// Which one the server has, as far as it says who it is.
    pub(super) fn of(facts: &Facts) -> Option<Self> {
        match (facts.valkey_level(), facts.level()) {
            (Some(valkey), _) => (valkey >= (9, 0)).then_some(Self::DelIfEq),
            (None, redis) => (redis? >= (8, 4)).then_some(Self::DelEx),
        }
    }

    /// Adds it to `requests`.
    pub(super) fn write(self, key: &[u8], value: &[u8], requests: &mut Requests) {
        match self {
            Self::DelIfEq => requests.command("DELIFEQ", 2).arg(key).arg(value).end(),
            Self::DelEx => requests.command("DELEX", 3).arg(key).arg("IFEQ").arg(value).end(),
        }
    }
}
