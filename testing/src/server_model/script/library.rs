//! The functions of the table `redis`.

use super::number;
use super::running::{Failure, Running};
use super::values::{ValueOrText, field, from_reply};
use mlua::{Either, Error, Function, IntoLua, Lua, MultiValue, Result, Table, Value};
use std::cell::RefCell;
use std::rc::Rc;

const LEVELS: [&str; 4] = ["LOG_DEBUG", "LOG_VERBOSE", "LOG_NOTICE", "LOG_WARNING"];

pub(super) struct Library {
    pub(super) running: RefCell<Running>,
    /// Contains the value that a function raises; see `sandbox.lua`.
    pub(super) raised: Table,
    /// True for Redis 7.0 and later.
    pub(super) is_new: bool,
}

type Implementation = fn(&Library, &Lua, MultiValue) -> Result<ValueOrText>;

impl Library {
    pub(super) fn new(lua: &Lua, is_new: bool) -> Result<Self> {
        Ok(Self { running: RefCell::default(), raised: lua.create_table()?, is_new })
    }

    /// Returns the table `redis`.
    pub(super) fn table(self: &Rc<Self>, lua: &Lua) -> Result<Table> {
        let functions: [(&str, Implementation); 6] = [
            ("call", |library, lua, arguments| library.call(lua, &arguments)),
            ("pcall", |library, lua, arguments| library.pcall(lua, &arguments)),
            ("error_reply", |library, lua, arguments| library.error_reply(lua, &arguments)),
            ("status_reply", |library, lua, arguments| library.status_reply(lua, &arguments)),
            ("sha1hex", |library, lua, arguments| library.sha1hex(lua, &arguments)),
            ("log", |library, lua, arguments| library.log(lua, &arguments)),
        ];
        let table = lua.create_table()?;
        for (name, implementation) in functions {
            table.raw_set(name, self.function(lua, implementation)?)?;
        }
        for (level, name) in LEVELS.into_iter().enumerate() {
            table.raw_set(name, level)?;
        }
        Ok(table)
    }

    fn function(self: &Rc<Self>, lua: &Lua, implementation: Implementation) -> Result<Function> {
        let library = self.clone();
        lua.create_function(move |lua, arguments| implementation(&library, lua, arguments))
    }

    fn call(&self, lua: &Lua, arguments: &MultiValue) -> Result<ValueOrText> {
        match self.execute(lua, arguments)? {
            Ok(reply) => Ok(reply),
            Err((error, _)) if !self.is_new => Err(self.raise(error)?),
            Err((error, is_executed)) => {
                let table = self.error_table(lua, &error, is_executed)?;
                Err(self.raise(table)?)
            }
        }
    }

    fn pcall(&self, lua: &Lua, arguments: &MultiValue) -> Result<ValueOrText> {
        match self.execute(lua, arguments)? {
            Ok(reply) => Ok(reply),
            Err((error, is_executed)) => {
                Ok(Either::Left(Value::Table(self.error_table(lua, &error, is_executed)?)))
            }
        }
    }

    /// Executes a command. Returns its reply, or the text of its error and whether the words of the command were valid.
    fn execute(
        &self,
        lua: &Lua,
        arguments: &MultiValue,
    ) -> Result<std::result::Result<ValueOrText, (String, bool)>> {
        let mut running = self.running.borrow_mut();
        if arguments.is_empty() {
            let error = if self.is_new {
                "ERR Please specify at least one argument for this redis lib call"
            } else {
                "Please specify at least one argument for redis.call()"
            };
            return Ok(Err((self.with_line(lua, error), false)));
        }
        let version = running.version();
        let word = |value: &Value| match value {
            Value::String(bytes) => Some(bytes.as_bytes().to_vec()),
            #[allow(clippy::cast_precision_loss, reason = "a double of Lua")]
            Value::Integer(number) => Some(number::argument(*number as f64, version).into_bytes()),
            Value::Number(number) => Some(number::argument(*number, version).into_bytes()),
            _ => None,
        };
        let Some(words) = arguments.iter().map(word).collect::<Option<Vec<_>>>() else {
            let error = if self.is_new {
                "ERR Lua redis lib command arguments must be strings or integers"
            } else {
                "Lua redis() command arguments must be strings or integers"
            };
            return Ok(Err((self.with_line(lua, error), false)));
        };
        match running.execute(&words) {
            Ok(reply) => Ok(Ok(from_reply(lua, reply)?)),
            Err(Failure::Refused(error)) => Ok(Err((self.with_line(lua, &error), true))),
            Err(Failure::Replied(error)) => Ok(Err((error, true))),
        }
    }

