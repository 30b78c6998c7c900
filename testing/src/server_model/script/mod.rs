//! `EVAL`, `EVALSHA` and `SCRIPT` commands.

mod cache;
#[cfg(feature = "scripts")]
mod calls;
#[cfg(feature = "scripts")]
mod interpreter;
#[cfg(feature = "scripts")]
mod library;
#[cfg(feature = "scripts")]
mod number;
#[cfg(feature = "scripts")]
mod running;
#[cfg(feature = "scripts")]
mod values;

#[cfg(not(feature = "scripts"))]
mod unsupported;
#[cfg(not(feature = "scripts"))]
use unsupported as interpreter;

pub(crate) use cache::Scripts;

use crate::server_model::command_context::CommandContext;
use crate::server_model::reply::Reply;
use crate::server_model::request::integer;
use crate::server_model::trouble::{MASTERDOWN, NO_INTEGER, NOSCRIPT, SYNTAX, Trouble};

pub(crate) fn load(context: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    match add(context, &arguments[2]) {
        Ok(digest) => Reply::text(digest),
        Err(invalid) => Reply::Error(invalid),
    }
}

pub(crate) fn exists(context: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    let known = &context.server.scripts;
    let is_known = |digest: &Vec<u8>| known.get(&String::from_utf8_lossy(digest)).is_some();
    Reply::Array(arguments[2..].iter().map(|it| Reply::Int(is_known(it).into())).collect())
}

pub(crate) fn flush(context: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    if arguments.len() > 2 {
        return Reply::error(SYNTAX);
    }
    context.server.scripts.clear();
    Reply::OK
}

/// Executes `SCRIPT KILL`. A busy server replies `OK`, but stays busy until the caller ends the
/// [`Trouble`], because on a real server the script ends some time after the reply.
pub(crate) fn kill(context: &mut CommandContext<'_>, _: &[Vec<u8>]) -> Reply {
    if context.server.trouble == Some(Trouble::Busy) {
        return Reply::OK;
    }
    Reply::error("NOTBUSY No scripts in execution right now.")
}

pub(crate) fn eval(context: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    let call = match ScriptCall::read(arguments) {
        Ok(call) => call,
        Err(error) => return Reply::error(error),
    };
    match add(context, &arguments[1]) {
        Ok(digest) => call.run(context, &digest),
        Err(invalid) => Reply::Error(invalid),
    }
}

pub(crate) fn evalsha(context: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    let digest = String::from_utf8(arguments[1].to_ascii_lowercase());
    let Some(digest) = digest.ok().filter(|digest| digest.len() == 40) else {
        return Reply::error(NOSCRIPT);
    };
    match ScriptCall::read(arguments) {
        Ok(call) => call.run(context, &digest),
        Err(error) => Reply::error(error),
    }
}

/// Stores a script, and returns its digest. Returns the text of the error reply if the script is invalid.
fn add(context: &mut CommandContext<'_>, source: &[u8]) -> Result<String, String> {
    let server = &mut *context.server;
    if let Some(known) = server.scripts.digest(source) {
        return Ok(known.to_owned());
    }
    let digest = sha1_smol::Sha1::from(source).digest().to_string();
    interpreter::check(&server.config.version, &digest, source)?;
    server.scripts.add(&digest, source);
    Ok(digest)
}

struct ScriptCall<'a> {
    keys: &'a [Vec<u8>],
    args: &'a [Vec<u8>],
}

impl<'a> ScriptCall<'a> {
    fn read(arguments: &'a [Vec<u8>]) -> Result<Self, &'static str> {
        let count = integer(&arguments[2]).ok_or(NO_INTEGER)?;
        let count = usize::try_from(count).map_err(|_| "ERR Number of keys can't be negative")?;
        let parts = arguments[3..].split_at_checked(count);
        let (keys, args) =
            parts.ok_or("ERR Number of keys can't be greater than number of args")?;
        Ok(Self { keys, args })
    }

    fn run(&self, context: &mut CommandContext<'_>, digest: &str) -> Reply {
        let Some(source) = context.server.scripts.get(digest) else {
            return Reply::error(NOSCRIPT);
        };
        if context.server.trouble == Some(Trouble::MasterDown) {
            return Reply::error(MASTERDOWN);
        }
        // A `SELECT` in a script affects only the rest of the script.
        let db = context.db();
        let reply = interpreter::run(context, (digest, &source), self.keys, self.args);
        context.session().db = db;
        reply
    }
}
