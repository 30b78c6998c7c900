//! Names of auxiliary keys. An auxiliary key stores data about a lock, for example its fencing counter.
//!
//! The name is derived from the lock key `K`:
//!
//! | `K` | auxiliary key of kind `token` |
//! |---|---|
//! | with a hash tag: `lock:{u}:7` | `lock:{u}:7#quorlock:token` |
//! | without braces: `lock:7` | `lock:7#quorlock:token:{lock:7}` |
//! | otherwise (empty key, or braces that form no hash tag, such as `a{b`, `a}b` and `{}`) | none |
//!
//! - **No collision with other locks**: callers cannot lock a resource whose key contains `#quorlock:`.
//! - **Unique**: the text before the last mark `#quorlock:` is the lock key. The key of a semaphore's permit contains the
//!   mark too.
//! - **Independent of the prefix**: the name depends only on the whole key, not on the client's prefix. Clients that
//!   share a lock also share its auxiliary keys.
//! - **ACL rules**: the name starts with the lock key, so ACL rules for a key prefix apply to both keys.
//! - **Cluster mode**: both keys are in the same slot. For the keys in the last row, no name in the same slot exists.
//!   All bytes of the key determine the slot, and the braces in the key prevent a hash tag that equals the key.

use super::keys::{Key, Keys};

/// The text that identifies auxiliary keys. The keys of resources must not contain it.
const MARK: &str = "#quorlock:";

/// Returns true if `key` contains [`MARK`] and therefore cannot be locked.
pub(crate) fn is_reserved(key: &[u8]) -> bool {
    key.windows(MARK.len()).any(|part| part == MARK.as_bytes())
}

/// Returns the name of the auxiliary key that stores data of the given `kind` for the lock `key`. `kind` must contain
/// neither braces nor colons. Returns `None` if `key` is empty, or if its braces rule out a name in the same cluster
/// slot.
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

/// Returns the key of a permit of the semaphore with the key `semaphore`. Returns `None` in the same cases as
/// [`auxiliary_key`].
pub(crate) fn permit_key(semaphore: &[u8], permit: usize) -> Option<Key> {
    auxiliary_key(semaphore, &format!("permit{permit}"))
}

/// Returns the key of the lock or semaphore to which an auxiliary key belongs.
pub(crate) fn main_key(key: &[u8]) -> &[u8] {
    let end = key.windows(MARK.len()).rposition(|part| part == MARK.as_bytes());
    &key[..end.unwrap_or(key.len())]
}

/// Returns the keys of the counter and of its record, in this order, for the scheduled job with the key `job`. Returns
/// `None` in the same cases as [`auxiliary_key`].
pub(crate) fn period_keys(job: &[u8]) -> Option<Keys> {
    Keys::all(vec![auxiliary_key(job, "period")?, auxiliary_key(job, "run")?])
}

/// Returns the name of the queue for acquires that need any one of `keys`. It differs from all lock keys and from the
/// names for other keys.
pub(crate) fn queue_name(keys: &Keys) -> Key {
    let mut name = Vec::from(MARK);
    for key in keys.iter() {
        name.extend_from_slice(&(key.len() as u64).to_le_bytes());
        name.extend_from_slice(key);
    }
    name.into()
}

/// How the braces in a key affect its slot in Redis Cluster.
enum Braces {
    /// The key has no braces. The whole key determines the slot.
    None,
    /// The key has a hash tag, which determines the slot.
    Tag,
    /// The braces in the key form no hash tag. The whole key determines the slot.
    Stray,
}

/// Classifies the braces in `key`. The hash tag is the text between the first `{` and the next `}`, unless this text is
/// empty (Redis Cluster Specification, "Hash tags").
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

    /// Returns the part of the key that determines its slot: the hash tag, or the whole key if it has no hash tag.
    fn hashed_part(key: &[u8]) -> &[u8] {
        let text = key.iter().position(|byte| *byte == b'{').map(|open| &key[open + 1..]);
        let close = text.and_then(|text| text.iter().position(|byte| *byte == b'}'));
        text.zip(close)
            .map(|(text, close)| &text[..close])
            .filter(|tag| !tag.is_empty())
            .unwrap_or(key)
    }

    fn checked(key: &[u8]) -> Option<Key> {
        let auxiliary_key = auxiliary_key(key, "token")?;
        assert_eq!(hashed_part(&auxiliary_key), hashed_part(key), "{}", key.escape_ascii());
        assert!(auxiliary_key.starts_with(key), "{}", key.escape_ascii());
        assert!(is_reserved(&auxiliary_key), "{}", key.escape_ascii());
        if !is_reserved(key) {
            let at = auxiliary_key.windows(MARK.len()).position(|part| part == MARK.as_bytes());
            assert_eq!(at.map(|at| &auxiliary_key[..at]), Some(key), "contains the lock key");
            assert_eq!(main_key(&auxiliary_key), key);
        }
        Some(auxiliary_key)
    }

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