    /// Before 7.0, errors that are no replies begin with the position of the call.
    fn with_line(&self, lua: &Lua, error: &str) -> String {
        if self.is_new {
            return error.to_owned();
        }
        match position(lua, 1) {
            Some((source, line)) => format!("{source}: {line}: {error}"),
            None => error.to_owned(),
        }
    }

    fn error_table(&self, lua: &Lua, error: &str, is_executed: bool) -> Result<Table> {
        let table = field(lua, "err", error)?;
        if self.is_new && is_executed {
            table.raw_set("ignore_error_stats_update", true)?;
        }
        Ok(table)
    }

    fn raise(&self, value: impl IntoLua) -> Result<Error> {
        self.raised.raw_set("value", value)?;
        Ok(Error::runtime("a value that sandbox.lua raises"))
    }

    /// Raises an error of the library itself.
    fn refuse(&self, lua: &Lua, error: &str) -> Result<ValueOrText> {
        if !self.is_new {
            return Err(self.raise(error)?);
        }
        Err(self.raise(field(lua, "err", &format!("ERR {error}"))?)?)
    }

    /// Returns an error table. Since 7.0, the first word of an error is its code, and `ERR` if there is only one word.
    fn error_reply(&self, lua: &Lua, arguments: &MultiValue) -> Result<ValueOrText> {
        let Some(text) = only_string(arguments) else { return self.wrong_arguments(lua) };
        if !self.is_new {
            return Ok(Either::Left(Value::Table(field(lua, "err", &text)?)));
        }
        let text = text.strip_prefix('-').unwrap_or(&text);
        let (code, message) = text.split_once(' ').unwrap_or(("ERR", text));
        let message = message.trim_matches(['\r', '\n']);
        Ok(Either::Left(Value::Table(field(lua, "err", &format!("{code} {message}"))?)))
    }

    fn status_reply(&self, lua: &Lua, arguments: &MultiValue) -> Result<ValueOrText> {
        match only_string(arguments) {
            Some(text) => Ok(Either::Left(Value::Table(field(lua, "ok", &text)?))),
            None => self.wrong_arguments(lua),
        }
    }

    fn wrong_arguments(&self, lua: &Lua) -> Result<ValueOrText> {
        let error = "wrong number or type of arguments";
        let error = if self.is_new { format!("ERR {error}") } else { self.with_line(lua, error) };
        Ok(Either::Left(Value::Table(field(lua, "err", &error)?)))
    }

    fn sha1hex(&self, lua: &Lua, arguments: &MultiValue) -> Result<ValueOrText> {
        if arguments.len() != 1 {
            return self.refuse(lua, "wrong number of arguments");
        }
        let text = lua.coerce_string(arguments[0].clone())?;
        let digest = match &text {
            Some(text) => sha1_smol::Sha1::from(text.as_bytes()),
            None => sha1_smol::Sha1::new(),
        };
        Ok(Either::Right(digest.digest().to_string()))
    }

    /// Checks the arguments of `redis.log`. The model has no log.
    fn log(&self, lua: &Lua, arguments: &MultiValue) -> Result<ValueOrText> {
        if arguments.len() < 2 {
            return self.refuse(lua, "redis.log() requires two arguments or more.");
        }
        match lua.coerce_number(arguments[0].clone())? {
            None => self.refuse(lua, "First argument must be a number (log level)."),
            Some(level) if !(0.0..4.0).contains(&level.trunc()) => {
                self.refuse(lua, "Invalid debug level.")
            }
            Some(_) => Ok(Either::Left(Value::Nil)),
        }
    }
}

fn only_string(arguments: &MultiValue) -> Option<String> {
    match arguments.iter().collect::<Vec<_>>()[..] {
        [Value::String(text)] => Some(text.to_string_lossy()),
        _ => None,
    }
}

/// Returns the source and the line of the function at a level of the stack. The running function is at level 0.
pub(super) fn position(lua: &Lua, level: usize) -> Option<(String, i64)> {
    lua.inspect_stack(level, |function| {
        let line = function.current_line().and_then(|line| i64::try_from(line).ok());
        Some((function.source().source?.into_owned(), line.unwrap_or(-1)))
    })?
}
