//! The server, as whoever plays it sees it.

use crate::server_model::config::Config;
use crate::server_model::keyspace::{Entry, Keyspace, Kind, Stored};
use crate::server_model::output::{ConnId, Output};
use crate::server_model::reply::{Reply, invalidation};
use crate::server_model::script::Scripts;
use crate::server_model::session::ClientSession;
use crate::server_model::tracking::Tracking;
use crate::server_model::trouble::Trouble;
use std::collections::BTreeMap;

/// A Redis server. See the crate's page.
///
/// Times are those of its wall clock, in microseconds since 1970. They may go back.
#[derive(Debug)]
pub struct Server {
    pub(crate) config: Config,
    pub(crate) trouble: Option<Trouble>,
    pub(crate) started_us: u64,
    pub(crate) now_us: u64,
    pub(crate) keyspace: Keyspace,
    pub(crate) tracking: Tracking,
    pub(crate) scripts: Scripts,
    pub(crate) sessions: BTreeMap<ConnId, ClientSession>,
    /// What is to be pushed to whose turn it is, behind the reply: a key, or that all were flushed.
    pub(crate) own_pushes: Vec<Option<Vec<u8>>>,
    outbox: Vec<Output>,
    next_conn: u64,
    next_client_id: u64,
}

impl Server {
    /// A server that starts when its clock shows `wall_us`.
    pub fn new(config: Config, wall_us: u64) -> Self {
        Self {
            trouble: None,
            started_us: wall_us,
            now_us: wall_us,
            keyspace: Keyspace::default(),
            tracking: Tracking::default(),
            scripts: Scripts::default(),
            sessions: BTreeMap::new(),
            own_pushes: Vec::new(),
            outbox: Vec::new(),
            next_conn: 0,
            next_client_id: config.first_client_id,
            config,
        }
    }

    /// Somebody connects.
    pub fn connect(&mut self) -> ConnId {
        let conn = ConnId(self.next_conn);
        self.next_conn += 1;
        let session = ClientSession::new(self.next_client_id, self.config.password.is_some());
        self.next_client_id += 1;
        self.sessions.insert(conn, session);
        conn
    }

    /// The peer has closed the connection. What of its stream has not come is never run.
    pub fn disconnect(&mut self, conn: ConnId) {
        self.sessions.remove(&conn);
    }

    /// Drops the keys whose time is over, as the server does from time to time, and tells who wants to
    /// know. A replica drops none, nor does a server that is busy or loading.
    pub fn expire(&mut self, wall_us: u64) -> Vec<Output> {
        self.now_us = wall_us;
        if self.drops_keys() {
            for (db, key) in self.keyspace.over(self.now_ms()) {
                self.keyspace.remove(db, &key);
                self.invalidate(&key, None);
            }
        }
        self.outputs()
    }

    /// From when on [`expire`](Self::expire) would drop a key; that may be over.
    pub fn next_expiry(&self) -> Option<u64> {
        self.keyspace.next_end_us().filter(|_| self.drops_keys())
    }

    /// The process ends, and another one starts. All connections are gone without a word, and so is all
    /// that was in memory but keys that were on the disk. What is wrong with the server stays.
    pub fn restart(&mut self, config: Config, keeps_keys: bool, wall_us: u64) {
        let old = std::mem::replace(self, Self::new(config, wall_us));
        self.next_conn = old.next_conn;
        self.trouble = old.trouble;
        if keeps_keys {
            self.keyspace = old.keyspace;
        }
    }

    /// Something goes wrong with the server, or all is well again.
    pub fn set_trouble(&mut self, trouble: Option<Trouble>) {
        self.trouble = trouble;
    }

    /// Changes settings, as `CONFIG SET` and `ACL SETUSER` do: who is logged in stays so.
    pub fn configure(&mut self, change: impl FnOnce(&mut Config)) {
        change(&mut self.config);
    }

    /// How it is set up.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The keys that stand at this time, sorted, database by database.
    pub fn keys(&self, wall_us: u64) -> impl Iterator<Item = (&[u8], Stored)> {
        self.keyspace.stored(millis(wall_us))
    }

    /// Somebody flushes all databases.
    pub fn flush(&mut self, wall_us: u64) -> Vec<Output> {
        self.now_us = wall_us;
        self.flush_keys(None, None);
        self.outputs()
    }

