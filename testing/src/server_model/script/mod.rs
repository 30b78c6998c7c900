//! `EVAL`, `EVALSHA` and `SCRIPT` commands, and the implementation of quorlock's scripts.

mod acquire;
mod acquire_fenced;
mod cache;
mod calls;
mod extend;
mod fenced;
mod number;
mod read;
mod release;
mod run;
mod sources;

pub(crate) use cache::Scripts;

use crate::server_model::reply::Reply;
use crate::server_model::request::integer;
use crate::server_model::trouble::{MASTERDOWN, NO_INTEGER, NOSCRIPT, SYNTAX, Trouble};
use crate::server_model::turn::Turn;
use run::Run;
use sources::Script;

pub(crate) fn load(turn: &mut Turn<'_>, arguments: &[Vec<u8>]) -> Reply {
    Reply::text(turn.server.scripts.add(&arguments[2]))
}

pub(crate) fn exists(turn: &mut Turn<'_>, arguments: &[Vec<u8>]) -> Reply {
    let known = &turn.server.scripts.0;
    let is_known = |digest: &Vec<u8>| known.contains_key(&*String::from_utf8_lossy(digest));
    Reply::Array(arguments[2..].iter().map(|it| Reply::Int(is_known(it).into())).collect())
}

pub(crate) fn flush(turn: &mut Turn<'_>, arguments: &[Vec<u8>]) -> Reply {
    if arguments.len() > 2 {
        return Reply::error(SYNTAX);
    }
    turn.server.scripts.0.clear();
    Reply::OK
}

/// Replies `OK` on a busy server. The server stays busy until the caller ends the [`Trouble`], because
/// on a real server the script ends some time after the reply.
pub(crate) fn kill(turn: &mut Turn<'_>, _: &[Vec<u8>]) -> Reply {
    if turn.server.trouble == Some(Trouble::Busy) {
        return Reply::OK;
    }
    Reply::error("NOTBUSY No scripts in execution right now.")
}

pub(crate) fn eval(turn: &mut Turn<'_>, arguments: &[Vec<u8>]) -> Reply {
    match Called::read(arguments) {
        Ok(call) => {
            let digest = turn.server.scripts.add(&arguments[1]);
            call.run(turn, &digest)
        }
        Err(error) => Reply::error(error),
    }
}

pub(crate) fn evalsha(turn: &mut Turn<'_>, arguments: &[Vec<u8>]) -> Reply {
    if arguments[1].len() != 40 {
        return Reply::error(NOSCRIPT);
    }
    match Called::read(arguments) {
        Ok(call) => call.run(turn, &String::from_utf8_lossy(&arguments[1]).to_lowercase()),
        Err(error) => Reply::error(error),
    }
}

struct Called<'a> {
    keys: &'a [Vec<u8>],
    args: &'a [Vec<u8>],
}

impl<'a> Called<'a> {
    fn read(arguments: &'a [Vec<u8>]) -> Result<Self, &'static str> {
        let count = integer(&arguments[2]).ok_or(NO_INTEGER)?;
        let count = usize::try_from(count).map_err(|_| "ERR Number of keys can't be negative")?;
        let parts = arguments[3..].split_at_checked(count);
        let (keys, args) =
            parts.ok_or("ERR Number of keys can't be greater than number of args")?;
        Ok(Self { keys, args })
    }

    fn run(&self, turn: &mut Turn<'_>, digest: &str) -> Reply {
        let Some(source) = turn.server.scripts.0.get(digest) else { return Reply::error(NOSCRIPT) };
        if turn.server.trouble == Some(Trouble::MasterDown) {
            return Reply::error(MASTERDOWN);
        }
        let source = source.clone();
        let Some(script) = Script::of(&source) else {
            return Reply::error("ERR the model knows only quorlock's own scripts");
        };
        turn.is_in_script = true;
        let mut run = Run { turn, keys: self.keys, source: &source, digest, has_written: false };
        // The server sends raised and returned errors in the same form.
        script.run(&mut run, self.keys, self.args).unwrap_or_else(|raised| raised)
    }
}
