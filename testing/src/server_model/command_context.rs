//! Context in which the server executes one command.

use crate::server_model::keyspace::Entry;
use crate::server_model::output::ConnId;
use crate::server_model::server::Server;
use crate::server_model::session::ClientSession;

pub(crate) struct CommandContext<'a> {
    pub(crate) server: &'a mut Server,
    pub(crate) conn: ConnId,
    pub(crate) is_in_script: bool,
}

impl CommandContext<'_> {
    pub(crate) fn session(&mut self) -> &mut ClientSession {
        self.server
            .sessions
            .get_mut(&self.conn)
            .expect("a connection stays open while its command runs")
    }

    pub(crate) fn db(&mut self) -> u32 {
        self.session().db
    }

    /// Reads a key. Returns `None` if the key does not exist or has expired. An expired key is also
    /// deleted, except on a replica.
    pub(crate) fn find(&mut self, key: &[u8]) -> Option<Entry> {
        let (db, now) = (self.db(), self.server.now_ms());
        let entry = self.server.keyspace.get(db, key)?;
        if !entry.is_expired(now) {
            return Some(entry.clone());
        }
        if !self.server.is_replica() {
            self.server.keyspace.remove(db, key);
            self.touch(key, true);
        }
        None
    }

    pub(crate) fn put(&mut self, key: &[u8], entry: Entry) {
        let db = self.db();
        self.server.keyspace.set(db, key, entry);
        self.touch(key, false);
    }

    pub(crate) fn remove(&mut self, key: &[u8]) {
        let db = self.db();
        self.server.keyspace.remove(db, key);
        self.touch(key, false);
    }

    /// Sends invalidations for a key that has changed or expired. Before Redis 7.0, neither an
    /// expiry nor a change by a script counts as the connection's own change, so `NOLOOP` does not
    /// suppress the invalidation.
    fn touch(&mut self, key: &[u8], is_expired: bool) {
        let is_own = self.server.config.version.has((7, 0)) || !is_expired && !self.is_in_script;
        self.server.invalidate(key, is_own.then_some(self.conn));
    }
}
