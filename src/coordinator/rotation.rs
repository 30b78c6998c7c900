//! The order in which an acquire of any one of several resources tries their keys.

use crate::protocol::Time;
use crate::wire::Keys;

/// Maximum number of keys in one attempt. Limits the time for which the script blocks a node.
pub(super) const MAX_CANDIDATES: usize = 16;

/// The order in which an acquire tries its keys: in rotation, beginning at a random one.
#[derive(Debug)]
pub(super) struct Rotation {
    keys: Keys,
    next: usize,
    /// Number of keys that the current rotation still has to try.
    untried: usize,
    /// Whether the current rotation has tried some keys.
    has_begun: bool,
    /// When the next rotation over all keys is due at the latest. A rotation that begins earlier, because a key was
    /// freed, tries only that key and the next ones. The default value means that no rotation over all keys was
    /// refused since the last one began.
    all_due: Time,
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
        let all_due = Time::default();
        Self { next: start(count, random), untried: count, has_begun: false, all_due, keys }
    }

    /// Returns true if the current rotation still has keys to try.
    pub(super) fn has_untried(&self) -> bool {
        self.untried > 0
    }

    /// Begins a rotation: over all keys from a random one, or in a single attempt from the key `freed`, if a rotation
    /// over all keys is not due yet.
    pub(super) fn restart(&mut self, freed: Option<&[u8]>, now: Time, random: u64) {
        let count = self.keys.len();
        let freed = freed.and_then(|key| self.keys.position(key));
        (self.next, self.untried) = match freed {
            Some(place) if count <= MAX_CANDIDATES => (place, count),
            Some(place) if now < self.all_due => (place, MAX_CANDIDATES),
            _ => (start(count, random), count),
        };
        if self.untried == count {
            self.all_due = Time::default();
        }
        self.has_begun = false;
    }

    /// Ends the current rotation. If it did not try all keys, returns the time at which the next rotation over all keys
    /// is due.
    pub(super) fn end(&mut self) -> Option<Time> {
        self.untried = 0;
        Some(self.all_due).filter(|due| *due > Time::default())
    }

    /// Handles the refusal of a rotation. Returns the time of the next attempt if no key is freed earlier: `at`, or
    /// earlier if a rotation over all keys is due before `at`.
    pub(super) fn handle_refusal(&mut self, at: Time) -> Time {
        if self.all_due == Time::default() {
            self.all_due = at;
        }
        self.all_due.min(at)
    }

    /// Returns the keys of the next attempt. Call it only if [`has_untried`](Self::has_untried) returns true.
    pub(super) fn take_candidates(&mut self) -> Candidates {
        let (all, from) = (self.keys.len(), self.next);
        let count = self.untried.min(MAX_CANDIDATES);
        self.next = (from + count) % all;
        self.untried = self.untried.saturating_sub(count);
        let is_continued = std::mem::replace(&mut self.has_begun, true);
        if count == all {
            return Candidates { keys: self.keys.clone(), first: from, is_continued };
        }
        let mut places: Vec<_> = (from..from + count).map(|place| place % all).collect();
        places.sort_unstable();
        let first = places.binary_search(&from).unwrap_or_default();
        let keys = self.keys.select(&places).unwrap_or_else(|| self.keys.clone());
        Candidates { keys, first, is_continued }
    }
}

fn start(count: usize, random: u64) -> usize {
    usize::try_from(random).unwrap_or(usize::MAX) % count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Key;
    use std::time::Duration;

    fn keys(count: usize) -> Keys {
        let keys = (0..count).map(|key| format!("{key:04}").into_bytes().into()).collect();
        Keys::all(keys).expect("keys")
    }

    fn at(ms: u64) -> Time {
        Time::default().after(Duration::from_millis(ms))
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
        assert_eq!((rotation.end(), rotation.handle_refusal(at(9))), (None, at(9)));
        rotation.restart(Some(b"0003"), at(8), 1);
        assert_eq!(names(&rotation.take_candidates()), [3, 4, 0, 1, 2]);
        assert_eq!(rotation.handle_refusal(at(20)), at(20), "all keys were tried");
        rotation.restart(None, at(20), 6);
        assert_eq!(names(&rotation.take_candidates())[0], 1);
    }

    #[test]
    fn freed_key_causes_one_attempt_and_delays_no_rotation() {
        let mut rotation = Rotation::new(keys(40), 0);
        rotation.end();
        rotation.handle_refusal(at(9));
        rotation.restart(Some(b"0030"), at(8), 1);
        assert_eq!(names(&rotation.take_candidates()).len(), MAX_CANDIDATES);
        assert!(!rotation.has_untried());
        assert_eq!((rotation.end(), rotation.handle_refusal(at(20))), (Some(at(9)), at(9)));
        rotation.restart(Some(b"0030"), at(9), 1);
        assert_eq!(names(&rotation.take_candidates())[0], 1, "a rotation over all keys is due");
        assert!(rotation.has_untried());
    }
}
