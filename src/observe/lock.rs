//! Which lock an event is about.

use crate::wire::Keys;
use std::fmt;

/// Which acquire, and which lease if it was won, an event is about.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Lock<'a> {
    /// The number of the acquire, and of its lease: different for each of a client, so that events can be
    /// put together. 0 if nobody was told when it was acquired.
    pub id: u64,
    /// What is to be locked, or is.
    pub resources: Resources<'a>,
    /// What kind of lock it is, as told by [`Acquire::class`](crate::Acquire::class).
    pub class: Option<&'static str>,
}

/// The resources of one acquire, without the key prefix, sorted.
///
/// Prints them as they can stand in a log: in quotes, escaped, the first 64 characters of each, and the
/// first three of many, for example `"orders/42"`.
#[derive(Clone, Copy)]
pub struct Resources<'a> {
    keys: &'a Keys,
    prefix: usize,
}

/// What a client keeps of an acquire, to tell of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tag {
    pub(crate) id: u64,
    pub(crate) class: Option<&'static str>,
}

impl Tag {
    /// The lock on `keys`, so many bytes of each being the prefix.
    pub(crate) fn lock(self, keys: &Keys, prefix: usize) -> Lock<'_> {
        Lock { id: self.id, resources: Resources { keys, prefix }, class: self.class }
    }
}

impl<'a> Resources<'a> {
    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let Self { keys, prefix } = *self;
        keys.iter().map(move |key| key.get(prefix..).unwrap_or_default())
    }
}

/// So much of a name is shown, in characters, and so many names.
const MAX_SHOWN: usize = 64;
const MAX_NAMES: usize = 3;

impl fmt::Display for Resources<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, name) in self.iter().take(MAX_NAMES).enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            write!(f, "{comma}\"{}\"", shown(name))?;
        }
        match self.keys.len().saturating_sub(MAX_NAMES) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// The same line.
impl fmt::Debug for Resources<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A resource, or a part of one, for people: on one line, and not longer than a line.
pub(crate) fn shown(name: &[u8]) -> String {
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
    fn a_name_is_shown_on_one_line_and_not_longer_than_one() {
        for (name, as_shown) in [
            (&b""[..], ""),
            (b"orders/42", "orders/42"),
            ("größe/日本".as_bytes(), "größe/日本"),
            (b"two\r\nlines \"quoted\"", "two\\r\\nlines \\\"quoted\\\""),
            (b"\xff\x00a\xf0", "\\xff\\0a\\xf0"),
        ] {
            assert_eq!(shown(name), as_shown);
        }
        assert_eq!(shown(&[b'a'; 64]), "a".repeat(64));
        for long in [vec![b'a'; 1 << 20], vec![0xff; 1 << 20], "ö\u{1f409}\0".repeat(999).into()] {
            let shown = shown(&long);
            assert_eq!(shown.chars().count(), MAX_SHOWN + 1, "{shown}");
            assert!(shown.ends_with('…'), "{shown}");
        }
    }
}
