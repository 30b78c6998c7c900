//! `SET`, `MSETEX`, `GET`, `MGET` and `GETRANGE`.

use crate::server_model::command_context::CommandContext;
use crate::server_model::keyspace::{Entry, Kind};
use crate::server_model::reply::Reply;
use crate::server_model::request::integer;
use crate::server_model::trouble::{NO_INTEGER, SYNTAX, WRONGTYPE};

#[derive(Default)]
struct Options<'a> {
    is_nx: bool,
    is_xx: bool,
    px: Option<&'a [u8]>,
    /// An expiry in ms since 1970, instead of a TTL.
    pxat: Option<&'a [u8]>,
}

pub(crate) fn get(context: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    match context.find(&arguments[1]).map(|entry| entry.kind) {
        None => Reply::Null,
        Some(Kind::String(value)) => Reply::Bulk(value),
        Some(_) => Reply::error(WRONGTYPE),
    }
}

/// Executes `MGET key [key ...]`. The reply is nil for each key that is missing or no string.
pub(crate) fn mget(context: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    let get = |key: &Vec<u8>| match context.find(key).map(|entry| entry.kind) {
        Some(Kind::String(value)) => Reply::Bulk(value),
        _ => Reply::Null,
    };
    Reply::Array(arguments[1..].iter().map(get).collect())
}

/// Executes `GETRANGE key start end`. Both positions are inclusive. A negative position counts from
/// the end of the value.
pub(crate) fn get_range(context: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    let (Some(start), Some(end)) = (integer(&arguments[2]), integer(&arguments[3])) else {
        return Reply::error(NO_INTEGER);
    };
    let value = match context.find(&arguments[1]).map(|entry| entry.kind) {
        None => Vec::new(),
        Some(Kind::String(value)) => value,
        Some(_) => return Reply::error(WRONGTYPE),
    };
    let from = |place: i64| {
        let from_end =
            value.len().saturating_sub(usize::try_from(place.unsigned_abs()).unwrap_or(usize::MAX));
        usize::try_from(place).unwrap_or(from_end)
    };
    let is_reversed = start < 0 && end < 0 && start > end;
    let range = from(start)..from(end).saturating_add(1).min(value.len());
    Reply::Bulk(value.get(range).filter(|_| !is_reversed).unwrap_or_default().to_vec())
}

pub(crate) fn set(context: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    let Some(options) = Options::read(&arguments[3..]) else { return Reply::error(SYNTAX) };
    let expires_ms = match options.expires_ms(context, "set") {
        Ok(expires_ms) => expires_ms,
        Err(refusal) => return refusal,
    };
    let key = &arguments[1];
    let exists = context.find(key).is_some();
    if options.is_nx && exists || options.is_xx && !exists {
        return Reply::Null;
    }
    context.put(key, Entry { kind: Kind::String(arguments[2].clone()), expires_ms });
    Reply::OK
}

/// Executes `MSETEX numkeys key value [key value ...] [NX | XX] [PX milliseconds]`, which sets all
/// keys or none.
pub(crate) fn msetex(context: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    let count = integer(&arguments[1]).and_then(|count| i32::try_from(count).ok());
    let count = count.and_then(|count| usize::try_from(count).ok()).filter(|count| *count > 0);
    let Some(count) = count else {
        return Reply::error("ERR invalid numkeys value or out of range");
    };
    let split = arguments[2..].split_at_checked(2 * count);
    let parsed = split.and_then(|(pairs, rest)| Some((pairs, Options::read(rest)?)));
    let Some((pairs, options)) = parsed else { return Reply::error(SYNTAX) };
    let expires_ms = match options.expires_ms(context, "msetex") {
        Ok(expires_ms) => expires_ms,
        Err(refusal) => return refusal,
    };
    let exists: Vec<_> = pairs.chunks(2).map(|pair| context.find(&pair[0]).is_some()).collect();
    if options.is_nx && exists.contains(&true) || options.is_xx && exists.contains(&false) {
        return Reply::Int(0);
    }
    for pair in pairs.chunks(2) {
        context.put(&pair[0], Entry { kind: Kind::String(pair[1].clone()), expires_ms });
    }
    Reply::Int(1)
}

impl<'a> Options<'a> {
    fn expires(&self) -> bool {
        self.px.is_some() || self.pxat.is_some()
    }

    fn expires_ms(
        &self,
        context: &CommandContext<'_>,
        command: &str,
    ) -> Result<Option<i64>, Reply> {
        let (Some(given), start) = (match self.pxat {
            Some(_) => (self.pxat, 0),
            None => (self.px, context.server.now_ms()),
        }) else {
            return Ok(None);
        };
        let given = integer(given).ok_or_else(|| Reply::error(NO_INTEGER))?;
        match given.checked_add(start) {
            Some(expires) if given > 0 => Ok(Some(expires)),
            _ => Err(Reply::Error(format!("ERR invalid expire time in '{command}' command"))),
        }
    }

    fn read(words: &'a [Vec<u8>]) -> Option<Self> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.to_ascii_lowercase().as_slice() {
                b"nx" if !options.is_xx => options.is_nx = true,
                b"xx" if !options.is_nx => options.is_xx = true,
                b"px" if !options.expires() => options.px = Some(words.next()?),
                b"pxat" if !options.expires() => options.pxat = Some(words.next()?),
                _ => return None,
            }
        }
        Some(options)
    }
}
