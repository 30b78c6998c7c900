//! Optional server features that the client can use on a connection.

use super::facts::Facts;
use super::requests::Requests;

/// The optional server features that are available on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Capabilities {
    /// Whether client tracking is enabled. If so, the server pushes an invalidation when a watched key changes.
    pub(crate) tracks: bool,
    /// The native command that deletes a key only if the key holds a given value, in place of the release script.
    /// `None` if the server has no such command.
    pub(crate) deletes: Option<NativeDelete>,
    /// Whether the server has `MSETEX` (Valkey 9.1, Redis 8.4), which replaces the acquire script for several keys.
    pub(crate) sets_all: bool,
}

/// An optional server command that replaces a script. If the server refuses the command, the client uses the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NativeCommand {
    /// The command `MSETEX`.
    SetAll,
    Delete,
}

/// A command that deletes a key if the key holds a given value. The server replies 1 if it has deleted the key, and 0
/// if the key is missing or holds another value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NativeDelete {
    /// `DELIFEQ key value`, of Valkey 9.0 and later.
    DelIfEq,
    /// `DELEX key IFEQ value`, of Redis 8.4 and later.
    DelEx,
}

impl Capabilities {
    /// Determines the available features. The native commands follow from the version that the server reports. `tracks`
    /// is true if client tracking is enabled.
    pub(super) fn of(facts: &Facts, tracks: bool) -> Self {
        Self { tracks, deletes: NativeDelete::of(facts), sets_all: sets_all(facts) }
    }

    pub(crate) fn handle_refused(&mut self, command: NativeCommand) {
        match command {
            NativeCommand::SetAll => self.sets_all = false,
            NativeCommand::Delete => self.deletes = None,
        }
    }
}

fn sets_all(facts: &Facts) -> bool {
    match (facts.valkey_version(), facts.redis_version()) {
        (Some(valkey), _) => valkey >= (9, 1),
        (None, redis) => redis.is_some_and(|redis| redis >= (8, 4)),
    }
}

impl NativeDelete {
    fn of(facts: &Facts) -> Option<Self> {
        match (facts.valkey_version(), facts.redis_version()) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use redis::Value;

    #[test]
    fn native_commands_follow_the_version() {
        use NativeDelete::{DelEx, DelIfEq};
        for (info, deletes, sets_all) in [
            ("redis_version:7.0.15", None, false),
            ("redis_version:8.2.9", None, false),
            ("redis_version:8.4.0", Some(DelEx), true),
            ("redis_version:10.0.0", Some(DelEx), true),
            ("redis_version:7.2.4\nvalkey_version:8.1.0", None, false),
            ("redis_version:7.2.4\nvalkey_version:9.0.3", Some(DelIfEq), false),
            ("redis_version:7.2.4\nvalkey_version:9.1.0", Some(DelIfEq), true),
            ("", None, false),
        ] {
            let mut facts = Facts::default();
            facts.add_info(&Value::BulkString(info.as_bytes().to_vec()));
            let mut can = Capabilities::of(&facts, true);
            assert_eq!(can, Capabilities { tracks: true, deletes, sets_all }, "{info}");
            can.handle_refused(NativeCommand::SetAll);
            assert_eq!((can.deletes, can.sets_all), (deletes, false));
            can.handle_refused(NativeCommand::Delete);
            assert_eq!(can, Capabilities { tracks: true, ..Capabilities::default() });
        }
    }
}
