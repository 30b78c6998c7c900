//! The Lua interpreter. Each thread has its own one, because an interpreter cannot move to another thread.

use super::library::{Library, position};
use super::running::Moved;
use super::values::{error_reply, strings, to_reply};
use crate::server_model::command_context::CommandContext;
use crate::server_model::config::Version;
use crate::server_model::reply::Reply;
use mlua::chunk::ChunkMode;
use mlua::{Error, Function, Lua, LuaOptions, Result, StdLib, Value};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// Number of compiled scripts above which they are all discarded, for programs that generate scripts.
const MAX_COMPILED: usize = 1_000;
/// More levels of the stack than the functions of `sandbox.lua` that can be on top of a script.
const MAX_LEVEL: usize = 10;
const SOURCE: &str = "@user_script";

thread_local! {
    static NEW: Interpreter = Interpreter::create(true);
    static OLD: Interpreter = Interpreter::create(false);
}

struct Interpreter {
    lua: Lua,
    library: Rc<Library>,
    /// Runs a script in protected mode; see `sandbox.lua`.
    run: Function,
    /// The compiled scripts, by their digest.
    compiled: RefCell<HashMap<String, Function>>,
}

/// Returns the error reply for an invalid script.
pub(super) fn check(
    version: &Version,
    digest: &str,
    source: &[u8],
) -> std::result::Result<(), String> {
    with(version, |interpreter| interpreter.function(digest, source).map(drop))
}

pub(super) fn run(
    context: &mut CommandContext<'_>,
    (digest, source): (&str, &[u8]),
    keys: &[Vec<u8>],
    args: &[Vec<u8>],
) -> Reply {
    let version = context.server.config.version.clone();
    with(&version, |interpreter| {
        let function = match interpreter.function(digest, source) {
            Ok(function) => function,
            Err(invalid) => return Reply::Error(invalid),
        };
        let moved = Moved::new(context, keys, &interpreter.library.running);
        let reply = interpreter.run(&function, keys, args);
        drop(moved);
        match reply {
            Ok(Ok(reply)) => reply,
            Ok(Err(raised)) => raised_reply(&version, digest, &raised),
            Err(error) => error_reply(&format!("ERR Error running script {digest}, {error}")),
        }
    })
}

fn with<T>(version: &Version, action: impl FnOnce(&Interpreter) -> T) -> T {
    if version.has((7, 0)) { NEW.with(action) } else { OLD.with(action) }
}

impl Interpreter {
    fn create(is_new: bool) -> Self {
        Self::try_create(is_new).expect("sandbox.lua is valid")
    }

    fn try_create(is_new: bool) -> Result<Self> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::new())?;
        let library = Rc::new(Library::new(&lua, is_new)?);
        let redis = library.table(&lua)?;
        let position = lua.create_function(|lua, ()| Ok(raiser(lua).unzip()))?;
        let sandbox = lua.load(include_str!("sandbox.lua")).set_name("=sandbox");
        let (environment, run) = sandbox.call((redis, position, library.raised.clone(), is_new))?;
        lua.set_globals(environment)?;
        Ok(Self { lua, library, run, compiled: RefCell::default() })
    }

    /// Returns a compiled script, or the error reply for an invalid one.
    fn function(&self, digest: &str, source: &[u8]) -> std::result::Result<Function, String> {
        let mut compiled = self.compiled.borrow_mut();
        if let Some(function) = compiled.get(digest) {
            return Ok(function.clone());
        }
        if source.starts_with(b"#!") {
            return Err("ERR the server model supports no script with a shebang".to_owned());
        }
        let chunk = self.lua.load(source).set_name(SOURCE).set_mode(ChunkMode::Text);
        let function = chunk.into_function().map_err(|error| {
            let text = match error {
                Error::SyntaxError { message, .. } => message,
                other => other.to_string(),
            };
            format!("ERR Error compiling script (new function): {text}")
        })?;
        if compiled.len() == MAX_COMPILED {
            compiled.clear();
        }
        compiled.insert(digest.to_owned(), function.clone());
        Ok(function)
    }

    /// Runs a script. Returns the value that it raised as the inner error.
    fn run(
        &self,
        function: &Function,
        keys: &[Vec<u8>],
        args: &[Vec<u8>],
    ) -> Result<std::result::Result<Reply, Value>> {
        let (keys, args) = (strings(&self.lua, keys)?, strings(&self.lua, args)?);
        let (is_done, value): (bool, Value) = self.run.call((function, keys, args))?;
        if is_done { Ok(Ok(to_reply(&value)?)) } else { Ok(Err(value)) }
    }
}

/// Returns the source and the line of the function that has raised an error. Called by the error handler of
/// `sandbox.lua`, which is called by that function.
fn raiser(lua: &Lua) -> Option<(String, i64)> {
    let is_internal = |level| {
        let source = lua.inspect_stack(level, |function| {
            let source = function.source();
            source.what == "C" && level == 2 || source.source.is_some_and(|it| it == "=sandbox")
        });
        source == Some(true)
    };
    let level = (2..MAX_LEVEL).find(|level| !is_internal(*level))?;
    position(lua, level)
}

/// Returns the error reply for a value that a script has raised.
fn raised_reply(version: &Version, digest: &str, raised: &Value) -> Reply {
    let text = |value: Value| value.to_string().unwrap_or_default();
    let Value::Table(table) = raised else {
        let error = text(raised.clone());
        return error_reply(&format!("ERR Error running script (call to f_{digest}): {error}"));
    };
    let part = |name| table.raw_get(name).ok().filter(|part| *part != Value::Nil).map(text);
    let error = part("err").unwrap_or_else(|| "ERR unknown error".to_owned());
    error_reply(&match (part("source"), part("line")) {
        (Some(source), Some(line)) if version.is_valkey() => {
            format!("{error} script: on {source}:{line}.")
        }
        (Some(source), Some(line)) => format!("{error} script: {digest}, on {source}:{line}."),
        _ => error,
    })
}
