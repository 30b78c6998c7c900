//! Script cache of the server.

use std::collections::BTreeMap;

/// The scripts that were loaded, by the hash of their text.
#[derive(Debug, Default)]
pub(crate) struct Scripts(pub(super) BTreeMap<String, String>);

impl Scripts {
    pub(super) fn add(&mut self, source: &[u8]) -> String {
        // Each connection loads the same scripts.
        if let Some((digest, _)) = self.0.iter().find(|(_, known)| known.as_bytes() == source) {
            return digest.clone();
        }
        let source = String::from_utf8_lossy(source).into_owned();
        let digest = sha1_smol::Sha1::from(&source).digest().to_string();
        self.0.insert(digest.clone(), source);
        digest
    }
}
