//! A slab whose IDs are never reused, so that a late reply cannot be attributed to a newer entry.

use slab::Slab;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

/// ID of an entry of kind `K` in [`Slots`]. IDs are ordered by the time of insertion.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Id<K> {
    serial: u64,
    place: usize,
    kind: PhantomData<fn() -> K>,
}

/// ID of an acquire. Valid until the caller has taken the lease or the acquire has failed.
pub(crate) type AcquireId = Id<Acquires>;
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Acquires {}

/// ID of a request that waits for a change of a key. Valid until the request is completed or cancelled.
pub(crate) type ChangeId = Id<Changes>;
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Changes {}

/// ID of a lease. Valid until the lease is released.
pub(crate) type LeaseId = Id<Leases>;
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Leases {}

/// ID of a round, in which a command is sent to several nodes and their votes are counted. Also identifies the
/// extension, release or status request that started the round.
pub(crate) type RoundId = Id<Rounds>;
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rounds {}

pub(super) struct Slots<K, T> {
    entries: Slab<(u64, T)>,
    last_serial: u64,
    kind: PhantomData<fn() -> K>,
}

impl<K: Copy, T> Slots<K, T> {
    pub(super) fn new() -> Self {
        Self { entries: Slab::new(), last_serial: 0, kind: PhantomData }
    }

    pub(super) fn insert(&mut self, value: T) -> Id<K> {
        self.last_serial += 1;
        let serial = self.last_serial;
        Id { serial, place: self.entries.insert((serial, value)), kind: PhantomData }
    }

    pub(super) fn get(&self, id: Id<K>) -> Option<&T> {
        self.entries
            .get(id.place)
            .filter(|(serial, _)| *serial == id.serial)
            .map(|(_, value)| value)
    }

    pub(super) fn get_mut(&mut self, id: Id<K>) -> Option<&mut T> {
        let entry = self.entries.get_mut(id.place).filter(|(serial, _)| *serial == id.serial);
        entry.map(|(_, value)| value)
    }

    pub(super) fn remove(&mut self, id: Id<K>) -> Option<T> {
        self.get(id)?;
        Some(self.entries.remove(id.place).1)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Id<K>, &T)> {
        self.entries.iter().map(|(place, (serial, value))| {
            (Id { serial: *serial, place, kind: PhantomData }, value)
        })
    }

    /// Returns all IDs, oldest entry first.
    pub(super) fn ids(&self) -> Vec<Id<K>> {
        let mut ids: Vec<_> = self.iter().map(|(id, _)| id).collect();
        ids.sort_unstable_by_key(|id| id.serial);
        ids
    }
}

/// A map from the IDs of [`Slots`] to values. Removing an entry from the [`Slots`] does not remove its value from the
/// map. The value stays until it is removed too, or replaced by the value of a newer entry in the same slot.
pub(super) struct SlotMap<K, T> {
    values: Vec<Option<(u64, T)>>,
    kind: PhantomData<fn() -> K>,
}

impl<K: Copy, T> SlotMap<K, T> {
    pub(super) fn new() -> Self {
        Self { values: Vec::new(), kind: PhantomData }
    }

    pub(super) fn insert(&mut self, id: Id<K>, value: T) {
        if self.values.len() <= id.place {
            self.values.resize_with(id.place + 1, || None);
        }
        self.values[id.place] = Some((id.serial, value));
    }

    pub(super) fn get(&self, id: Id<K>) -> Option<&T> {
        let (serial, value) = self.values.get(id.place)?.as_ref()?;
        (*serial == id.serial).then_some(value)
    }

    pub(super) fn get_mut(&mut self, id: Id<K>) -> Option<&mut T> {
        let (serial, value) = self.values.get_mut(id.place)?.as_mut()?;
        (*serial == id.serial).then_some(value)
    }

    pub(super) fn remove(&mut self, id: Id<K>) -> Option<T> {
        let value = self.values.get_mut(id.place)?;
        value.take_if(|(serial, _)| *serial == id.serial).map(|(_, value)| value)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Id<K>, &T)> {
        self.values.iter().enumerate().filter_map(|(place, value)| {
            let (serial, value) = value.as_ref()?;
            Some((Id { serial: *serial, place, kind: PhantomData }, value))
        })
    }
}

impl<K> Hash for Id<K> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.serial.hash(state);
    }
}

impl<K> fmt::Debug for Id<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.serial)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifier_of_a_removed_entry_finds_no_later_entry() {
        let mut slots = Slots::<Rounds, _>::new();
        let first = slots.insert('a');
        assert_eq!(slots.remove(first), Some('a'));
        let second = slots.insert('b');
        assert!(slots.get(first).is_none() && slots.get_mut(first).is_none());
        assert_eq!(slots.remove(first), None);
        assert_eq!((slots.get(second), slots.len()), (Some(&'b'), 1));
        assert!(first < second && first != second);
        assert_eq!(slots.ids(), [second]);
    }

    #[test]
    fn value_of_a_removed_entry_is_not_found_for_a_later_entry() {
        let (mut slots, mut values) = (Slots::<Rounds, _>::new(), SlotMap::new());
        let first = slots.insert(());
        values.insert(first, 'a');
        slots.remove(first);
        let second = slots.insert(());
        assert!(values.get(second).is_none() && values.get_mut(second).is_none());
        assert_eq!((values.remove(second), values.get(first)), (None, Some(&'a')));
        values.insert(second, 'b');
        assert_eq!((values.remove(first), values.get(second)), (None, Some(&'b')));
        assert_eq!(values.iter().collect::<Vec<_>>(), [(second, &'b')]);
        assert_eq!((values.remove(second), values.iter().count()), (Some('b'), 0));
    }
}
