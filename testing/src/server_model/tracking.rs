//! Client tracking: which connections receive an invalidation when a key changes.

use crate::server_model::output::ConnId;
use std::collections::{BTreeMap, BTreeSet};

/// The connections that have read each key since its last change. An invalidation is sent once.
#[derive(Debug, Default)]
pub(crate) struct Tracking(BTreeMap<Vec<u8>, BTreeSet<ConnId>>);

/// Options of `CLIENT TRACKING`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mode {
    /// `OPTIN`: only keys that are read right after `CLIENT CACHING YES` are tracked.
    pub(crate) opt_in: bool,
    /// `NOLOOP`: a connection's own changes are not pushed to it.
    pub(crate) no_loop: bool,
}

impl Tracking {
    pub(crate) fn remember(&mut self, key: &[u8], reader: ConnId) {
        self.0.entry(key.to_vec()).or_default().insert(reader);
    }

    /// Removes and returns the readers of the key.
    pub(crate) fn take(&mut self, key: &[u8]) -> BTreeSet<ConnId> {
        self.0.remove(key).unwrap_or_default()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
