//! `EVAL`, `EVALSHA` and `SCRIPT` commands, and reimplementations of quorlock's scripts.

mod acquire;
mod acquire_any;
mod acquire_fenced;
mod acquire_write;
mod cache;
mod calls;
mod extend;
mod fenced;
mod number;
mod period;
mod read;
mod release;
mod run;
mod shared;
mod sources;

pub(crate) use cache::Scripts;

use crate::server_model::command_context::CommandContext;
use crate::server_model::reply::Reply;
use crate::server_model::request::integer;
use crate::server_model::trouble::{MASTERDOWN, NO_INTEGER, NOSCRIPT, SYNTAX, Trouble};
use run::Run;
use sources::NativeScript;

pub(crate) fn load(context: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    Reply::text(context.server.scripts.add(&arguments[2]))
}

pub(crate) fn exists(context: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    let known = &context.server.scripts.0;
    let is_known = |digest: &Vec<u8>| known.contains_key(&*String::from_utf8_lossy(digest));
    Reply::Array(arguments[2..].iter().map(|it| Reply::Int(is_known(it).into())).collect())
}

pub(crate) fn flush(context: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    if arguments.len() > 2 {
        return Reply::error(SYNTAX);
    }
    context.server.scripts.0.clear();
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
    match ScriptCall::read(arguments) {
        Ok(call) => {
            let digest = context.server.scripts.add(&arguments[1]);
            call.run(context, &digest)
        }
        Err(error) => Reply::error(error),
    }
}

pub(crate) fn evalsha(context: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    if arguments[1].len() != 40 {
        return Reply::error(NOSCRIPT);
    }
    match ScriptCall::read(arguments) {
        Ok(call) => call.run(context, &String::from_utf8_lossy(&arguments[1]).to_lowercase()),
        Err(error) => Reply::error(error),
    }
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
        let Some(source) = context.server.scripts.0.get(digest) else {
            return Reply::error(NOSCRIPT);
        };
        if context.server.trouble == Some(Trouble::MasterDown) {
            return Reply::error(MASTERDOWN);
        }
        let source = source.clone();
        let Some(script) = NativeScript::of(&source) else {
            return Reply::error("ERR the model knows only quorlock's own scripts");
        };
        context.is_in_script = true;
        let mut run = Run { context, keys: self.keys, source: &source, digest, has_written: false };
        // The server sends raised and returned errors in the same form.
        script.run(&mut run, self.keys, self.args).unwrap_or_else(|raised| raised)
    }
}