    /// Somebody else sets the key, in database 0, for so many milliseconds.
    pub fn put(&mut self, key: &[u8], value: &[u8], ttl_ms: i64, wall_us: u64) -> Vec<Output> {
        self.now_us = wall_us;
        let expires_ms = Some(self.now_ms().saturating_add(ttl_ms));
        self.keyspace.set(0, key, Entry { kind: Kind::String(value.to_vec()), expires_ms });
        self.invalidate(key, None);
        self.outputs()
    }

    /// The key goes, in every database: evicted, or deleted by somebody else.
    pub fn delete(&mut self, key: &[u8], wall_us: u64) -> Vec<Output> {
        self.now_us = wall_us;
        for db in self.keyspace.databases_of(key) {
            self.keyspace.remove(db, key);
            self.invalidate(key, None);
        }
        self.outputs()
    }

    /// How many connections there are.
    pub fn connections(&self) -> usize {
        self.sessions.len()
    }

    /// The id by which `CLIENT KILL` names a connection; `None` if there is no such connection.
    pub fn client_id(&self, conn: ConnId) -> Option<u64> {
        Some(self.sessions.get(&conn)?.client_id)
    }

    pub(crate) fn now_ms(&self) -> i64 {
        millis(self.now_us)
    }

    pub(crate) fn is_replica(&self) -> bool {
        self.config.is_replica
            || matches!(self.trouble, Some(Trouble::ReadOnly | Trouble::MasterDown))
    }

    fn drops_keys(&self) -> bool {
        !self.is_replica() && !matches!(self.trouble, Some(Trouble::Busy | Trouble::Loading))
    }

    /// Tells that the key has changed, but not `by` whom if it does not want to know.
    pub(crate) fn invalidate(&mut self, key: &[u8], by: Option<ConnId>) {
        for reader in self.tracking.take(key) {
            let mode = self.sessions.get(&reader).and_then(|session| session.tracking);
            match mode {
                None => {}
                Some(mode) if by == Some(reader) && mode.no_loop => {}
                Some(_) if by == Some(reader) => self.own_pushes.push(Some(key.to_vec())),
                Some(_) => self.push(reader, Some(key)),
            }
        }
    }

    /// Removes all keys, and tells everybody who wants to know of any, also `by` whom it was.
    pub(crate) fn flush_keys(&mut self, db: Option<u32>, by: Option<ConnId>) {
        self.keyspace.clear(db);
        self.tracking.clear();
        let tracking = self.sessions.iter().filter(|(_, session)| session.tracking.is_some());
        for conn in tracking.map(|(conn, _)| *conn).collect::<Vec<_>>() {
            if by == Some(conn) {
                self.own_pushes.push(None);
            } else {
                self.push(conn, None);
            }
        }
    }

    pub(crate) fn push(&mut self, conn: ConnId, key: Option<&[u8]>) {
        // The older protocol has no pushes.
        if self.sessions.get(&conn).is_some_and(|session| session.resp3) {
            self.send(conn, invalidation(key));
        }
    }

    pub(crate) fn answer(&mut self, conn: ConnId, reply: &Reply) {
        let Some(session) = self.sessions.get(&conn) else { return };
        let mut bytes = Vec::new();
        reply.write(session.resp3, &mut bytes);
        self.send(conn, bytes);
    }

    /// Closes a connection behind what was said to it.
    pub(crate) fn close(&mut self, conn: ConnId) {
        self.sessions.remove(&conn);
        self.outbox.push(Output::Close(conn));
    }

    /// Closes a connection at once: what was said to it since the last time that the server has written
    /// is lost.
    pub(crate) fn kill(&mut self, conn: ConnId) {
        self.outbox.retain(|output| !matches!(output, Output::Bytes(to, _) if *to == conn));
        self.close(conn);
    }

    fn send(&mut self, conn: ConnId, bytes: Vec<u8>) {
        match self.outbox.last_mut() {
            Some(Output::Bytes(to, before)) if *to == conn => before.extend(bytes),
            _ => self.outbox.push(Output::Bytes(conn, bytes)),
        }
    }

    pub(crate) fn outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.outbox)
    }
}

fn millis(us: u64) -> i64 {
    i64::try_from(us / 1_000).unwrap_or(i64::MAX)
}
