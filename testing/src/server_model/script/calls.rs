//! Commands that a script calls.

use super::running::{Failure, Running};
use crate::server_model::command;
use crate::server_model::command_context::CommandContext;
use crate::server_model::reply::Reply;

impl Running {
    /// Executes a command of the script. Makes the checks in the same order as `scriptCall` in Redis.
    pub(super) fn execute(&mut self, words: &[Vec<u8>]) -> Result<Reply, Failure> {
        let version = self.version();
        let (is_new, records_own) = (version.has((7, 0)), version.has((7, 2)));
        let refused = |new: &str, old: &str| {
            let text = if is_new { format!("ERR {new}") } else { old.to_owned() };
            Err(Failure::Refused(text))
        };
        let Ok(command) = command::find(words, version) else {
            return refused(
                "Unknown Redis command called from script",
                "Unknown Redis command called from Lua script",
            );
        };
        if !command.takes(words.len()) {
            return refused(
                "Wrong number of args calling Redis command from script",
                "Wrong number of args calling Redis command From Lua script",
            );
        }
        if !command.runs_in_scripts() {
            return refused(
                "This Redis command is not allowed from script",
                "This Redis command is not allowed from scripts",
            );
        }
        let mut context =
            CommandContext { server: &mut self.server, conn: self.conn, is_in_script: true };
        if let Some(error) = context.refusal_in_script(command, self.has_written) {
            return Err(Failure::Refused(error));
        }
        self.has_written |= command.is_write();
        let read = if records_own { command.keys_read(words) } else { &self.keys };
        match context.run(command, words, read) {
            Reply::Error(error) => Err(Failure::Replied(error)),
            reply => Ok(reply),
        }
    }
}
