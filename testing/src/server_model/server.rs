//! The state of the server model, and the model's public methods.

use crate::server_model::config::Config;
use crate::server_model::keyspace::{Entry, Keyspace, Kind, Stored};
use crate::server_model::output::{ConnId, Output};
use crate::server_model::reply::{Reply, invalidation};
use crate::server_model::script::Scripts;
use crate::server_model::session::ClientSession;
use crate::server_model::tracking::Tracking;
use crate::server_model::trouble::Trouble;
use std::collections::BTreeMap;

/// Model of one Redis server process.
///
/// Many methods have a parameter `wall_us`: the current time of the server's wall clock, in
/// microseconds since the Unix epoch. The time may decrease from call to call.
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
    /// Invalidations for the connection whose command is running. Whether they are sent before or
    /// after the reply depends on the version. Each entry is an invalidated key, or `None` if all
    /// keys were flushed.
    pub(crate) own_pushes: Vec<Option<Vec<u8>>>,
    outbox: Vec<Output>,
    next_conn: u64,
    next_client_id: u64,
}

impl Server {
    /// Starts an empty server at time `wall_us`.
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

    /// Opens a connection for a client.
    pub fn connect(&mut self) -> ConnId {
        let conn = ConnId(self.next_conn);
        self.next_conn += 1;
        let session = ClientSession::new(self.next_client_id, self.config.password.is_some());
        self.next_client_id += 1;
        self.sessions.insert(conn, session);
        conn
    }

    /// Closes a connection from the client's side. Commands that are still in transit are never
    /// executed.
    pub fn disconnect(&mut self, conn: ConnId) {
        self.sessions.remove(&conn);
    }

    /// Deletes expired keys, as a real server does periodically. Returns the resulting
    /// invalidations. A replica, a busy server and a loading server delete no keys.
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

    /// Returns the earliest time at which [`expire`](Self::expire) deletes a key, which may be in the
    /// past. Returns `None` if no key has a TTL, or if the server deletes no expired keys.
    pub fn next_expiry(&self) -> Option<u64> {
        self.keyspace.next_end_us().filter(|_| self.deletes_expired_keys())
    }

    /// Replaces the server process with a new one. Connections and scripts are lost. Keys are lost
    /// unless `keeps_keys` is true. The server's [`Trouble`], if any, persists.
    pub fn restart(&mut self, config: Config, keeps_keys: bool, wall_us: u64) {
        let old = std::mem::replace(self, Self::new(config, wall_us));
        self.next_conn = old.next_conn;
        self.trouble = old.trouble;
        if keeps_keys {
            self.keyspace = old.keyspace;
        }
    }

    /// Puts the server into a state in which it refuses commands. If `trouble` is `None`, the
    /// server operates normally again.
    pub fn set_trouble(&mut self, trouble: Option<Trouble>) {
        self.trouble = trouble;
    }

    /// Changes the configuration, as `CONFIG SET` and `ACL SETUSER` do. Authenticated connections
    /// stay authenticated.
    pub fn configure(&mut self, change: impl FnOnce(&mut Config)) {
        change(&mut self.config);
    }

    /// Returns the server's configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the keys that exist at `wall_us`, sorted by database and name.
    pub fn keys(&self, wall_us: u64) -> impl Iterator<Item = (&[u8], Stored)> {
        self.keyspace.stored(millis(wall_us))
    }

    /// Deletes all keys of all databases on behalf of another client.
    pub fn flush(&mut self, wall_us: u64) -> Vec<Output> {
        self.now_us = wall_us;
        self.flush_keys(None, None);
        self.outputs()
    }

    /// Sets a key in database 0 on behalf of another client, with a TTL of `ttl_ms` milliseconds.
    pub fn put(&mut self, key: &[u8], value: &[u8], ttl_ms: i64, wall_us: u64) -> Vec<Output> {
        self.now_us = wall_us;
        let expires_ms = Some(self.now_ms().saturating_add(ttl_ms));
        self.keyspace.set(0, key, Entry { kind: Kind::String(value.to_vec()), expires_ms });
        self.invalidate(key, None);
        self.outputs()
    }

    /// Deletes a key in every database, as an eviction or another client does.
    pub fn delete(&mut self, key: &[u8], wall_us: u64) -> Vec<Output> {
        self.now_us = wall_us;
        for db in self.keyspace.databases_of(key) {
            self.keyspace.remove(db, key);
            self.invalidate(key, None);
        }
        self.outputs()
    }

    /// Returns the number of open connections.
    pub fn connections(&self) -> usize {
        self.sessions.len()
    }

    /// Returns the client ID of a connection, for `CLIENT KILL`. Returns `None` if the connection
    /// does not exist.
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

    /// Sends an invalidation of `key` to the connections that have read `key`. `by` is the connection
    /// that changed the key. In `NOLOOP` mode, `by` receives no invalidation.
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

    /// Deletes the keys of the database `db`, or of all databases if `db` is `None`. Sends an
    /// invalidation of all keys to every connection with tracking, including the connection `by`
    /// that caused the flush.
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
        // Only RESP3 supports pushes.
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

    /// Closes a connection after the pending replies are sent.
    pub(crate) fn close(&mut self, conn: ConnId) {
        self.sessions.remove(&conn);
        self.outbox.push(Output::Close(conn));
    }

    /// Closes a connection immediately, and discards its pending replies.
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
