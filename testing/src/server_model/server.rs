//! The server and its public methods.

use crate::server_model::config::Config;
use crate::server_model::keyspace::{Entry, Keyspace, Kind, Stored};
use crate::server_model::output::{ConnId, Output};
use crate::server_model::reply::{Reply, invalidation};
use crate::server_model::script::Scripts;
use crate::server_model::session::ClientSession;
use crate::server_model::tracking::Tracking;
use crate::server_model::trouble::Trouble;
use std::collections::BTreeMap;

/// A Redis server.
///
/// Times are readings of the server's wall clock, in microseconds since 1970. They may decrease.
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
    /// Pushes for the connection whose command runs, to be sent before or after its reply: a key,
    /// or `None` for a flush.
    pub(crate) own_pushes: Vec<Option<Vec<u8>>>,
    outbox: Vec<Output>,
    next_conn: u64,
    next_client_id: u64,
}

impl Server {
    /// Starts a server when its clock shows `wall_us`.
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

    /// A client connects.
    pub fn connect(&mut self) -> ConnId {
        let conn = ConnId(self.next_conn);
        self.next_conn += 1;
        let session = ClientSession::new(self.next_client_id, self.config.password.is_some());
        self.next_client_id += 1;
        self.sessions.insert(conn, session);
        conn
    }

    /// The client has closed the connection. Data in transit is never executed.
    pub fn disconnect(&mut self, conn: ConnId) {
        self.sessions.remove(&conn);
    }

    /// Deletes expired keys, as the server does periodically, and returns the invalidations. A
    /// replica deletes none, and neither does a busy or loading server.
    pub fn expire(&mut self, wall_us: u64) -> Vec<Output> {
        self.now_us = wall_us;
        if self.deletes_expired_keys() {
            for (db, key) in self.keyspace.expired(self.now_ms()) {
                self.keyspace.remove(db, &key);
                self.invalidate(&key, None);
            }
        }
        self.outputs()
    }

    /// The time from which [`expire`](Self::expire) deletes a key. It may have passed. `None` if no
    /// key has a ttl, or if the server deletes none.
    pub fn next_expiry(&self) -> Option<u64> {
        self.keyspace.next_end_us().filter(|_| self.deletes_expired_keys())
    }

    /// Replaces the process by a new one. All connections, the scripts and, unless `keeps_keys`,
    /// the keys are lost. The server's trouble remains.
    pub fn restart(&mut self, config: Config, keeps_keys: bool, wall_us: u64) {
        let old = std::mem::replace(self, Self::new(config, wall_us));
        self.next_conn = old.next_conn;
        self.trouble = old.trouble;
        if keeps_keys {
            self.keyspace = old.keyspace;
        }
    }

    /// Begins or ends (`None`) a trouble of the server.
    pub fn set_trouble(&mut self, trouble: Option<Trouble>) {
        self.trouble = trouble;
    }

    /// Changes the configuration, as `CONFIG SET` and `ACL SETUSER` do. Authenticated connections
    /// remain so.
    pub fn configure(&mut self, change: impl FnOnce(&mut Config)) {
        change(&mut self.config);
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The keys that exist at `wall_us`, sorted by database and name.
    pub fn keys(&self, wall_us: u64) -> impl Iterator<Item = (&[u8], Stored)> {
        self.keyspace.stored(millis(wall_us))
    }

    /// Another client deletes all keys of all databases.
    pub fn flush(&mut self, wall_us: u64) -> Vec<Output> {
        self.now_us = wall_us;
        self.flush_keys(None, None);
        self.outputs()
    }

    /// Another client sets the key in database 0, with a ttl of `ttl_ms` milliseconds.
    pub fn put(&mut self, key: &[u8], value: &[u8], ttl_ms: i64, wall_us: u64) -> Vec<Output> {
        self.now_us = wall_us;
        let expires_ms = Some(self.now_ms().saturating_add(ttl_ms));
        self.keyspace.set(0, key, Entry { kind: Kind::String(value.to_vec()), expires_ms });
        self.invalidate(key, None);
        self.outputs()
    }

    /// Deletes the key in every database, as an eviction or another client does.
    pub fn delete(&mut self, key: &[u8], wall_us: u64) -> Vec<Output> {
        self.now_us = wall_us;
        for db in self.keyspace.databases_of(key) {
            self.keyspace.remove(db, key);
            self.invalidate(key, None);
        }
        self.outputs()
    }

    /// Number of open connections.
    pub fn connections(&self) -> usize {
        self.sessions.len()
    }

    /// The id of a connection for `CLIENT KILL`. `None` if the connection does not exist.
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

    fn deletes_expired_keys(&self) -> bool {
        !self.is_replica() && !matches!(self.trouble, Some(Trouble::Busy | Trouble::Loading))
    }

    /// Pushes the change of a key to the connections that have read it. `by` made the change; with
    /// `NOLOOP` it receives no push.
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

    /// Removes all keys, and pushes a flush to every tracking connection, including `by`, which
    /// caused it.
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
        // RESP2 has no pushes.
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

    /// Closes a connection after the pending replies.
    pub(crate) fn close(&mut self, conn: ConnId) {
        self.sessions.remove(&conn);
        self.outbox.push(Output::Close(conn));
    }

    /// Closes a connection at once, without the replies that the server has not written yet.
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
