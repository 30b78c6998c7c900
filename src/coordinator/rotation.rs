//! The order in which an acquire of any one of several resources tries their keys.

use crate::protocol::Time;
use crate::wire::{Key, Keys};
use std::collections::VecDeque;
use std::time::Duration;

/// Maximum number of keys in one attempt. Limits the time for which the script blocks a node.
pub(super) const MAX_CANDIDATES: usize = 16;

/// Minimum delay before the keys of a page are tried again because one of them should be free. A node can report a key
/// that has just expired.
const PAGE_DELAY: Duration = Duration::from_millis(10);

/// The order in which an acquire tries its keys. The first rotation tries all of them, beginning at a random one. With at
/// most [`MAX_CANDIDATES`] keys, each later one does too. With more keys, a later rotation tries the keys that were
/// freed, and those that the [`Pages`] select.
#[derive(Debug)]
pub(super) struct Rotation {
    keys: Keys,
    /// Indices of the keys that the current rotation still has to try, in order.
    untried: VecDeque<usize>,
    /// Indices of the keys of the last attempt.
    tried: Vec<usize>,
    /// Whether the current rotation has tried some keys.
    has_begun: bool,
    /// When the next rotation is due if no key is freed. A rotation that begins earlier tries the freed keys only. The
    /// default value means that no rotation was refused since the last due one began.
    due: Time,
    pages: Option<Pages>,
}

/// The keys of an acquire in groups of [`MAX_CANDIDATES`]. Each due rotation tries one page, in turn, because a server can
/// fail to push that a key was freed; and the pages in which a key should have expired. If all pages were tried each time,
/// one acquire of 1,000 held keys would cost thousands of commands per second.
#[derive(Debug)]
struct Pages {
    /// When the first key of each page should expire. `Time::END` if no expiry is known.
    free_at: Box<[Time]>,
    next: usize,
}

/// The keys that may have been freed since the last rotation began.
#[derive(Debug, Default)]
pub(super) struct FreedKeys {
    /// In the order in which they were reported.
    pub(super) keys: Vec<Key>,
    /// Whether any other key may have been freed too.
    pub(super) may_be_any: bool,
}

/// The keys of one attempt, and the index of the key that nodes try first.
pub(super) struct Candidates {
    pub(super) keys: Keys,
    pub(super) first: usize,
    /// Whether an earlier attempt has tried other keys since the rotation began.
    pub(super) is_continued: bool,
}

impl FreedKeys {
    pub(super) fn insert(&mut self, key: &Key) {
        if !self.keys.contains(key) {
            self.keys.push(key.clone());
        }
    }
}

impl Pages {
    fn new(count: usize) -> Self {
        let free_at = vec![Time::default(); count.div_ceil(MAX_CANDIDATES)];
        Self { free_at: free_at.into(), next: 0 }
    }

    /// Takes the pages in which a key should have expired at `now`, and the next page if `is_due` is true.
    fn take(&mut self, is_due: bool, now: Time) -> Vec<usize> {
        let count = self.free_at.len();
        let next = self.next;
        if is_due {
            self.next = (next + 1) % count;
        }
        let pages = (next..next + count).map(|page| page % count);
        let is_taken = |page: &usize| self.free_at[*page] <= now || is_due && *page == next;
        let taken: Vec<_> = pages.filter(is_taken).collect();
        for page in &taken {
            self.free_at[*page] = Time::END;
        }
        taken
    }

    fn handle_free_at(&mut self, place: usize, at: Time) {
        let free_at = &mut self.free_at[place / MAX_CANDIDATES];
        *free_at = at.min(*free_at);
    }
}

impl Rotation {
    /// Creates the rotations of an acquire. If `is_endless` is false, its policy limits the number of attempts, so each
    /// due rotation tries all keys.
    pub(super) fn new(keys: Keys, is_endless: bool) -> Self {
        let pages = (is_endless && keys.len() > MAX_CANDIDATES).then(|| Pages::new(keys.len()));
        let (untried, tried, due) = (VecDeque::new(), Vec::new(), Time::default());
        Self { keys, untried, tried, has_begun: false, due, pages }
    }

    /// Returns true if the current rotation still has keys to try.
    pub(super) fn has_untried(&self) -> bool {
        !self.untried.is_empty()
    }

