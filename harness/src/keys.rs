//! The keys that a session left on its nodes. Separate connections read and delete these keys,
//! because the library is under test.

use crate::resources;
use redis::{Cmd, Connection, ErrorKind, RedisResult, ServerErrorKind};
use std::collections::BTreeSet;
use std::time::Duration;

/// The time limit for a connection attempt and for each reply.
const LIMIT: Duration = Duration::from_secs(20);
const STEP: u32 = 1_000;
/// Kinds of companion keys that outlive their lock: fencing counters, the counters and records of jobs, and the
/// notes about waiting writers and readers.
const LASTING: [&str; 5] = ["token", "period", "run", "writer", "waiting"];
const READERS: &str = "readers";

/// The keys that a session left on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    /// Keys of locks that were not released and have not expired.
    pub locks: Vec<Vec<u8>>,
    /// Counters and other companion keys with a TTL, which are meant to outlive their locks.
    pub counters: Vec<Vec<u8>>,
    /// Companion keys without a TTL. They would never expire, which is a bug.
    pub endless: Vec<Vec<u8>>,
}

impl Keys {
    /// Reads all keys with `prefix` on the node at `url`. If the node forbids `SCAN`, reads only
    /// the keys that a session can create.
    ///
    /// # Errors
    ///
    /// Returns an error if the node is unreachable or replies with an error.
    pub fn on(url: &str, prefix: &str) -> RedisResult<Self> {
        let connection = &mut connection(url)?;
        let all = match scan(connection, prefix) {
            Err(error) if is_forbidden(&error) => session_keys(prefix),
            scanned => scanned?,
        };
        let mut keys = Self::default();
        for key in all {
            let left: i64 = redis::cmd("PTTL").arg(&key).query(connection)?;
            match left {
                // The key has expired, or never existed.
                -2 => {}
                _ if !is_lasting(&key) => keys.locks.push(key),
                -1 => keys.endless.push(key),
                _ => keys.counters.push(key),
            }
        }
        Ok(keys)
    }

    /// Returns the number of leaked keys: lock keys, and companion keys without a TTL.
    pub fn leaked(&self) -> u64 {
        (self.locks.len() + self.endless.len()) as u64
    }

    /// Returns true if the session left no keys.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Deletes these keys on the node at `url`.
    ///
    /// # Errors
    ///
    /// Returns an error if the node is unreachable or replies with an error.
    pub fn remove(&self, url: &str) -> RedisResult<()> {
        let connection = &mut connection(url)?;
        for key in [&self.locks, &self.counters, &self.endless].into_iter().flatten() {
            redis::cmd("DEL").arg(key).query::<()>(connection)?;
        }
        Ok(())
    }
}

fn connection(url: &str) -> RedisResult<Connection> {
    let connection = redis::Client::open(url)?.get_connection_with_timeout(LIMIT)?;
    connection.set_read_timeout(Some(LIMIT))?;
    connection.set_write_timeout(Some(LIMIT))?;
    Ok(connection)
}

fn scan(connection: &mut Connection, prefix: &str) -> RedisResult<BTreeSet<Vec<u8>>> {
    let (mut all, mut cursor) = (BTreeSet::new(), 0_u64);
    loop {
        let mut step = redis::cmd("SCAN");
        step.arg(cursor).arg("MATCH").arg(format!("{}*", escaped(prefix)));
        let step: &Cmd = step.arg("COUNT").arg(STEP);
        let (next, found): (u64, Vec<Vec<u8>>) = step.query(connection)?;
        all.extend(found);
        if next == 0 {
            return Ok(all);
        }
        cursor = next;
    }
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if matches!(character, '*' | '?' | '[' | ']' | '^' | '\\') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

fn is_forbidden(error: &redis::RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm)
}

fn session_keys(prefix: &str) -> BTreeSet<Vec<u8>> {
    let each = resources::keys(prefix).flat_map(|key| {
        // The library's name for a companion key of a key with or without a hash tag.
        let tag = if key.contains('{') { String::new() } else { format!(":{{{key}}}") };
        let kinds = LASTING.into_iter().chain([READERS]);
        let companions = kinds.map(|kind| format!("{key}#quorlock:{kind}{tag}").into_bytes());
        let companions: Vec<_> = companions.collect();
        companions.into_iter().chain([key.into_bytes()])
    });
    each.collect()
}

fn is_lasting(key: &[u8]) -> bool {
    let key = String::from_utf8_lossy(key);
    LASTING.iter().any(|kind| key.contains(&format!("#quorlock:{kind}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_prefix_matches_only_itself() {
        assert_eq!(escaped("app:[a]*?\\^b"), "app:\\[a\\]\\*\\?\\\\\\^b");
        assert_eq!(escaped("größe:{u}"), "größe:{u}");
    }

    #[test]
    fn locks_and_lasting_companion_keys_are_distinguished() {
        let known = session_keys("p:");
        assert_eq!(known.len(), 7 * usize::from(resources::RESOURCES));
        assert_eq!(
            known.iter().filter(|key| is_lasting(key)).count(),
            5 * usize::from(resources::RESOURCES)
        );
        for key in [
            "p:resource:7",
            "p:resource:7#quorlock:token:{p:resource:7}",
            "p:resource:0#quorlock:readers:{p:resource:0}",
            "p:job:27#quorlock:period:{p:job:27}",
            "p:job:27#quorlock:run:{p:job:27}",
            "p:semaphore:20#quorlock:permit1:{p:semaphore:20}",
            "p:semaphore:20#quorlock:permit1:{p:semaphore:20}#quorlock:token",
        ] {
            assert!(known.contains(key.as_bytes()), "{key}");
        }
    }
}
