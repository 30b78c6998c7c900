//! Who is to be told when a key changes.

use crate::server_model::output::ConnId;
use std::collections::{BTreeMap, BTreeSet};

/// Who has read which key since it last changed. What was told once is forgotten, for all of them.
#[derive(Debug, Default)]
pub(crate) struct Tracking(BTreeMap<Vec<u8>, BTreeSet<ConnId>>);

/// How a connection wants to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mode {
    /// Only of keys that it reads right after `CLIENT CACHING YES`.
    pub(crate) opt_in: bool,
    /// Not of what it changes itself.
    pub(crate) no_loop: bool,
}

impl Tracking {
    pub(crate) fn remember(&mut self, key: &[u8], reader: ConnId) {
        self.0.entry(key.to_vec()).or_default().insert(reader);
    }

    /// Takes who has read the key.
    pub(crate) fn take(&mut self, key: &[u8]) -> BTreeSet<ConnId> {
        self.0.remove(key).unwrap_or_default()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
