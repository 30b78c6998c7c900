//! Client tracking: which connections receive an invalidation when a key changes.

use crate::server_model::output::ConnId;
use std::collections::{BTreeMap, BTreeSet};

/// Maps each key to the connections that have read the key since its last change. When the key
/// changes, each of these connections receives one invalidation.
#[derive(Debug, Default)]
pub(crate) struct Tracking(BTreeMap<Vec<u8>, BTreeSet<ConnId>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mode {
    /// `OPTIN`: only reads by the command after `CLIENT CACHING YES` are tracked.
    pub(crate) opt_in: bool,
    /// `NOLOOP`: a connection receives no invalidations for its own changes.
    pub(crate) no_loop: bool,
}

impl Tracking {
    pub(crate) fn remember(&mut self, key: &[u8], reader: ConnId) {
        self.0.entry(key.to_vec()).or_default().insert(reader);
    }

    pub(crate) fn take(&mut self, key: &[u8]) -> BTreeSet<ConnId> {
        self.0.remove(key).unwrap_or_default()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
