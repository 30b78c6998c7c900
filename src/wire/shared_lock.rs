//! The auxiliary keys of a lock that readers share.

use super::auxiliary_key::auxiliary_key;
use super::keys::Key;

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
    /// Whether the acquire waits if it is refused.
    pub(crate) waits: bool,
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

    pub(super) fn all(&self) -> [&Key; 3] {
        [&self.readers, &self.intent, &self.waiting]
    }
}
