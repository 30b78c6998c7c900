//! The server that executes the current script.

use crate::server_model::command_context::CommandContext;
use crate::server_model::config::{Config, Version};
use crate::server_model::output::ConnId;
use crate::server_model::server::Server;
use std::cell::RefCell;

/// Functions of an interpreter cannot borrow the server, because they exist for longer than one run of a script. The
/// server is therefore moved here during the run.
pub(super) struct Running {
    pub(super) server: Server,
    pub(super) conn: ConnId,
    /// The keys of the script that each of its reads records for client tracking. Empty if a read records the keys of
    /// the command itself.
    pub(super) keys: Vec<Vec<u8>>,
    /// True after the script's first write. From then on, the server refuses a command only if the user lacks
    /// permission for it.
    pub(super) has_written: bool,
}

/// An error of a command that a script has called.
pub(super) enum Failure {
    /// The server did not execute the command.
    Refused(String),
    /// The command's own error reply.
    Replied(String),
}

impl Default for Running {
    fn default() -> Self {
        let server = Server::new(Config::default(), 0);
        Self { server, conn: ConnId(0), keys: Vec::new(), has_written: false }
    }
}

/// Returns the server to its owner at the end of a script, also after a panic.
pub(super) struct Moved<'a> {
    owner: &'a mut Server,
    running: &'a RefCell<Running>,
}

impl<'a> Moved<'a> {
    pub(super) fn new(
        context: &'a mut CommandContext<'_>,
        keys: &[Vec<u8>],
        running: &'a RefCell<Running>,
    ) -> Self {
        // Before 7.2, tracking records all keys of the script as read.
        let records_all =
            context.session().tracks_reads() && !context.server.config.version.has((7, 2));
        let mut now = running.borrow_mut();
        now.keys = if records_all { keys.to_vec() } else { Vec::new() };
        (now.conn, now.has_written) = (context.conn, false);
        std::mem::swap(&mut now.server, context.server);
        Self { owner: context.server, running }
    }
}

impl Drop for Moved<'_> {
    fn drop(&mut self) {
        std::mem::swap(&mut self.running.borrow_mut().server, self.owner);
    }
}

impl Running {
    pub(super) fn version(&self) -> &Version {
        &self.server.config.version
    }
}
