//! `CLIENT` commands.

use crate::server_model::command_context::CommandContext;
use crate::server_model::reply::Reply;
use crate::server_model::request::integer;
use crate::server_model::session::ClientSession;
use crate::server_model::tracking::Mode;
use crate::server_model::trouble::SYNTAX;

pub(crate) fn id(context: &mut CommandContext<'_>, _: &[Vec<u8>]) -> Reply {
    Reply::Int(i64::try_from(context.session().client_id).unwrap_or(i64::MAX))
}

/// Executes `CLIENT KILL ID`. A connection cannot kill itself in this model.
pub(crate) fn kill(context: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    let id = match &arguments[2..] {
        [filter, id] if filter.eq_ignore_ascii_case(b"id") => integer(id),
        _ => return Reply::error(SYNTAX),
    };
    let Some(id) = id.and_then(|id| u64::try_from(id).ok()).filter(|id| *id > 0) else {
        return Reply::error("ERR client-id should be greater than 0");
    };
    let found = context.server.sessions.iter().find(|(_, session)| session.client_id == id);
    let found = found.map(|(conn, _)| *conn).filter(|conn| *conn != context.conn);
    if let Some(conn) = found {
        context.server.kill(conn);
    }
    Reply::Int(found.is_some().into())
}

pub(crate) fn tracking(context: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    let mut mode = Mode { opt_in: false, no_loop: false };
    for option in &arguments[3..] {
        match option.to_ascii_lowercase().as_slice() {
            b"optin" => mode.opt_in = true,
            b"noloop" => mode.no_loop = true,
            _ => return Reply::error(SYNTAX),
        }
    }
    let session = context.session();
    match arguments[2].to_ascii_lowercase().as_slice() {
        b"on" => session.tracking = Some(mode),
        b"off" => {
            session.tracking = None;
            session.is_caching = false;
        }
        _ => return Reply::error(SYNTAX),
    }
    Reply::OK
}

pub(crate) fn caching(context: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    let session = context.session();
    let Some(mode) = session.tracking else {
        return Reply::error(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or \
             OPTOUT mode enabled",
        );
    };
    match arguments[2].to_ascii_lowercase().as_slice() {
        b"yes" if mode.opt_in => session.is_caching = true,
        b"yes" => {
            return Reply::error(
                "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
            );
        }
        b"no" => {
            return Reply::error(
                "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
            );
        }
        _ => return Reply::error(SYNTAX),
    }
    Reply::OK
}

/// Executes `CLIENT LIST`. The reply has only a few of a real server's fields.
pub(crate) fn list(context: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    if arguments.len() > 2 {
        return Reply::error(SYNTAX);
    }
    let line = |session: &ClientSession| {
        let ClientSession { client_id: id, name, db, .. } = session;
        format!("id={id} addr=in-process:{id} name={name} db={db}\n")
    };
    Reply::Text(context.server.sessions.values().map(line).collect())
}

pub(crate) fn setname(context: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    context.name(&arguments[2]).map_or_else(|refusal| refusal, |()| Reply::OK)
}

impl CommandContext<'_> {
    pub(super) fn name(&mut self, name: &[u8]) -> Result<(), Reply> {
        if !name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
            let error = "ERR Client names cannot contain spaces, newlines or special characters.";
            return Err(Reply::error(error));
        }
        self.session().name = String::from_utf8_lossy(name).into_owned();
        Ok(())
    }
}

pub(crate) fn setinfo(_: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    match arguments[2].to_ascii_lowercase().as_slice() {
        b"lib-name" | b"lib-ver" => Reply::OK,
        _ => {
            let option = String::from_utf8_lossy(&arguments[2]);
            Reply::Error(format!("ERR Unrecognized option '{option}'"))
        }
    }
}