    /// Begins a rotation.
    pub(super) fn restart(&mut self, freed: &FreedKeys, now: Time, random: u64) {
        let count = self.keys.len();
        let start = usize::try_from(random).unwrap_or(usize::MAX) % count;
        let places = freed.keys.iter().filter_map(|key| self.keys.position(key));
        let mut places: VecDeque<_> = places.collect();
        let is_due = now >= self.due;
        if freed.may_be_any {
            self.handle_failure();
        }
        if count <= MAX_CANDIDATES {
            let start = places.back().copied().unwrap_or(start);
            places = (start..start + count).map(|place| place % count).collect();
        } else if let Some(pages) = &mut self.pages {
            if pages.free_at.iter().all(|at| *at <= now) {
                pages.next = start / MAX_CANDIDATES;
            }
            let mut taken = pages.take(is_due, now);
            if taken.is_empty() && places.is_empty() {
                taken = pages.take(true, now);
            }
            for page in taken {
                let from = page * MAX_CANDIDATES;
                let page = from..count.min(from + MAX_CANDIDATES);
                let others = page.filter(|place| !places.contains(place)).collect::<Vec<_>>();
                places.extend(others);
            }
        } else if is_due || places.is_empty() {
            places = (start..start + count).map(|place| place % count).collect();
        }
        self.untried = places;
        if is_due || count <= MAX_CANDIDATES {
            self.due = Time::default();
        }
        self.has_begun = false;
    }

    /// Handles the refusal of the last attempt. The first of its keys becomes free at `free_at`.
    pub(super) fn handle_free_at(&mut self, free_at: Time, now: Time) {
        let at = free_at.max(now.after(PAGE_DELAY));
        if let Some(pages) = &mut self.pages {
            self.tried.iter().for_each(|place| pages.handle_free_at(*place, at));
        }
    }

    /// Makes the next rotation try all keys, because it is not known whether they are held.
    pub(super) fn handle_failure(&mut self) {
        if let Some(pages) = &mut self.pages {
            pages.free_at.fill(Time::default());
        }
    }

    /// Ends the current rotation. Returns the time at which the next one is due, if that is known.
    pub(super) fn end(&mut self) -> Option<Time> {
        if !self.untried.is_empty() {
            self.handle_failure();
            self.untried.clear();
        }
        let pages = self.pages.iter().flat_map(|pages| &pages.free_at);
        let known = pages.chain([&self.due]).filter(|at| **at > Time::default());
        known.min().copied().filter(|at| *at < Time::END)
    }

    /// Handles the refusal of a rotation. Returns the time of the next attempt if no key is freed earlier: `at`, or
    /// earlier if a rotation is due before `at`.
    pub(super) fn handle_refusal(&mut self, at: Time) -> Time {
        if self.due == Time::default() {
            self.due = at;
        }
        let pages = self.pages.iter().flat_map(|pages| &pages.free_at);
        let expiry = pages.filter(|at| **at > Time::default()).min();
        expiry.copied().unwrap_or(Time::END).min(self.due).min(at)
    }

