//! The leases of one client.

use super::state::Holding;
use crate::node::{Claim, PushSink};
use crate::protocol::{NodeId, Tenure};
use crate::sync::lock;
use crate::time::clock;
use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

/// The leases that were acquired and not yet released, by key.
#[derive(Default)]
pub(crate) struct Roster {
    book: Mutex<Book>,
}

#[derive(Default)]
struct Book {
    leases: HashMap<Entry, Weak<Holding>>,
    is_closed: bool,
}

/// One of the keys of a claim.
struct Entry {
    claim: Arc<Claim>,
    place: usize,
}

impl Roster {
    /// Enters a lease; false if the client has been closed meanwhile.
    pub(crate) fn enter(&self, holding: &Arc<Holding>) -> bool {
        let mut book = self.book();
        if book.is_closed {
            return false;
        }
        let claim = holding.claim();
        for place in 0..claim.keys().len() {
            let entry = Entry { claim: claim.clone(), place };
            // An older lease of the same key must have ended; its entry would keep its claim.
            book.leases.remove(&entry);
            book.leases.insert(entry, Arc::downgrade(holding));
        }
        true
    }

    /// Strikes out the lease of `claim`, but not a later one of the same keys.
    pub(crate) fn remove(&self, claim: &Arc<Claim>) {
        let mut book = self.book();
        for key in claim.keys().iter() {
            let known = book.leases.get_key_value(key);
            if known.is_some_and(|(entry, _)| Arc::ptr_eq(&entry.claim, claim)) {
                book.leases.remove(key);
            }
        }
    }

    /// True if a lease on `key` is valid in this client.
    pub(crate) fn holds(&self, key: &[u8]) -> bool {
        let known = self.book().leases.get(key).and_then(Weak::upgrade);
        known.is_some_and(|holding| {
            matches!(holding.renewal().tenure(clock::now()), Tenure::Held { .. })
        })
    }

    /// The leases that there are now, each once.
    pub(crate) fn all(&self) -> Vec<Arc<Holding>> {
        let book = self.book();
        let firsts = book.leases.iter().filter(|(entry, _)| entry.place == 0);
        firsts.filter_map(|(_, holding)| holding.upgrade()).collect()
    }

    /// How many keys are entered.
    #[cfg(feature = "test-util")]
    pub(crate) fn count(&self) -> usize {
        self.book().leases.len()
    }

    /// Takes no more leases; those that there are.
    pub(crate) fn close(&self) -> Vec<Arc<Holding>> {
        self.book().is_closed = true;
        self.all()
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        lock(&self.book)
    }
}

impl PushSink for Roster {
    fn handle_push(&self, node: NodeId, key: Option<&[u8]>) {
        let told = match key {
            Some(key) => self.book().leases.get(key).and_then(Weak::upgrade).into_iter().collect(),
            None => self.all(),
        };
        for holding in told {
            holding.handle_push(node);
        }
    }

    fn handle_step(&self, ahead: Duration) {
        for holding in self.all() {
            holding.handle_step(ahead);
        }
    }
}

impl Entry {
    fn key(&self) -> &[u8] {
        self.claim.keys().get(self.place).unwrap_or_default()
    }
}

impl Borrow<[u8]> for Entry {
    fn borrow(&self) -> &[u8] {
        self.key()
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Entry {}

impl Hash for Entry {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}
