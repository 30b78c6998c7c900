//! The keys of a semaphore's permits.

use crate::wire::{Key, Keys, queue_name};

pub(crate) struct Permits {
    pub(crate) keys: Keys,
    /// The queue of this client's acquires. `None` for a single permit, because its key is the name of the queue.
    pub(crate) queue: Option<Key>,
}

impl Permits {
    pub(crate) fn new(keys: Keys) -> Self {
        Self { queue: (keys.len() > 1).then(|| queue_name(&keys)), keys }
    }
}
