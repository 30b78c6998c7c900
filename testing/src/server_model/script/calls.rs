//! Commands that a script runs: `redis.call` and `redis.pcall`.

use super::run::{Answer, Held, Run};
use crate::server_model::command;
use crate::server_model::reply::Reply;

impl Run<'_, '_> {
    /// `redis.pcall`: an error is a value. `at` is how the call begins in the script's text.
    pub(super) fn pcall(&mut self, at: &str, arguments: &[&[u8]]) -> Reply {
        let arguments: Vec<_> = arguments.iter().map(|argument| argument.to_vec()).collect();
        let version = &self.turn.server.config.version;
        let command = match command::find(&arguments, version) {
            Ok(command) => command,
            Err(unknown) => return Reply::Error(unknown),
        };
        if let Some(why) = self.turn.refusal_in_script(command, self.has_written) {
            // As older servers put it: an error of the script's own.
            let is_own = why.starts_with("The user");
            let why = if is_own { format!("@user_script: {}: {why}", self.line(at)) } else { why };
            return Reply::Error(why);
        }
        self.has_written |= command.is_write();
        // Older servers remember that all keys were read that the script was called with.
        let is_new = self.turn.server.config.version.has((7, 2));
        let read = if is_new { command.keys_read(&arguments) } else { self.keys };
        self.turn.run(command, &arguments, read)
    }

    /// `redis.call`: an error ends the script.
    pub(super) fn call(&mut self, at: &str, arguments: &[&[u8]]) -> Answer {
        match self.pcall(at, arguments) {
            Reply::Error(why) => Err(self.raised(at, &why)),
            reply => Ok(reply),
        }
    }

    /// `redis.pcall('GET', …)` of a key that goes by `name`, where an error that is none of the key's kind ends
    /// the script.
    pub(super) fn held(&mut self, name: &str, key: &[u8]) -> Result<Held, Reply> {
        match self.pcall(&format!("redis.pcall('GET', {name})"), &[b"GET", key]) {
            Reply::Bulk(value) => Ok(Held::Value(value)),
            Reply::Error(why) if why.contains("WRONGTYPE") => Ok(Held::Other),
            Reply::Error(why) => Err(Reply::Error(why)),
            _ => Ok(Held::Nothing),
        }
    }

    /// `redis.call('PTTL', key)`.
    pub(super) fn pttl(&mut self, key: &[u8]) -> Result<i64, Reply> {
        match self.call("redis.call('PTTL'", &[b"PTTL", key])? {
            Reply::Int(left) => Ok(left),
            other => Err(other),
        }
    }

    fn raised(&self, at: &str, why: &str) -> Reply {
        let (line, digest) = (self.line(at), self.digest);
        let version = &self.turn.server.config.version;
        if version.is_valkey() {
            return Reply::Error(format!("{why} script: on @user_script:{line}."));
        }
        if version.has((7, 0)) {
            return Reply::Error(format!("{why} script: {digest}, on @user_script:{line}."));
        }
        let is_own = why.starts_with('@');
        let why = if is_own { why.to_owned() } else { format!("@user_script: {line}: -{why}") };
        let call = format!("call to f_{digest}");
        Reply::Error(format!("ERR Error running script ({call}): @user_script:{line}: {why}"))
    }

    /// The line of the script's text where this begins.
    fn line(&self, at: &str) -> usize {
        let place = self.source.find(at).expect("the text of the script has this call");
        1 + self.source[..place].matches('\n').count()
    }
}
