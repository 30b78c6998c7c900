//! The keys of a session on its nodes: what is left of them, and how they are taken away.
//!
//! Nodes are looked at past the library under test, by connections of their own.

use crate::session::RESOURCES;
use crate::task;
use redis::{Cmd, Connection, ErrorKind, RedisResult, ServerErrorKind};
use std::collections::BTreeSet;
use std::time::Duration;

/// How long a node may take to be connected, and to answer.
const LIMIT: Duration = Duration::from_secs(20);
/// How many keys a node looks at in one step.
const STEP: u32 = 1_000;
/// What the names of fencing counters have in them.
const COUNTER: &[u8] = b"#quorlock:token";

/// The keys of a session on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    /// Locks that nobody has released, and that have not expired.
    pub locks: Vec<Vec<u8>>,
    /// Fencing counters. They outlive their locks on purpose.
    pub counters: Vec<Vec<u8>>,
    /// Counters that would never go: each must have a ttl.
    pub endless: Vec<Vec<u8>>,
}

impl Keys {
    /// Those on the node of that URL whose names begin with `prefix`.
    ///
    /// # Errors
    ///
    /// If the node cannot be reached, or asked. Where it does not allow SCAN, it is asked for the keys that a session
    /// is known to make.
    pub fn on(url: &str, prefix: &str) -> RedisResult<Self> {
        let connection = &mut connection(url)?;
        let all = match scan(connection, prefix) {
            Err(error) if is_forbidden(&error) => known(prefix),
            scanned => scanned?,
        };
        let mut keys = Self::default();
        for key in all {
            let left: i64 = redis::cmd("PTTL").arg(&key).query(connection)?;
            match left {
                // It has gone meanwhile, or never was there.
                -2 => {}
                _ if !is_counter(&key) => keys.locks.push(key),
                -1 => keys.endless.push(key),
                _ => keys.counters.push(key),
            }
        }
        Ok(keys)
    }

    /// How many there are that should not be.
    pub fn leaked(&self) -> u64 {
        (self.locks.len() + self.endless.len()) as u64
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Takes them away from the node of that URL.
    ///
    /// # Errors
    ///
    /// As [`on`](Self::on).
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

/// `text` as a pattern that only it fits.
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

/// The names of all that a session locks.
fn known(prefix: &str) -> BTreeSet<Vec<u8>> {
    let locks = (0..RESOURCES).map(|resource| format!("{prefix}{}", task::name(resource)));
    let both = locks.flat_map(|lock| {
        // As the library names them where the lock has no hash tag of its own.
        let counter = format!("{lock}#quorlock:token:{{{lock}}}");
        [lock.into_bytes(), counter.into_bytes()]
    });
    both.collect()
}

fn is_counter(key: &[u8]) -> bool {
    key.windows(COUNTER.len()).any(|part| part == COUNTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_fits_itself_alone() {
        assert_eq!(escaped("app:[a]*?\\^b"), "app:\\[a\\]\\*\\?\\\\\\^b");
        assert_eq!(escaped("größe:{u}"), "größe:{u}");
    }

    #[test]
    fn a_counter_is_told_from_a_lock() {
        let known = known("p:");
        assert_eq!(known.len(), 2 * usize::from(RESOURCES));
        assert_eq!(known.iter().filter(|key| is_counter(key)).count(), usize::from(RESOURCES));
        assert!(known.contains(b"p:resource:7".as_slice()));
    }
}