    /// Returns the keys of the next attempt. Call it only if [`has_untried`](Self::has_untried) returns true.
    pub(super) fn take_candidates(&mut self) -> Candidates {
        let from = self.untried.front().copied().unwrap_or_default();
        let count = self.untried.len().min(MAX_CANDIDATES);
        let mut places: Vec<_> = self.untried.drain(..count).collect();
        places.sort_unstable();
        let is_continued = std::mem::replace(&mut self.has_begun, true);
        let first = places.binary_search(&from).unwrap_or_default();
        let keys = if count == self.keys.len() { None } else { self.keys.select(&places) };
        self.tried = places;
        Candidates { keys: keys.unwrap_or_else(|| self.keys.clone()), first, is_continued }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    fn freed(places: &[usize]) -> FreedKeys {
        let mut freed = FreedKeys::default();
        for place in places {
            freed.insert(&format!("{place:04}").into_bytes().into());
        }
        freed
    }

    /// Returns the keys of each attempt of the next rotation, which is refused. Its keys expire at `free_at`.
    fn refused(
        rotation: &mut Rotation,
        freed: &FreedKeys,
        (now, random): (u64, u64),
        free_at: Time,
    ) -> Vec<Vec<usize>> {
        rotation.restart(freed, at(now), random);
        let mut attempts = Vec::new();
        while rotation.has_untried() {
            let candidates = rotation.take_candidates();
            assert_eq!(candidates.is_continued, !attempts.is_empty());
            attempts.push(names(&candidates));
            assert!(attempts.last().is_some_and(|keys| keys.len() <= MAX_CANDIDATES));
            rotation.handle_free_at(free_at, at(now));
        }
        attempts
    }

    #[test]
    fn first_rotation_covers_all_keys_once() {
        for is_endless in [false, true] {
            let mut rotation = Rotation::new(keys(40), is_endless);
            let tried = refused(&mut rotation, &freed(&[]), (0, 35), Time::END);
            let mut tried: Vec<_> = tried.into_iter().flatten().collect();
            assert!((32..40).contains(&tried[0]), "begins at a random key or page");
            tried.sort_unstable();
            assert_eq!(tried, (0..40).collect::<Vec<_>>());
        }
    }

    #[test]
    fn rotation_over_few_keys_restarts_at_the_last_freed_key() {
        let mut rotation = Rotation::new(keys(5), true);
        assert_eq!(refused(&mut rotation, &freed(&[]), (0, 0), Time::END), [[0, 1, 2, 3, 4]]);
        assert_eq!((rotation.end(), rotation.handle_refusal(at(9))), (None, at(9)));
        assert_eq!(refused(&mut rotation, &freed(&[1, 3]), (8, 1), Time::END), [[3, 4, 0, 1, 2]]);
        assert_eq!(rotation.handle_refusal(at(20)), at(20), "all keys were tried");
        assert_eq!(refused(&mut rotation, &freed(&[]), (20, 6), Time::END)[0][0], 1);
    }

    #[test]
    fn freed_keys_cause_one_attempt_and_delay_no_due_rotation() {
        let mut rotation = Rotation::new(keys(40), false);
        refused(&mut rotation, &freed(&[]), (0, 0), Time::END);
        assert_eq!(rotation.handle_refusal(at(9)), at(9));
        assert_eq!(refused(&mut rotation, &freed(&[30, 2]), (8, 1), Time::END), [[30, 2]]);
        assert_eq!((rotation.end(), rotation.handle_refusal(at(20))), (Some(at(9)), at(9)));
        let tried = refused(&mut rotation, &freed(&[30]), (9, 1), Time::END);
        assert_eq!((tried.len(), tried[0][0]), (3, 1), "a rotation over all keys is due");
    }

    #[test]
    fn later_rotations_of_an_endless_acquire_try_one_page() {
        let mut rotation = Rotation::new(keys(1_000), true);
        assert_eq!(refused(&mut rotation, &freed(&[]), (0, 0), Time::END).len(), 63);
        let mut tried = Vec::new();
        for now in 1..=63 {
            assert_eq!(rotation.handle_refusal(at(now)), at(now));
            let attempts = refused(&mut rotation, &freed(&[]), (now, 0), Time::END);
            assert_eq!(attempts.len(), 1);
            tried.extend(attempts.into_iter().flatten());
        }
        tried.sort_unstable();
        assert_eq!(tried, (0..1_000).collect::<Vec<_>>());
    }

    #[test]
    fn page_is_tried_when_its_first_key_expires() {
        let mut rotation = Rotation::new(keys(40), true);
        refused(&mut rotation, &freed(&[]), (0, 0), Time::END);
        rotation.handle_refusal(at(900));
        assert_eq!(refused(&mut rotation, &freed(&[20]), (10, 0), at(50)), [[20]]);
        assert_eq!((rotation.end(), rotation.handle_refusal(at(950))), (Some(at(50)), at(50)));
        let page = refused(&mut rotation, &freed(&[]), (50, 0), at(20));
        assert_eq!(page.concat()[..16], (16..32).collect::<Vec<_>>());
        assert_eq!(rotation.handle_refusal(at(950)), at(60), "an expired key causes no busy loop");
    }

    #[test]
    fn failure_and_lost_connection_cause_a_rotation_over_all_keys() {
        let mut rotation = Rotation::new(keys(40), true);
        refused(&mut rotation, &freed(&[]), (0, 0), Time::END);
        let any = FreedKeys { may_be_any: true, ..FreedKeys::default() };
        assert_eq!(refused(&mut rotation, &any, (1, 0), Time::END).concat().len(), 40);
        rotation.handle_failure();
        assert_eq!(refused(&mut rotation, &freed(&[]), (2, 0), Time::END).concat().len(), 40);
        rotation.handle_failure();
        rotation.restart(&freed(&[]), at(3), 0);
        rotation.take_candidates();
        rotation.end();
        assert_eq!(refused(&mut rotation, &freed(&[]), (4, 0), Time::END).concat().len(), 40);
    }
}
