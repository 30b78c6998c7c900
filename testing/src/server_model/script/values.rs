//! Conversion between replies and values of Lua.

use crate::server_model::reply::Reply;
use mlua::{Either, Lua, Result, Table, Value};

/// Maximum depth of the tables in a script's result. A table that contains itself has no other end.
const MAX_DEPTH: usize = 100;

/// A value for the interpreter. mlua copies text faster than other strings.
pub(super) type ValueOrText = Either<Value, String>;

/// Converts the reply to a command. Scripts receive replies in RESP2.
pub(super) fn from_reply(lua: &Lua, reply: Reply) -> Result<ValueOrText> {
    match reply {
        Reply::Bulk(bytes) => match String::from_utf8(bytes) {
            Ok(text) => Ok(Either::Right(text)),
            Err(other) => Ok(Either::Left(Value::String(lua.create_string(other.as_bytes())?))),
        },
        other => Ok(Either::Left(value(lua, other)?)),
    }
}

fn value(lua: &Lua, reply: Reply) -> Result<Value> {
    Ok(match reply {
        Reply::Int(number) => Value::Integer(number),
        Reply::Bulk(bytes) => Value::String(lua.create_string(bytes)?),
        Reply::Null => Value::Boolean(false),
        Reply::Status(text) => Value::Table(field(lua, "ok", &text)?),
        Reply::Error(text) => Value::Table(field(lua, "err", &text)?),
        Reply::Score(score) => Value::String(lua.create_string(score.to_string())?),
        Reply::Text(text) => Value::String(lua.create_string(text)?),
        Reply::Array(parts) => Value::Table(sequence(lua, parts)?),
        Reply::Map(pairs) | Reply::Pairs(pairs) => {
            let parts = pairs.into_iter().flat_map(<[Reply; 2]>::from);
            Value::Table(sequence(lua, parts.collect())?)
        }
    })
}

/// Returns a table with one field, which represents a status or an error.
pub(super) fn field(lua: &Lua, name: &str, text: &str) -> Result<Table> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set(name, text)?;
    Ok(table)
}

fn sequence(lua: &Lua, parts: Vec<Reply>) -> Result<Table> {
    let table = lua.create_table_with_capacity(parts.len(), 0)?;
    for (place, part) in (1..).zip(parts) {
        table.raw_set(place, from_reply(lua, part)?)?;
    }
    Ok(table)
}

/// Returns the array of strings `KEYS` or `ARGV`.
pub(super) fn strings(lua: &Lua, words: &[Vec<u8>]) -> Result<Table> {
    // mlua copies UTF-8 text directly to the table, which takes half the time of other bytes.
    let texts = words.iter().map(|word| std::str::from_utf8(word));
    if let Ok(texts) = texts.collect::<std::result::Result<Vec<_>, _>>() {
        return lua.create_sequence_from(texts);
    }
    let strings = words.iter().map(|word| lua.create_string(word));
    lua.create_sequence_from(strings.collect::<Result<Vec<_>>>()?)
}

/// Converts the result of a script into the server's reply.
pub(super) fn to_reply(value: &Value) -> Result<Reply> {
    reply_within(value, MAX_DEPTH)
}

fn reply_within(value: &Value, depth: usize) -> Result<Reply> {
    Ok(match value {
        Value::Boolean(true) => Reply::Int(1),
        Value::Integer(number) => Reply::Int(*number),
        Value::Number(number) => Reply::Int(truncated(*number)),
        Value::String(bytes) => Reply::Bulk(bytes.as_bytes().to_vec()),
        Value::Table(table) => return table_reply(table, depth),
        _ => Reply::Null,
    })
}

fn table_reply(table: &Table, depth: usize) -> Result<Reply> {
    if depth == 0 {
        return Ok(Reply::error("ERR reached lua stack limit"));
    }
    if let Value::String(error) = table.raw_get("err")? {
        return Ok(error_reply(&error.to_string_lossy()));
    }
    if let Value::String(status) = table.raw_get("ok")? {
        return Ok(Reply::Status(on_one_line(&status.to_string_lossy()).into()));
    }
    let mut parts = Vec::with_capacity(table.raw_len());
    for place in 1.. {
        match table.raw_get(place)? {
            Value::Nil => break,
            part => parts.push(reply_within(&part, depth - 1)?),
        }
    }
    Ok(Reply::Array(parts))
}

/// Converts a number as C does on x86-64, where every number that is out of range becomes the lowest integer.
fn truncated(number: f64) -> i64 {
    const END: f64 = 9_223_372_036_854_775_808.0;
    #[allow(clippy::cast_possible_truncation, reason = "in the range of 64-bit integers")]
    if (-END..END).contains(&number) { number as i64 } else { i64::MIN }
}

pub(super) fn error_reply(text: &str) -> Reply {
    Reply::Error(on_one_line(text.trim_end_matches(['\r', '\n'])))
}

/// Replaces line breaks, which would end the reply.
fn on_one_line(text: &str) -> String {
    text.replace(['\r', '\n'], " ")
}
