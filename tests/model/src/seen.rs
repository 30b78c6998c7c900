//! The states found so far, in order of discovery, each with the state from which it was reached.

use std::hash::{Hash, Hasher};

const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

/// A hasher that multiplies and rotates. It is sufficient for the few small words of a state.
#[derive(Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        // The low bits of a product do not depend on the high bits of its factors, but the slot
        // needs all bits.
        let mixed = (self.0 ^ (self.0 >> 32)).wrapping_mul(FACTOR);
        mixed ^ (mixed >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u8(&mut self, word: u8) {
        self.write_u64(u64::from(word));
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_isize(&mut self, word: isize) {
        self.write_u64(word.cast_unsigned() as u64);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(FACTOR);
    }
}

/// A set in insertion order. States are compared in full, so different states with equal hashes are
/// kept apart.
pub(crate) struct Seen<S> {
    states: Vec<S>,
    parents: Vec<u32>,
    /// A hash table. A slot contains the index of a state plus one, or 0 if it is free. At least
    /// half of the slots are free.
    slots: Vec<u32>,
}

impl<S: Copy + Eq + Hash> Seen<S> {
    pub(crate) fn starting_from(first: S) -> Self {
        let mut it = Self { states: Vec::new(), parents: Vec::new(), slots: vec![0; 1 << 16] };
        it.insert(first, 0);
        it
    }

    pub(crate) fn len(&self) -> usize {
        self.states.len()
    }

    pub(crate) fn get(&self, place: usize) -> S {
        self.states[place]
    }

    /// Adds `state`, which was reached from the state at index `parent`. Returns true if `state` is
    /// new.
    pub(crate) fn insert(&mut self, state: S, parent: usize) -> bool {
        let slot = self.slot_of(&state);
        if self.slots[slot] != 0 {
            return false;
        }
        self.states.push(state);
        self.parents.push(u32::try_from(parent).expect("fewer than 2^32 states"));
        self.slots[slot] = u32::try_from(self.states.len()).expect("fewer than 2^32 states");
        if self.states.len() * 2 > self.slots.len() {
            self.grow();
        }
        true
    }

    pub(crate) fn path_to(&self, mut place: usize) -> Vec<S> {
        let mut path = vec![self.states[place]];
        while place != 0 {
            place = self.parents[place] as usize;
            path.push(self.states[place]);
        }
        path.reverse();
        path
    }

    fn slot_of(&self, state: &S) -> usize {
        let mut mixer = Mixer::default();
        state.hash(&mut mixer);
        let mask = self.slots.len() - 1;
        let mut slot = usize::try_from(mixer.finish() >> 24).expect("40 bits") & mask;
        while self.slots[slot] != 0 && self.states[self.slots[slot] as usize - 1] != *state {
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn grow(&mut self) {
        self.slots = vec![0; self.slots.len() * 2];
        for place in 0..self.states.len() {
            let slot = self.slot_of(&self.states[place]);
            self.slots[slot] = u32::try_from(place + 1).expect("fewer than 2^32 states");
        }
    }
}
