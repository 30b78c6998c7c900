//! Names of auxiliary keys, such as a lock's fencing counter.
//!
//! An auxiliary key of the lock key `K` is named
//!
//! | `K` | auxiliary key of kind `token` |
//! |---|---|
//! | with a hash tag: `lock:{u}:7` | `lock:{u}:7#quorlock:token` |
//! | without braces: `lock:7` | `lock:7#quorlock:token:{lock:7}` |
//! | otherwise (empty key, or braces that form no hash tag, such as `a{b`, `a}b` and `{}`) | none |
//!
//! - **No collision with locks**: no lock key contains `#quorlock:`.
//! - **Unique**: the lock key is the part before the mark, which occurs once.
//! - The name depends on the whole key only, not on the client's prefix. Clients that share a lock also share its
//!   auxiliary keys.
//! - The name starts with the key, so ACL rules for a key prefix apply to both.
//! - In cluster mode, both keys are in the same slot. For the last row no such name exists: all bytes of the key
//!   determine its slot, and in a longer name its braces prevent a hash tag that equals the key.

use super::keys::Key;

/// Reserved: lock keys must not contain it.
const MARK: &str = "#quorlock:";

/// True if the key contains the reserved mark. Such keys cannot be locked.
pub(crate) fn is_reserved(key: &[u8]) -> bool {
    key.windows(MARK.len()).any(|part| part == MARK.as_bytes())
}

/// Name of the auxiliary key of `key`. `kind` identifies the purpose and contains neither braces nor colons. `None` if
/// the key's braces do not allow a name in the same slot.
pub(crate) fn auxiliary_key(key: &[u8], kind: &str) -> Option<Key> {
    let marked = [key, MARK.as_bytes(), kind.as_bytes()];
    match braces(key) {
        Braces::Tag => Some(marked.concat().into()),
        Braces::None if !key.is_empty() => {
            Some([marked.concat().as_slice(), b":{", key, b"}"].concat().into())
        }
        Braces::None | Braces::Stray => None,
    }
}

/// How Redis Cluster interprets the braces of a key.
enum Braces {
    /// No braces: the whole key determines the slot.
    None,
    /// A hash tag determines the slot.
    Tag,
    /// Braces that form no hash tag: the whole key determines the slot.
    Stray,
}

/// The hash tag is the text between the first `{` and the next `}`, if not empty (Redis Cluster Specification, "Hash
/// tags").
fn braces(key: &[u8]) -> Braces {
    let mut from_brace = key.splitn(2, |byte| *byte == b'{').skip(1);
    let tag = from_brace.next().and_then(|rest| rest.iter().position(|byte| *byte == b'}'));
    match tag {
        Some(length) if length > 0 => Braces::Tag,
        _ if key.iter().any(|byte| matches!(byte, b'{' | b'}')) => Braces::Stray,
        _ => Braces::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    /// The part of the key that determines its slot: the text between the first `{` and the next `}`, otherwise the
    /// whole key.
    fn hashed_part(key: &[u8]) -> &[u8] {
        let text = key.iter().position(|byte| *byte == b'{').map(|open| &key[open + 1..]);
        let close = text.and_then(|text| text.iter().position(|byte| *byte == b'}'));
        text.zip(close)
            .map(|(text, close)| &text[..close])
            .filter(|tag| !tag.is_empty())
            .unwrap_or(key)
    }

    /// Checks the invariants for `key` and returns its auxiliary key, if any.
    fn checked(key: &[u8]) -> Option<Key> {
        let auxiliary_key = auxiliary_key(key, "token")?;
        assert_eq!(hashed_part(&auxiliary_key), hashed_part(key), "{}", key.escape_ascii());
        assert!(auxiliary_key.starts_with(key), "{}", key.escape_ascii());
        assert!(is_reserved(&auxiliary_key), "{}", key.escape_ascii());
        if !is_reserved(key) {
            let at = auxiliary_key.windows(MARK.len()).position(|part| part == MARK.as_bytes());
            assert_eq!(at.map(|at| &auxiliary_key[..at]), Some(key), "contains the lock key");
        }
        Some(auxiliary_key)
    }

    /// All strings of up to `longest` characters of the alphabet.
    fn names(alphabet: &[u8], longest: usize) -> Vec<Vec<u8>> {
        let mut names = vec![Vec::new()];
        let mut from = 0;
        for _ in 0..longest {
            let until = names.len();
            for name in from..until {
                let longer = alphabet.iter().map(|byte| [&names[name][..], &[*byte]].concat());
                names.extend(longer.collect::<Vec<_>>());
            }
            from = until;
        }
        names
    }

    #[test]
    fn auxiliary_key_names() {
        for (key, expected) in [
            ("orders/42", Some("orders/42#quorlock:token:{orders/42}")),
            ("lock:{orders}:42", Some("lock:{orders}:42#quorlock:token")),
            ("a{b}c}d{", Some("a{b}c}d{#quorlock:token")),
            ("}{a}", Some("}{a}#quorlock:token")),
            ("", None),
            ("{}", None),
            ("{}{a}", None),
            ("a{b", None),
            ("a}b", None),
            ("}{", None),
        ] {
            assert_eq!(
                auxiliary_key(key.as_bytes(), "token").as_deref(),
                expected.map(str::as_bytes)
            );
        }
    }

    #[test]
    fn short_keys_have_unique_auxiliary_keys_in_their_slot() {
        let short = names(b"{}ab", 8);
        let single = (0..=u8::MAX).map(|byte| vec![byte]);
        let keys: HashSet<_> = short.into_iter().chain(single).collect();
        let auxiliary_keys: Vec<_> = keys.iter().filter_map(|key| checked(key)).collect();
        assert_eq!(auxiliary_keys.iter().collect::<HashSet<_>>().len(), auxiliary_keys.len());
        let has_none = |key: &&Vec<u8>| auxiliary_key(key, "token").is_none();
        let is_plain = |key: &Vec<u8>| !key.iter().any(|byte| b"{}".contains(byte));
        for key in keys.iter().filter(has_none) {
            assert!(key.is_empty() || !is_plain(key), "{}", key.escape_ascii());
        }
    }

    #[test]
    fn auxiliary_key_does_not_depend_on_prefix_length() {
        for prefix in names(b"{}ab", 4) {
            for resource in names(b"{}ab", 4) {
                let key = [&prefix[..], &resource].concat();
                let auxiliary_key = checked(&key);
                assert!(
                    auxiliary_key.is_none_or(|auxiliary_key| auxiliary_key.starts_with(&prefix))
                );
            }
        }
    }

    proptest! {
        #[test]
        fn any_keys_have_unique_auxiliary_keys_in_their_slot(
            keys in proptest::collection::hash_set(
                proptest::collection::vec(any::<u8>(), 0..40), 0..20,
            ),
            pieces in proptest::collection::hash_set(
                "(#quorlock|#quorlock:|token|:|[{}]|a){0,8}".prop_map(String::into_bytes), 0..20,
            ),
        ) {
            let keys: HashSet<_> = keys.union(&pieces).filter(|key| !is_reserved(key)).collect();
            let auxiliary_keys: Vec<_> = keys.iter().flat_map(|key| {
                [checked(key), auxiliary_key(key, "other")].into_iter().flatten()
            }).collect();
            prop_assert_eq!(auxiliary_keys.iter().collect::<HashSet<_>>().len(), auxiliary_keys.len());
        }
    }
}
