//! Script cache of a server.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Sources of the loaded scripts, by their SHA-1 digest in hexadecimal.
#[derive(Debug, Default)]
pub(crate) struct Scripts(BTreeMap<String, Arc<[u8]>>);

impl Scripts {
    /// Returns the digest of a loaded script. Each connection loads the same scripts, and comparing sources is faster
    /// than hashing.
    pub(super) fn digest(&self, source: &[u8]) -> Option<&str> {
        let mut scripts = self.0.iter();
        scripts.find(|(_, known)| known[..] == *source).map(|(digest, _)| &**digest)
    }

    pub(super) fn add(&mut self, digest: &str, source: &[u8]) {
        self.0.insert(digest.to_owned(), source.into());
    }

    pub(super) fn get(&self, digest: &str) -> Option<Arc<[u8]>> {
        self.0.get(digest).cloned()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
