//! Commands for keys of any type, for sets and lists, and for the whole keyspace.

use crate::server_model::command_context::CommandContext;
use crate::server_model::keyspace::{Entry, Kind};
use crate::server_model::reply::Reply;
use crate::server_model::request::integer;
use crate::server_model::trouble::{NO_INTEGER, NO_STRING, SYNTAX, WRONGTYPE};
use std::collections::BTreeSet;

pub(crate) fn del(context: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    let mut deleted = 0;
    for key in &arguments[1..] {
        if context.find(key).is_some() {
            context.remove(key);
            deleted += 1;
        }
    }
    Reply::Int(deleted)
}

pub(crate) fn exists(context: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    Reply::Int(count(arguments[1..].iter().filter(|key| context.find(key).is_some()).count()))
}

pub(crate) fn delifeq(context: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    delete_if_equal(context, &arguments[1], &arguments[2], WRONGTYPE)
}

/// Executes `DELEX key [IFEQ value]`. Other conditions are not modelled.
pub(crate) fn delex(context: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    match &arguments[1..] {
        [_] => del(context, arguments),
        [key, condition, value] if condition.eq_ignore_ascii_case(b"IFEQ") => {
            delete_if_equal(context, key, value, NO_STRING)
        }
        _ => Reply::error(SYNTAX),
    }
}

fn delete_if_equal(
    context: &mut CommandContext<'_>,
    key: &[u8],
    value: &[u8],
    other_kind: &str,
) -> Reply {
    match context.find(key).map(|entry| entry.kind) {
        Some(Kind::String(current)) if current == value => {
            context.remove(key);
            Reply::Int(1)
        }
        Some(Kind::String(_)) | None => Reply::Int(0),
        Some(_) => Reply::error(other_kind),
    }
}

pub(crate) fn pttl(context: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    let Some(entry) = context.find(&arguments[1]) else { return Reply::Int(-2) };
    Reply::Int(entry.expires_ms.map_or(-1, |expires| (expires - context.server.now_ms()).max(0)))
}

pub(crate) fn pexpire(context: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    let now = context.server.now_ms();
    expire(context, arguments, now)
}

pub(crate) fn pexpireat(context: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    expire(context, arguments, 0)
}

/// Sets the expiry of a key, in milliseconds after `start`. A key that has already expired is deleted.
fn expire(context: &mut CommandContext<'_>, arguments: &[Vec<u8>], start: i64) -> Reply {
    if arguments.len() > 3 {
        let option = String::from_utf8_lossy(&arguments[3]);
        return Reply::Error(format!("ERR Unsupported option {option}"));
    }
    let Some(delay) = integer(&arguments[2]) else { return Reply::error(NO_INTEGER) };
    let Some(expires) = delay.checked_add(start) else {
        let name = String::from_utf8_lossy(&arguments[0]).to_lowercase();
        return Reply::Error(format!("ERR invalid expire time in '{name}' command"));
    };
    let key = &arguments[1];
    let Some(entry) = context.find(key) else { return Reply::Int(0) };
    if expires <= context.server.now_ms() && !context.server.is_replica() {
        context.remove(key);
    } else {
        context.put(key, Entry { expires_ms: Some(expires), ..entry });
    }
    Reply::Int(1)
}

pub(crate) fn sadd(context: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    let key = &arguments[1];
    let entry = context.find(key);
    let entry = entry.unwrap_or(Entry { kind: Kind::Set(BTreeSet::new()), expires_ms: None });
    let Kind::Set(mut members) = entry.kind else { return Reply::error(WRONGTYPE) };
    let before = members.len();
    members.extend(arguments[2..].iter().cloned());
    let added = count(members.len() - before);
    if added > 0 {
        context.put(key, Entry { kind: Kind::Set(members), ..entry });
    }
    Reply::Int(added)
}

pub(crate) fn lpush(context: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    let key = &arguments[1];
    let entry = context.find(key);
    let entry = entry.unwrap_or(Entry { kind: Kind::List(Vec::new()), expires_ms: None });
    let Kind::List(mut elements) = entry.kind else { return Reply::error(WRONGTYPE) };
    elements.splice(0..0, arguments[2..].iter().rev().cloned());
    let length = count(elements.len());
    context.put(key, Entry { kind: Kind::List(elements), ..entry });
    Reply::Int(length)
}

pub(crate) fn flushall(context: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    flush(context, arguments, None)
}

pub(crate) fn flushdb(context: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    let db = context.db();
    flush(context, arguments, Some(db))
}

fn flush(context: &mut CommandContext<'_>, arguments: &[Vec<u8>], db: Option<u32>) -> Reply {
    let is_mode =
        |word: &[u8]| word.eq_ignore_ascii_case(b"sync") || word.eq_ignore_ascii_case(b"async");
    if !matches!(arguments, [_]) && !matches!(arguments, [_, mode] if is_mode(mode)) {
        return Reply::error(SYNTAX);
    }
    context.server.flush_keys(db, Some(context.conn));
    Reply::OK
}

fn count(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}
