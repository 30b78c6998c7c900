//! Keys of a server and their expiry.

use std::collections::{BTreeMap, BTreeSet};

/// Type and content of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A string, such as the value of a lock.
    String(Vec<u8>),
    /// A set. Only other programs store sets.
    Set(BTreeSet<Vec<u8>>),
    /// A list, from head to tail. Only other programs store lists.
    List(Vec<Vec<u8>>),
    /// A sorted set: the score of each member. Only whole numbers are modelled as scores. The readers of a lock are a
    /// sorted set.
    SortedSet(BTreeMap<Vec<u8>, i64>),
}

/// A key's content and expiry, as returned by [`Server::keys`](super::Server::keys).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Number of the database.
    pub db: u32,
    /// Type and content of the key.
    pub kind: Kind,
    /// Expiry in microseconds since the Unix epoch, or `None` if the key has no TTL. This is the
    /// first microsecond at which the key no longer exists. Redis keeps a key until the millisecond
    /// of its expiry time has passed.
    pub expires_at_us: Option<u64>,
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    /// Expiry in milliseconds since the Unix epoch, or `None` if the key has no TTL. The key still
    /// exists in this millisecond.
    pub(crate) expires_ms: Option<i64>,
}

#[derive(Debug, Default)]
pub(crate) struct Keyspace(BTreeMap<u32, BTreeMap<Vec<u8>, Entry>>);

impl Entry {
    pub(crate) fn is_expired(&self, now_ms: i64) -> bool {
        self.expires_ms.is_some_and(|expires| now_ms > expires)
    }

    fn expires_at_us(&self) -> Option<u64> {
        let expires = u64::try_from(self.expires_ms?.max(-1) + 1).unwrap_or_default();
        Some(expires.saturating_mul(1_000))
    }
}

impl Keyspace {
    pub(crate) fn get(&self, db: u32, key: &[u8]) -> Option<&Entry> {
        self.0.get(&db)?.get(key)
    }

    pub(crate) fn set(&mut self, db: u32, key: &[u8], entry: Entry) {
        self.0.entry(db).or_default().insert(key.to_vec(), entry);
    }

    pub(crate) fn remove(&mut self, db: u32, key: &[u8]) -> Option<Entry> {
        self.0.get_mut(&db)?.remove(key)
    }

    pub(crate) fn clear(&mut self, db: Option<u32>) {
        self.0.retain(|one, _| db.is_some_and(|db| *one != db));
    }

    pub(crate) fn databases_of(&self, key: &[u8]) -> Vec<u32> {
        self.0.iter().filter(|(_, keys)| keys.contains_key(key)).map(|(db, _)| *db).collect()
    }

    /// Returns the expired keys, sorted by expiry time.
    pub(crate) fn expired(&self, now_ms: i64) -> Vec<(u32, Vec<u8>)> {
        let expired = self.all().filter(|(_, _, entry)| entry.is_expired(now_ms));
        let mut expired: Vec<_> =
            expired.map(|(db, key, entry)| (entry.expires_ms, db, key.to_vec())).collect();
        expired.sort();
        expired.into_iter().map(|(_, db, key)| (db, key)).collect()
    }

    pub(crate) fn next_end_us(&self) -> Option<u64> {
        self.all().filter_map(|(_, _, entry)| entry.expires_at_us()).min()
    }

    /// Returns the keys that have not expired, sorted by database and name.
    pub(crate) fn stored(&self, now_ms: i64) -> impl Iterator<Item = (&[u8], Stored)> {
        let existing = self.all().filter(move |(_, _, entry)| !entry.is_expired(now_ms));
        existing.map(|(db, key, entry)| {
            let expires_at_us = entry.expires_at_us();
            (key, Stored { db, kind: entry.kind.clone(), expires_at_us })
        })
    }

    fn all(&self) -> impl Iterator<Item = (u32, &[u8], &Entry)> {
        self.0.iter().flat_map(|(db, keys)| keys.iter().map(|(key, entry)| (*db, &**key, entry)))
    }
}
