//! A static value that each process creates for itself, so that a forked process does not use its parent's value.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The maximum number of nested forks in which each process gets its own value.
const GENERATIONS: usize = 64;

/// The values of this process and of the processes from which it was forked, oldest first.
///
/// A forked process cannot use the value of its parent:
///
/// 1. A thread of the parent locks the value.
/// 2. Another thread forks.
/// 3. In the child, the value stays locked, because the parent's threads do not exist.
///
/// The child therefore creates its own value, in a slot that no ancestor has touched.
pub(crate) struct PerProcess<T>([Slot<T>; GENERATIONS]);

struct Slot<T> {
    /// The ID of the process that owns the slot, or 0 if the slot is free.
    process: AtomicU32,
    value: OnceLock<T>,
}

impl<T> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self([const { Slot { process: AtomicU32::new(0), value: OnceLock::new() } }; GENERATIONS])
    }

    /// Returns the value of `process`, which must be the ID of the current process. Calls `init` if the process has no
    /// value yet. Returns `None` if ancestors of the process own all slots.
    pub(crate) fn get_or_init(&self, process: u32, init: impl FnOnce() -> T) -> Option<&T> {
        let order = (Ordering::AcqRel, Ordering::Acquire);
        let is_own = |slot: &&Slot<T>| {
            let taken = slot.process.compare_exchange(0, process, order.0, order.1);
            taken.map_or_else(|known| known == process, |_| true)
        };
        self.0.iter().find(is_own).map(|slot| slot.value.get_or_init(init))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_has_its_own_value_until_all_slots_are_taken() {
        let values = PerProcess::new();
        for process in 1..=64 {
            assert_eq!(values.get_or_init(process, || process), Some(&process));
        }
        assert_eq!(values.get_or_init(7, || unreachable!("there is one")), Some(&7));
        assert_eq!(values.get_or_init(65, || unreachable!("there is no slot")), None);
    }
}
