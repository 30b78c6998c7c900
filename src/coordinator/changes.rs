//! Requests that wait until the key of a lock may have changed.

use super::slots::{ChangeId, Changes, Slots};
use super::watchers::Watchers;
use crate::wire::Keys;

pub(super) struct ChangeRequests {
    requests: Slots<Changes, ()>,
    watchers: Watchers<Changes>,
}

impl ChangeRequests {
    pub(super) fn new() -> Self {
        Self { requests: Slots::new(), watchers: Watchers::default() }
    }

    pub(super) fn insert(&mut self, keys: &Keys) -> ChangeId {
        let request = self.requests.insert(());
        self.watchers.add(request, keys);
        request
    }

    pub(super) fn remove(&mut self, request: ChangeId) {
        self.requests.remove(request);
        self.watchers.remove(request);
    }

    /// Removes and returns the requests that wait for a change of `key`, or all requests if `key` is `None`.
    pub(super) fn take(&mut self, key: Option<&[u8]>) -> Vec<ChangeId> {
        if self.watchers.is_empty() {
            return Vec::new();
        }
        let requests: Vec<_> = match key {
            Some(key) => self.watchers.of(key).collect(),
            None => self.requests.ids(),
        };
        for request in &requests {
            self.remove(*request);
        }
        requests
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        assert_eq!(self.requests.len() == 0, self.watchers.is_empty());
        self.requests.len()
    }
}
