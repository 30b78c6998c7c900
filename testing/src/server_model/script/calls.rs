//! Commands that a script runs with `redis.call` and `redis.pcall`.

use super::run::{Answer, KeyContent, Run};
use crate::server_model::command;
use crate::server_model::reply::Reply;

impl Run<'_, '_> {
    /// Runs a command with `redis.pcall`, which returns an error as a value. `at` is the beginning
    /// of the call in the script's source. It determines the line number in error messages.
    pub(super) fn pcall(&mut self, at: &str, arguments: &[&[u8]]) -> Reply {
        let arguments: Vec<_> = arguments.iter().map(|argument| argument.to_vec()).collect();
        let version = &self.context.server.config.version;
        let command = match command::find(&arguments, version) {
            Ok(command) => command,
            Err(unknown) => return Reply::Error(unknown),
        };
        if let Some(error) = self.context.refusal_in_script(command, self.has_written) {
            // Before 7.2, Redis reports a missing permission as an error of the script.
            let is_own = error.starts_with("The user");
            let error =
                if is_own { format!("@user_script: {}: {error}", self.line(at)) } else { error };
            return Reply::Error(error);
        }
        self.has_written |= command.is_write();
        // Before 7.2, tracking records all keys of the script as read.
        let is_new = self.context.server.config.version.has((7, 2));
        let read = if is_new { command.keys_read(&arguments) } else { self.keys };
        self.context.run(command, &arguments, read)
    }

    pub(super) fn call(&mut self, at: &str, arguments: &[&[u8]]) -> Answer {
        match self.pcall(at, arguments) {
            Reply::Error(error) => Err(self.raised(at, &error)),
            reply => Ok(reply),
        }
    }

    /// Reads `key` as the script's `redis.pcall('GET', name)` does, where `name` is the expression
    /// for the key in the script's source. A key that is not a string is [`KeyContent::Other`]. Any
    /// other error ends the script.
    pub(super) fn held(&mut self, name: &str, key: &[u8]) -> Result<KeyContent, Reply> {
        match self.pcall(&format!("redis.pcall('GET', {name})"), &[b"GET", key]) {
            Reply::Bulk(value) => Ok(KeyContent::Value(value)),
            Reply::Error(error) if error.contains("WRONGTYPE") => Ok(KeyContent::Other),
            Reply::Error(error) => Err(Reply::Error(error)),
            _ => Ok(KeyContent::Missing),
        }
    }

    pub(super) fn pttl(&mut self, key: &[u8]) -> Result<i64, Reply> {
        match self.call("redis.call('PTTL'", &[b"PTTL", key])? {
            Reply::Int(left) => Ok(left),
            other => Err(other),
        }
    }

    fn raised(&self, at: &str, error: &str) -> Reply {
        let (line, digest) = (self.line(at), self.digest);
        let version = &self.context.server.config.version;
        if version.is_valkey() {
            return Reply::Error(format!("{error} script: on @user_script:{line}."));
        }
        if version.has((7, 0)) {
            return Reply::Error(format!("{error} script: {digest}, on @user_script:{line}."));
        }
        let is_own = error.starts_with('@');
        let error =
            if is_own { error.to_owned() } else { format!("@user_script: {line}: -{error}") };
        let call = format!("call to f_{digest}");
        Reply::Error(format!("ERR Error running script ({call}): @user_script:{line}: {error}"))
    }

    /// Returns the line number of the call that begins with `at` in the script's source.
    fn line(&self, at: &str) -> usize {
        let place = self.source.find(at).expect("the text of the script has this call");
        1 + self.source[..place].matches('\n').count()
    }
}
