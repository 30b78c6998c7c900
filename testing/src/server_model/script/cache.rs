//! Script cache of a server.

use std::collections::BTreeMap;

/// Sources of the loaded scripts, by their SHA-1 digest in hexadecimal.
#[derive(Debug, Default)]
pub(crate) struct Scripts(pub(super) BTreeMap<String, String>);

impl Scripts {
    pub(super) fn add(&mut self, source: &[u8]) -> String {
        // Each connection loads the same scripts, and comparing sources is faster than hashing.
        if let Some((digest, _)) = self.0.iter().find(|(_, known)| known.as_bytes() == source) {
            return digest.clone();
        }
        let source = String::from_utf8_lossy(source).into_owned();
        let digest = sha1_smol::Sha1::from(&source).digest().to_string();
        self.0.insert(digest.clone(), source);
        digest
    }
}
