//! Script cache of a server.

use std::collections::BTreeMap;

/// The loaded scripts, by the SHA-1 of their source.
#[derive(Debug, Default)]
pub(crate) struct Scripts(pub(super) BTreeMap<String, String>);

impl Scripts {
    pub(super) fn add(&mut self, source: &[u8]) -> String {
        // Each connection loads the same scripts, and a comparison is faster than a hash.
        if let Some((digest, _)) = self.0.iter().find(|(_, known)| known.as_bytes() == source) {
            return digest.clone();
        }
        let source = String::from_utf8_lossy(source).into_owned();
        let digest = sha1_smol::Sha1::from(&source).digest().to_string();
        self.0.insert(digest.clone(), source);
        digest
    }
}
