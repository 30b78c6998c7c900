//! `HELLO`, `AUTH`, `SELECT` and `QUIT`.

use crate::server_model::command_context::CommandContext;
use crate::server_model::reply::Reply;
use crate::server_model::request::integer;
use crate::server_model::trouble::{NO_INTEGER, SYNTAX, WRONGPASS};

pub(crate) fn hello(context: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    let resp3 = match arguments.get(1).map(|version| integer(version)) {
        None => None,
        Some(None) => {
            return Reply::error("ERR Protocol version is not an integer or out of range");
        }
        Some(Some(2)) => Some(false),
        Some(Some(3)) => Some(true),
        Some(Some(_)) => return Reply::error("NOPROTO unsupported protocol version"),
    };
    let mut options = arguments.get(2..).unwrap_or_default();
    while let [option, rest @ ..] = options {
        options = match (option.to_ascii_lowercase().as_slice(), rest) {
            (b"auth", [user, password, rest @ ..]) => {
                if !context.log_in(user, password) {
                    return Reply::error(WRONGPASS);
                }
                rest
            }
            (b"setname", [name, rest @ ..]) => {
                if let Err(refusal) = context.name(name) {
                    return refusal;
                }
                rest
            }
            _ => {
                let option = String::from_utf8_lossy(option);
                return Reply::Error(format!("{SYNTAX} in HELLO option '{option}'"));
            }
        };
    }
    if context.session().user.is_none() {
        return Reply::error(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH \
             <user> <pass> option can be used to authenticate the client and select the RESP protocol \
             version at the same time",
        );
    }
    if let Some(resp3) = resp3 {
        context.session().resp3 = resp3;
    }
    greeting(context)
}

fn greeting(context: &mut CommandContext<'_>) -> Reply {
    let (name, version) = context.server.config.version.greeting();
    let role = if context.server.is_replica() { "replica" } else { "master" };
    let session = context.session();
    let proto = if session.resp3 { 3 } else { 2 };
    let id = i64::try_from(session.client_id).unwrap_or(i64::MAX);
    let fields = [
        ("server", Reply::text(name)),
        ("version", Reply::text(version)),
        ("proto", Reply::Int(proto)),
        ("id", Reply::Int(id)),
        ("mode", Reply::text("standalone")),
        ("role", Reply::text(role)),
        ("modules", Reply::Array(Vec::new())),
    ];
    Reply::Map(fields.into_iter().map(|(name, value)| (Reply::text(name), value)).collect())
}

pub(crate) fn auth(context: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    let is_authenticated = match arguments {
        [_, password] if context.server.config.password.is_none() => {
            let _ = password;
            return Reply::error(
                "ERR AUTH <password> called without any password configured for the default user. Are \
                 you sure your configuration is correct?",
            );
        }
        [_, password] => context.log_in(b"default", password),
        [_, user, password] => context.log_in(user, password),
        _ => return Reply::error(SYNTAX),
    };
    if is_authenticated { Reply::OK } else { Reply::error(WRONGPASS) }
}

pub(crate) fn select(context: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    let Some(db) = integer(&arguments[1]) else { return Reply::error(NO_INTEGER) };
    match u32::try_from(db).ok().filter(|db| *db < context.server.config.databases) {
        Some(db) => {
            context.session().db = db;
            Reply::OK
        }
        None => Reply::error("ERR DB index is out of range"),
    }
}

pub(crate) fn quit(context: &mut CommandContext<'_>, _: &[Vec<u8>]) -> Reply {
    context.session().is_ending = true;
    Reply::OK
}

impl CommandContext<'_> {
    /// Authenticates the connection. If the credentials are wrong, returns false, and the
    /// connection keeps its user.
    fn log_in(&mut self, user: &[u8], password: &[u8]) -> bool {
        let is_authenticated = self.server.config.authenticates(user, password);
        if is_authenticated {
            self.session().user = Some(String::from_utf8_lossy(user).into_owned());
        }
        is_authenticated
    }
}
