//! Values of a process, of which a forked process has its own.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Maximum number of processes that come from each other by fork and have a value each.
const GENERATIONS: usize = 64;

/// The values of this process and of those that it was forked from, oldest first.
///
/// 1. A thread of the parent has locked the value of its process.
/// 2. Another thread forks.
/// 3. In the child, the value stays locked, and the parent's threads do not exist.
///
/// So the child makes its own value, in a slot that no process before it has touched.
pub(crate) struct PerProcess<T>([Slot<T>; GENERATIONS]);

struct Slot<T> {
    /// The process that the slot belongs to; 0 if it is free.
    process: AtomicU32,
    value: OnceLock<T>,
}

impl<T> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self([const { Slot { process: AtomicU32::new(0), value: OnceLock::new() } }; GENERATIONS])
    }

    /// The value of `process`, which is the current one. `None` if all slots belong to other processes.
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
