//! The library's own keys beside a lock's key, such as its fencing counter: their names.
//!
//! A companion of the key `K` is called
//!
//! | `K` | its companion of the kind `token` |
//! |---|---|
//! | has a hash tag: `lock:{u}:7` | `lock:{u}:7#quorlock:token` |
//! | has no braces: `lock:7` | `lock:7#quorlock:token:{lock:7}` |
//! | else: the empty key, and braces that enclose nothing, such as `a{b`, `a}b` and `{}` | none |
//!
//! - **No lock meets it**: no key of a lock contains `#quorlock:`.
//! - **No two keys share it**: the key is what stands before that mark, which is there once.
//! - It hangs on the key alone, not on which part of it is a client's prefix: who shares a lock shares
//!   its companions.
//! - It begins with the key, so access rules for a prefix hold for both.
//! - In cluster mode both are in one slot. In the last line of the table no name that begins with the
//!   key could be: the key's slot is that of all its bytes, and in any longer name its braces, or the
//!   end of those that would have to enclose the key, are in the way.

use super::keys::Key;

/// What no key of a lock contains.
const MARK: &str = "#quorlock:";

/// True if no lock can have this key.
pub(crate) fn is_reserved(key: &[u8]) -> bool {
    key.windows(MARK.len()).any(|part| part == MARK.as_bytes())
}

/// The companion of a lock's `key`. `kind` is a word of its own for each kind of companion, without
/// braces and colons. `None` if the key's braces allow none.
pub(crate) fn companion(key: &[u8], kind: &str) -> Option<Key> {
    let marked = [key, MARK.as_bytes(), kind.as_bytes()];
    match braces(key) {
        Braces::Tag => Some(marked.concat().into()),
        Braces::None if !key.is_empty() => {
            Some([marked.concat().as_slice(), b":{", key, b"}"].concat().into())
        }
        Braces::None | Braces::Stray => None,
    }
}

/// What a key's braces are to a server in cluster mode.
enum Braces {
    /// There are none: all of the key decides on its slot.
    None,
    /// What they enclose decides on it.
    Tag,
    /// They are not what makes a tag: all of the key decides on its slot.
    Stray,
}

/// A tag is what stands between the first brace that opens and the first after it that closes, if it
/// is not empty: Redis Cluster Specification, "Hash tags".
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

    /// What of a key decides on its slot, by the words of the specification: what stands between the first `{`
    /// and the first `}` after it, if that is anything; else all of it.
    fn hashed_part(key: &[u8]) -> &[u8] {
        let text = key.iter().position(|byte| *byte == b'{').map(|open| &key[open + 1..]);
        let close = text.and_then(|text| text.iter().position(|byte| *byte == b'}'));
        text.zip(close)
            .map(|(text, close)| &text[..close])
            .filter(|tag| !tag.is_empty())
            .unwrap_or(key)
    }

    /// What has to be so for every key; its companion, if it has one.
    fn checked(key: &[u8]) -> Option<Key> {
        let companion = companion(key, "token")?;
        assert_eq!(hashed_part(&companion), hashed_part(key), "{}", key.escape_ascii());
        assert!(companion.starts_with(key), "{}", key.escape_ascii());
        assert!(is_reserved(&companion), "{}", key.escape_ascii());
        if !is_reserved(key) {
            let at = companion.windows(MARK.len()).position(|part| part == MARK.as_bytes());
            assert_eq!(at.map(|at| &companion[..at]), Some(key), "it tells its key");
        }
        Some(companion)
    }

    /// All names of up to `longest` of these characters.
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
    fn companions_have_these_names() {
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
            assert_eq!(companion(key.as_bytes(), "token").as_deref(), expected.map(str::as_bytes));
        }
    }

    #[test]
    fn every_short_name_has_a_companion_of_its_own_in_its_slot_or_none() {
        let short = names(b"{}ab", 8);
        let single = (0..=u8::MAX).map(|byte| vec![byte]);
        let keys: HashSet<_> = short.into_iter().chain(single).collect();
        let companions: Vec<_> = keys.iter().filter_map(|key| checked(key)).collect();
        assert_eq!(companions.iter().collect::<HashSet<_>>().len(), companions.len());
        let has_none = |key: &&Vec<u8>| companion(key, "token").is_none();
        let is_plain = |key: &Vec<u8>| !key.iter().any(|byte| b"{}".contains(byte));
        for key in keys.iter().filter(has_none) {
            assert!(key.is_empty() || !is_plain(key), "{}", key.escape_ascii());
        }
    }

    #[test]
    fn whoever_shares_a_key_shares_its_companion_whatever_the_prefix() {
        for prefix in names(b"{}ab", 4) {
            for resource in names(b"{}ab", 4) {
                let key = [&prefix[..], &resource].concat();
                let companion = checked(&key);
                assert!(companion.is_none_or(|companion| companion.starts_with(&prefix)));
            }
        }
    }

    proptest! {
        #[test]
        fn a_key_of_any_bytes_has_a_companion_of_its_own_in_its_slot_or_none(
            keys in proptest::collection::hash_set(
                proptest::collection::vec(any::<u8>(), 0..40), 0..20,
            ),
            pieces in proptest::collection::hash_set(
                "(#quorlock|#quorlock:|token|:|[{}]|a){0,8}".prop_map(String::into_bytes), 0..20,
            ),
        ) {
            let keys: HashSet<_> = keys.union(&pieces).filter(|key| !is_reserved(key)).collect();
            let companions: Vec<_> = keys.iter().flat_map(|key| {
                [checked(key), companion(key, "other")].into_iter().flatten()
            }).collect();
            prop_assert_eq!(companions.iter().collect::<HashSet<_>>().len(), companions.len());
        }
    }
}
