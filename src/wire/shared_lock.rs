//! The auxiliary keys of a lock that readers share.

use super::auxiliary_key::{auxiliary_key, is_reserved, main_key};
use super::keys::Key;
use super::value::Value;

/// The auxiliary keys of a lock with readers. See `scripts/acquire_shared.lua`.
#[derive(Debug)]
pub(crate) struct SharedKeys {
    pub(super) readers: Key,
    pub(super) intent: Key,
    pub(super) waiting: Key,
}

/// How a client uses a lock that has readers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sharing<'a> {
    pub(crate) keys: &'a SharedKeys,
    /// True for a reader, false for a writer.
    pub(crate) is_reader: bool,
    /// The [reservation](SharedKeys::reservation) of an acquire that waits.
    pub(crate) reservation: Option<&'a Value>,
    /// Whether the attempt was refused.
    pub(crate) is_refused: bool,
}

impl SharedKeys {
    /// Returns `None` if `lock` cannot have auxiliary keys.
    pub(crate) fn for_key(lock: &[u8]) -> Option<Self> {
        let key = |kind| auxiliary_key(lock, kind);
        let (readers, intent, waiting) = (key("readers")?, key("writer")?, key("waiting")?);
        Some(Self { readers, intent, waiting })
    }

    /// Returns the key and the content of a reservation: the intent of a waiting writer, or the request of a waiting
    /// reader. `ms` is the TTL of the writer, or for how long the lock is left to the reader after a write. `owner` is a
    /// fresh value that identifies the acquire.
    pub(crate) fn reservation(&self, is_reader: bool, ms: u64, owner: &Value) -> (Key, Value) {
        let key = if is_reader { &self.waiting } else { &self.intent };
        (key.clone(), Value::of(format!("{ms} {}", owner.as_str()).as_bytes()))
    }

    pub(super) fn all(&self) -> [&Key; 3] {
        [&self.readers, &self.intent, &self.waiting]
    }
}

/// Returns the key of the lock for which readers wait if `key` changes: `key`, or the lock key if `key` has a writer's
/// intent.
pub(crate) fn awaited_key(key: &[u8]) -> &[u8] {
    let lock = if is_reserved(key) { main_key(key) } else { return key };
    let intent = auxiliary_key(lock, "writer");
    if intent.is_some_and(|intent| *intent == *key) { lock } else { key }
}
