//! One command of one connection, while it runs: all that happens in it happens at one time.

use crate::server_model::keyspace::Entry;
use crate::server_model::output::ConnId;
use crate::server_model::server::Server;
use crate::server_model::session::ClientSession;

/// What a command works with.
pub(crate) struct Turn<'a> {
    pub(crate) server: &'a mut Server,
    pub(crate) conn: ConnId,
    pub(crate) is_in_script: bool,
}

impl Turn<'_> {
    pub(crate) fn session(&mut self) -> &mut ClientSession {
        self.server.sessions.get_mut(&self.conn).expect("its turn ends before it is closed")
    }

    pub(crate) fn db(&mut self) -> u32 {
        self.session().db
    }

    /// What stands at the key. One whose time is over is dropped now, unless this is a replica.
    pub(crate) fn find(&mut self, key: &[u8]) -> Option<Entry> {
        let (db, now) = (self.db(), self.server.now_ms());
        let entry = self.server.keyspace.get(db, key)?;
        if !entry.is_over(now) {
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

    /// Tells who wants to know that the key has changed. To older servers neither what a script does nor
    /// the end of a key's time is the work of whose turn it is.
    fn touch(&mut self, key: &[u8], is_over: bool) {
        let is_ours = self.server.config.version.has((7, 0)) || !is_over && !self.is_in_script;
        self.server.invalidate(key, is_ours.then_some(self.conn));
    }
}
