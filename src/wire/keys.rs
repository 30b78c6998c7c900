//! The keys of one lock attempt.

use std::sync::Arc;

/// The key of a lock, or an auxiliary key. Cheap to clone.
pub(crate) type Key = Arc<[u8]>;

/// The keys of one acquire: one key (the usual case), or several keys, sorted and without duplicates. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    first: Key,
    more: Option<Arc<[Key]>>,
}

impl Keys {
    pub(crate) fn one(key: Key) -> Self {
        Self { first: key, more: None }
    }

    /// Sorts and deduplicates the keys. Returns `None` if `keys` is empty.
    pub(crate) fn all(mut keys: Vec<Key>) -> Option<Self> {
        keys.sort_unstable();
        keys.dedup();
        let mut keys = keys.into_iter();
        let first = keys.next()?;
        Some(Self { first, more: (keys.len() > 0).then(|| keys.collect()) })
    }

    pub(crate) fn first(&self) -> &Key {
        &self.first
    }

    fn more(&self) -> &[Key] {
        self.more.as_deref().unwrap_or_default()
    }

    pub(crate) fn len(&self) -> usize {
        1 + self.more().len()
    }

    pub(crate) fn get(&self, place: usize) -> Option<&Key> {
        match place.checked_sub(1) {
            None => Some(&self.first),
            Some(place) => self.more().get(place),
        }
    }

    /// Returns the keys at `places`, which must be in ascending order. Returns `None` if there are none.
    pub(crate) fn select(&self, places: &[usize]) -> Option<Self> {
        let mut keys = places.iter().filter_map(|place| self.get(*place).cloned());
        let first = keys.next()?;
        let more: Vec<_> = keys.collect();
        Some(Self { first, more: (!more.is_empty()).then(|| more.into()) })
    }

    pub(crate) fn position(&self, key: &[u8]) -> Option<usize> {
        if *self.first == *key {
            return Some(0);
        }
        self.more().binary_search_by(|one| (**one).cmp(key)).ok().map(|place| place + 1)
    }

    /// Applies `make` to each key, in order. Fails with the first key for which `make` returns `None`.
    pub(crate) fn try_map(&self, make: impl Fn(&[u8]) -> Option<Key>) -> Result<Self, &[u8]> {
        let make = |key| make(key).ok_or(key);
        let first = make(&self.first)?;
        let more = self.more.as_ref().map(|more| more.iter().map(|key| make(key)).collect());
        Ok(Self { first, more: more.transpose()? })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Key> {
        std::iter::once(&self.first).chain(self.more())
    }
}

/// How a node chooses the key that it sets for an acquire of any one of several keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnyKey {
    /// The index of the key that the node tries first. The others follow in order, cyclically.
    pub(crate) first: usize,
    /// Whether the command also subscribes to invalidations of the key that the node sets.
    pub(crate) watches: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_sorted_and_deduplicated() {
        let keys = |names: &[&str]| Keys::all(names.iter().map(|n| n.as_bytes().into()).collect());
        let abc = keys(&["c", "a", "b", "a"]).expect("not empty");
        assert_eq!(abc.iter().map(|key| &**key).collect::<Vec<_>>(), [b"a", b"b", b"c"]);
        assert_eq!((abc.len(), &**abc.first()), (3, &b"a"[..]));
        let at = |place| abc.get(place).map(|key| &**key);
        assert_eq!((at(0), at(2), at(3)), (Some(&b"a"[..]), Some(&b"c"[..]), None));
        let place = |key: &str| abc.position(key.as_bytes());
        assert_eq!(["a", "b", "c", "d"].map(place), [Some(0), Some(1), Some(2), None]);
        assert_eq!(keys(&["x", "x"]), Some(Keys::one(b"x".as_slice().into())));
        assert_eq!(keys(&[]), None);
        assert_eq!(
            abc.try_map(|key| Some(key.repeat(2).into())).as_ref(),
            Ok(&keys(&["aa", "bb", "cc"]).expect("not empty"))
        );
        assert_eq!(abc.try_map(|key| (key < &b"b"[..]).then(|| key.into())), Err(&b"b"[..]));
    }
}
