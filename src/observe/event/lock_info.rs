//! The lock that an event refers to.

use crate::wire::Keys;
use std::fmt;

/// The acquire or the lease that an event refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInfo {
    /// Identifier of the acquire and of its lease, unique within the client. All events of one acquire and its lease
    /// have the same identifier. Zero if no observer, subscriber or metrics recorder was active when the acquire
    /// started.
    pub id: u64,
    /// Resources of the lock.
    pub resources: Resources,
    /// Class of the lock, as set with [`Acquire::class`](crate::Acquire::class). `None` if no class was set.
    pub class: Option<&'static str>,
}

/// Names of the resources of one acquire, sorted and without the key prefix.
///
/// The `Display` output contains quoted and escaped names for logs, for example `"orders/42"`. It shows at most three
/// names, and at most 64 characters of each name.
#[derive(Clone, PartialEq, Eq)]
pub struct Resources {
    keys: Keys,
    /// Length of the key prefix in bytes.
    prefix: usize,
}

/// Identifier and class of an acquire, for the [`LockInfo`] of its events.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AcquireTag {
    pub(crate) id: u64,
    pub(crate) class: Option<&'static str>,
}

impl AcquireTag {
    pub(crate) fn lock(self, keys: &Keys, prefix: usize) -> LockInfo {
        let resources = Resources { keys: keys.clone(), prefix };
        LockInfo { id: self.id, resources, class: self.class }
    }
}

impl Resources {
    /// Returns an iterator over the names of the resources.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().map(|key| key.get(self.prefix..).unwrap_or_default())
    }
}

const MAX_SHOWN: usize = 64;
const MAX_NAMES: usize = 3;

impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, name) in self.iter().take(MAX_NAMES).enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            write!(f, "{comma}\"{}\"", escape_name(name))?;
        }
        match self.keys.len().saturating_sub(MAX_NAMES) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

debug_as_display!(Resources);

/// Escapes a name for logs, and truncates the result to [`MAX_SHOWN`] characters.
pub(crate) fn escape_name(name: &[u8]) -> String {
    let mut shown = String::new();
    for chunk in name.utf8_chunks() {
        shown.extend(chunk.valid().escape_debug().take(MAX_SHOWN + 1));
        shown.extend(chunk.invalid().escape_ascii().map(char::from));
        if let Some((end, _)) = shown.char_indices().nth(MAX_SHOWN) {
            shown.truncate(end);
            shown.push('…');
            break;
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_and_truncated() {
        for (name, as_shown) in [
            (&b""[..], ""),
            (b"orders/42", "orders/42"),
            ("größe/日本".as_bytes(), "größe/日本"),
            (b"two\r\nlines \"quoted\"", "two\\r\\nlines \\\"quoted\\\""),
            (b"\xff\x00a\xf0", "\\xff\\0a\\xf0"),
        ] {
            assert_eq!(escape_name(name), as_shown);
        }
        assert_eq!(escape_name(&[b'a'; 64]), "a".repeat(64));
        for long in [vec![b'a'; 1 << 20], vec![0xff; 1 << 20], "ö\u{1f409}\0".repeat(999).into()] {
            let shown = escape_name(&long);
            assert_eq!(shown.chars().count(), MAX_SHOWN + 1, "{shown}");
            assert!(shown.ends_with('…'), "{shown}");
        }
    }
}
