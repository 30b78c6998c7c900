//! Executes commands, after the same checks in the same order as in Redis.

use crate::server_model::command::{self, CommandSpec};
use crate::server_model::command_context::CommandContext;
use crate::server_model::output::{ConnId, Output};
use crate::server_model::reply::Reply;
use crate::server_model::request::Next;
use crate::server_model::server::Server;
use crate::server_model::trouble::{
    BUSY, LOADING, MASTERDOWN, MISCONF, NOAUTH, OOM, READONLY, Trouble,
};

impl Server {
    /// Processes bytes that a client has sent. Executes every complete command. An incomplete
    /// command is kept until the next call, so the bytes can be split anywhere. If the server has
    /// closed the connection, the bytes are ignored.
    pub fn receive(&mut self, conn: ConnId, bytes: &[u8], wall_us: u64) -> Vec<Output> {
        self.now_us = wall_us;
        if let Some(session) = self.sessions.get_mut(&conn) {
            session.requests.add(bytes);
        }
        while let Some(session) = self.sessions.get_mut(&conn) {
            // Before 7.0, Redis does not limit the size of requests from unauthenticated clients.
            let is_limited = session.user.is_none() && self.config.version.has((7, 0));
            match session.requests.next(is_limited) {
                Next::Part => break,
                Next::Command(arguments) => {
                    CommandContext { server: self, conn, is_in_script: false }.take(&arguments);
                }
                Next::Broken(error) => {
                    self.answer(conn, &Reply::Error(error));
                    self.close(conn);
                }
            }
            if self.sessions.get(&conn).is_some_and(|session| session.is_ending) {
                self.close(conn);
            }
        }
        self.outputs()
    }
}

impl CommandContext<'_> {
    pub(crate) fn take(mut self, arguments: &[Vec<u8>]) {
        let version = &self.server.config.version;
        // Valkey 9 does not report unknown commands to unauthenticated clients.
        let is_silent =
            version.valkey_has((9, 0)) && self.server.sessions[&self.conn].user.is_none();
        let found = command::find(arguments, version);
        let keeps_caching = found.as_ref().is_ok_and(|command| command.is_client_command());
        let reply = match found {
            Err(_) if is_silent => Reply::error(NOAUTH),
            Err(unknown) => Reply::Error(unknown),
            Ok(command) => match self.refusal(command, arguments) {
                Some(error) => Reply::Error(error),
                None => self.run(command, arguments, command.keys_read(arguments)),
            },
        };
        let pushes = std::mem::take(&mut self.server.own_pushes);
        let version = &self.server.config.version;
        let (first, last): (Vec<_>, Vec<_>) =
            pushes.into_iter().partition(|pushed| version.pushes_first(pushed.is_none()));
        for pushed in first {
            self.server.push(self.conn, pushed.as_deref());
        }
        self.server.answer(self.conn, &reply);
        for pushed in last {
            self.server.push(self.conn, pushed.as_deref());
        }
        if !keeps_caching {
            self.session().is_caching = false;
        }
    }

    /// Executes a command that has passed its checks. If the command reads keys and the connection
    /// tracks its reads, `keys` are recorded for later invalidations. For a command in a script,
    /// `keys` may be all keys of the script.
    pub(crate) fn run(
        &mut self,
        command: &CommandSpec,
        arguments: &[Vec<u8>],
        keys: &[Vec<u8>],
    ) -> Reply {
        let reply = (command.run)(self, arguments);
        if command.is_read() && self.session().tracks_reads() {
            for key in keys {
                self.server.tracking.remember(key, self.conn);
            }
        }
        reply
    }

    /// Returns the error reply if the server refuses the command, or `None` if the command may run.
    /// Makes the checks in the same order as `processCommand` in Redis.
    fn refusal(&mut self, command: &CommandSpec, arguments: &[Vec<u8>]) -> Option<String> {
        let is_unauthenticated = self.session().user.is_none();
        if is_unauthenticated
            && !command.needs_no_auth()
            && self.server.config.version.valkey_has((9, 0))
        {
            return Some(NOAUTH.to_owned());
        }
        if !command.takes(arguments.len()) {
            return Some(format!("ERR wrong number of arguments for '{}' command", command.name));
        }
        if is_unauthenticated && !command.needs_no_auth() {
            return Some(NOAUTH.to_owned());
        }
        // Redis does not check permissions for authentication commands.
        if self.server.config.forbids(command.name) && !command.needs_no_auth() {
            return Some(format!("NOPERM {}", self.no_right(command)));
        }
        let trouble = self.server.trouble;
        let is = |one| trouble == Some(one);
        let refusal = if is(Trouble::OutOfMemory) && command.needs_memory() {
            OOM
        } else if is(Trouble::Misconf) && (command.is_write() || command.name == "ping") {
            MISCONF
        } else if self.server.is_replica() && command.is_write() {
            READONLY
        } else if is(Trouble::MasterDown)
            && !command.runs_on_stale_data(&self.server.config.version)
        {
            MASTERDOWN
        } else if is(Trouble::Loading) && !command.runs_while_loading() {
            LOADING
        } else if is(Trouble::Busy) && !command.runs_while_busy(&self.server.config.version) {
            BUSY
        } else {
            return None;
        };
        Some(refusal.to_owned())
    }

    /// Returns the error reply if the server refuses a command that a script calls, or `None` if
    /// the command may run. Scripts are atomic, so after a script's first write only a missing
    /// permission is an error.
    #[cfg(feature = "scripts")]
    pub(crate) fn refusal_in_script(
        &mut self,
        command: &CommandSpec,
        has_written: bool,
    ) -> Option<String> {
        if self.server.config.forbids(command.name) {
            let older = "The user executing the script can't run this command or subcommand";
            let version = &self.server.config.version;
            let (is_new, is_old) = (version.has((7, 2)), !version.has((7, 0)));
            return Some(match () {
                () if is_new => format!("ERR ACL failure in script: {}", self.no_right(command)),
                () if is_old => older.to_owned(),
                () => format!("ERR {older}"),
            });
        }
        if has_written {
            return None;
        }
        let refusal = match self.server.trouble {
            _ if self.server.is_replica() && command.is_write() => READONLY,
            Some(Trouble::Misconf) if command.is_write() => MISCONF,
            Some(Trouble::OutOfMemory) if command.needs_memory() => OOM,
            _ => return None,
        };
        // Before 7.0, scripts receive the error with the mark of its reply.
        let mark = if self.server.config.version.has((7, 0)) { "" } else { "-" };
        Some(format!("{mark}{refusal}"))
    }

    fn no_right(&mut self, command: &CommandSpec) -> String {
        let name = command.name;
        if self.server.config.version.has((7, 2)) {
            let user = self.session().user.clone().unwrap_or_default();
            return format!("User {user} has no permissions to run the '{name}' command");
        }
        format!("this user has no permissions to run the '{name}' command")
    }
}
