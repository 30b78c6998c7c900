//! The counters beside a claim's keys, and the fencing token that comes of them.

use super::keys::Keys;
use crate::protocol::Ttl;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a claim wants of the counters.
#[derive(Debug)]
pub(crate) struct Fence {
    counters: Keys,
    /// How long a counter stands after it was last used.
    ttl: Ttl,
    /// To which number the nodes are asked to go.
    hint: u64,
    /// The committed token; 0, which no node draws, before.
    token: AtomicU64,
}

/// How the counters are to follow what becomes of the keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct Follow<'a> {
    pub(super) counters: &'a Keys,
    pub(super) ttl: Ttl,
    /// The number is at least this.
    pub(super) least: u64,
    /// True for a number above what the counters show.
    pub(super) draws: bool,
}

impl Fence {
    /// A fence for `keys`.
    pub(crate) fn new(keys: &Keys, ttl: Ttl, hint: u64) -> Self {
        Self { counters: keys.map(counter), ttl, hint, token: AtomicU64::new(0) }
    }

    /// Notes the token that a quorum has committed.
    pub(crate) fn commit(&self, token: u64) {
        self.token.store(token, Ordering::Release);
    }

    /// The token, once it is committed.
    pub(crate) fn token(&self) -> Option<u64> {
        Some(self.token.load(Ordering::Acquire)).filter(|token| *token != 0)
    }

    /// A new number is to be drawn.
    pub(super) fn draw(&self) -> Follow<'_> {
        Follow { counters: &self.counters, ttl: self.ttl, least: self.hint, draws: true }
    }

    /// The counters are to stand at `token` at least.
    pub(super) fn raise(&self, token: u64) -> Follow<'_> {
        Follow { counters: &self.counters, ttl: self.ttl, least: token, draws: false }
    }

    /// The counters are to stand at the committed token at least; `None` before it is.
    pub(super) fn keep(&self) -> Option<Follow<'_>> {
        self.token().map(|token| self.raise(token))
    }
}

/// The key of the counter of the lock at `key`. Both are in one slot of a server in cluster mode, and
/// have the same beginning, which access rules go by.
fn counter(key: &[u8]) -> Box<[u8]> {
    if has_hash_tag(key) {
        [key, b":token"].concat().into()
    } else {
        [key, b":token:{", key, b"}"].concat().into()
    }
}

/// True if only a part of the key, in braces, decides on its slot.
fn has_hash_tag(key: &[u8]) -> bool {
    let after_brace = key.iter().position(|byte| *byte == b'{').map(|open| &key[open + 1..]);
    after_brace
        .and_then(|rest| rest.iter().position(|byte| *byte == b'}'))
        .is_some_and(|tag| tag > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_in_the_slot_of_its_lock() {
        for (key, its_counter) in [
            ("orders/42", "orders/42:token:{orders/42}"),
            ("lock:{orders}:42", "lock:{orders}:42:token"),
            ("{}x", "{}x:token:{{}x}"),
            ("a{b", "a{b:token:{a{b}"),
        ] {
            assert_eq!(&*counter(key.as_bytes()), its_counter.as_bytes(), "{key}");
        }
    }

    #[test]
    fn counters_are_kept_up_once_there_is_a_token() {
        let keys = Keys::one(b"k".as_slice().into());
        let fence = Fence::new(&keys, Ttl::SHORTEST, 7);
        assert!(fence.token().is_none() && fence.keep().is_none());
        assert_eq!((fence.draw().least, fence.draw().draws), (7, true));
        fence.commit(9);
        assert_eq!(fence.token(), Some(9));
        assert!(fence.keep().is_some_and(|follow| follow.least == 9 && !follow.draws));
    }
}
