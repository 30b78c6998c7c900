//! The order in which an acquire of any one of several resources tries their keys.

use crate::wire::Keys;

/// Maximum number of keys in one attempt. Limits the time for which the script blocks a node.
pub(super) const MAX_CANDIDATES: usize = 16;

/// The order in which an acquire tries its keys: in rotation, beginning at a random one.
#[derive(Debug)]
pub(super) struct Rotation {
    keys: Keys,
    next: usize,
    /// Number of keys that have not been tried since the rotation began.
    untried: usize,
    has_begun: bool,
}

/// The keys of one attempt, and the index of the key that nodes try first.
pub(super) struct Candidates {
    pub(super) keys: Keys,
    pub(super) first: usize,
    /// Whether an earlier attempt has tried other keys since the rotation began.
    pub(super) is_continued: bool,
}

impl Rotation {
    pub(super) fn new(keys: Keys, random: u64) -> Self {
        let count = keys.len();
        Self { next: start(count, random), untried: count, has_begun: false, keys }
    }

    /// Returns true if the last attempts did not cover all keys.
    pub(super) fn has_untried(&self) -> bool {
        self.untried > 0
    }

    /// Begins the rotation again, at a random key.
    pub(super) fn restart(&mut self, random: u64) {
        let count = self.keys.len();
        (self.next, self.untried, self.has_begun) = (start(count, random), count, false);
    }

    /// Makes the next attempt try `freed` first, and no more keys than one attempt can try.
    pub(super) fn restart_at(&mut self, freed: &[u8]) {
        if let Some(place) = self.keys.position(freed) {
            (self.next, self.untried) = (place, self.keys.len().min(MAX_CANDIDATES));
        }
    }

    /// Returns the keys of the next attempt. Call it only if [`has_untried`](Self::has_untried) returns true.
    pub(super) fn take_candidates(&mut self) -> Candidates {
        let (all, from) = (self.keys.len(), self.next);
        let count = self.untried.min(MAX_CANDIDATES);
        let mut places: Vec<_> = (from..from + count).map(|place| place % all).collect();
        places.sort_unstable();
        let first = places.binary_search(&from).unwrap_or_default();
        self.next = (from + count) % all;
        self.untried = self.untried.saturating_sub(count);
        let keys = self.keys.select(&places).unwrap_or_else(|| self.keys.clone());
        Candidates { keys, first, is_continued: std::mem::replace(&mut self.has_begun, true) }
    }
}

fn start(count: usize, random: u64) -> usize {
    usize::try_from(random).unwrap_or(usize::MAX) % count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Key;

    fn keys(count: usize) -> Keys {
        let keys = (0..count).map(|key| format!("{key:04}").into_bytes().into()).collect();
        Keys::all(keys).expect("keys")
    }

    fn names(candidates: &Candidates) -> Vec<usize> {
        let name = |key: &Key| String::from_utf8_lossy(key).parse().expect("a number");
        let all: Vec<usize> = candidates.keys.iter().map(name).collect();
        let (before, after) = all.split_at(candidates.first);
        [after, before].concat()
    }

    #[test]
    fn attempts_of_one_rotation_cover_all_keys_once() {
        let mut rotation = Rotation::new(keys(40), 35);
        let mut tried = Vec::new();
        while rotation.has_untried() {
            let candidates = rotation.take_candidates();
            assert_eq!(candidates.is_continued, !tried.is_empty());
            let batch = names(&candidates);
            assert!(batch.len() <= MAX_CANDIDATES);
            tried.extend(batch);
        }
        let expected: Vec<_> = (35..40).chain(0..35).collect();
        assert_eq!(tried, expected);
    }

    #[test]
    fn rotation_restarts_at_the_freed_key() {
        let mut rotation = Rotation::new(keys(5), 0);
        assert_eq!(names(&rotation.take_candidates()), [0, 1, 2, 3, 4]);
        rotation.restart_at(b"0003");
        assert_eq!(names(&rotation.take_candidates()), [3, 4, 0, 1, 2]);
        rotation.restart(6);
        assert_eq!(names(&rotation.take_candidates())[0], 1);
    }

    #[test]
    fn freed_key_causes_one_attempt() {
        let mut rotation = Rotation::new(keys(40), 0);
        rotation.restart_at(b"0030");
        assert_eq!(names(&rotation.take_candidates()).len(), MAX_CANDIDATES);
        assert!(!rotation.has_untried());
    }
}
