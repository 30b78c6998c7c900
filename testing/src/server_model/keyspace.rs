//! The keys of a server, and when they end.

use std::collections::{BTreeMap, BTreeSet};

/// What stands at a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A string, such as the value of a lock.
    String(Vec<u8>),
    /// A set.
    Set(BTreeSet<Vec<u8>>),
    /// A list, its head first.
    List(Vec<Vec<u8>>),
}

/// A key's content, as it is seen from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The database that it stands in.
    pub db: u32,
    /// What stands there.
    pub kind: Kind,
    /// From when on it is gone, by the server's wall clock; `None` if it stands for ever. That is one
    /// millisecond after the time that it was given, at which it still stands.
    pub gone_at_us: Option<u64>,
}

/// What stands at a key, and the last millisecond in which it does.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    pub(crate) expires_ms: Option<i64>,
}

/// All keys.
#[derive(Debug, Default)]
pub(crate) struct Keyspace(BTreeMap<u32, BTreeMap<Vec<u8>, Entry>>);

impl Entry {
    pub(crate) fn is_over(&self, now_ms: i64) -> bool {
        self.expires_ms.is_some_and(|expires| now_ms > expires)
    }

    fn gone_at_us(&self) -> Option<u64> {
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

    /// Removes all keys, of one database or of all.
    pub(crate) fn clear(&mut self, db: Option<u32>) {
        self.0.retain(|one, _| db.is_some_and(|db| *one != db));
    }

    /// The databases that have the key.
    pub(crate) fn databases_of(&self, key: &[u8]) -> Vec<u32> {
        self.0.iter().filter(|(_, keys)| keys.contains_key(key)).map(|(db, _)| *db).collect()
    }

    /// The keys whose time is over, the earliest first.
    pub(crate) fn over(&self, now_ms: i64) -> Vec<(u32, Vec<u8>)> {
        let over = self.all().filter(|(_, _, entry)| entry.is_over(now_ms));
        let mut over: Vec<_> =
            over.map(|(db, key, entry)| (entry.expires_ms, db, key.to_vec())).collect();
        over.sort();
        over.into_iter().map(|(_, db, key)| (db, key)).collect()
    }

    pub(crate) fn next_end_us(&self) -> Option<u64> {
        self.all().filter_map(|(_, _, entry)| entry.gone_at_us()).min()
    }

    /// What stands there, in order, but for keys whose time is over.
    pub(crate) fn stored(&self, now_ms: i64) -> impl Iterator<Item = (&[u8], Stored)> {
        let stands = self.all().filter(move |(_, _, entry)| !entry.is_over(now_ms));
        stands.map(|(db, key, entry)| {
            let gone_at_us = entry.gone_at_us();
            (key, Stored { db, kind: entry.kind.clone(), gone_at_us })
        })
    }

    fn all(&self) -> impl Iterator<Item = (u32, &[u8], &Entry)> {
        self.0.iter().flat_map(|(db, keys)| keys.iter().map(|(key, entry)| (*db, &**key, entry)))
    }
}
