//! `SET`, `GET` and `GETRANGE`.

use crate::server_model::keyspace::{Entry, Kind};
use crate::server_model::reply::Reply;
use crate::server_model::request::integer;
use crate::server_model::trouble::{NO_INTEGER, SYNTAX, WRONGTYPE};
use crate::server_model::turn::Turn;

/// Options of `SET`.
#[derive(Default)]
struct Options<'a> {
    /// Sets the key only if it does not exist.
    is_nx: bool,
    /// Sets the key only if it exists.
    is_xx: bool,
    px: Option<&'a [u8]>,
}

pub(crate) fn get(turn: &mut Turn<'_>, arguments: &[Vec<u8>]) -> Reply {
    match turn.find(&arguments[1]).map(|entry| entry.kind) {
        None => Reply::Null,
        Some(Kind::String(value)) => Reply::Bulk(value),
        Some(_) => Reply::error(WRONGTYPE),
    }
}

/// `GETRANGE key start end`. Both positions are inclusive; negative ones count from the end.
pub(crate) fn get_range(turn: &mut Turn<'_>, arguments: &[Vec<u8>]) -> Reply {
    let (Some(start), Some(end)) = (integer(&arguments[2]), integer(&arguments[3])) else {
        return Reply::error(NO_INTEGER);
    };
    let value = match turn.find(&arguments[1]).map(|entry| entry.kind) {
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

pub(crate) fn set(turn: &mut Turn<'_>, arguments: &[Vec<u8>]) -> Reply {
    let Some(options) = Options::read(&arguments[3..]) else { return Reply::error(SYNTAX) };
    let expires_ms = match options.px.map(integer) {
        None => None,
        Some(None) => return Reply::error(NO_INTEGER),
        Some(Some(ttl)) => match ttl.checked_add(turn.server.now_ms()) {
            Some(expires) if ttl > 0 => Some(expires),
            _ => return Reply::error("ERR invalid expire time in 'set' command"),
        },
    };
    let key = &arguments[1];
    let exists = turn.find(key).is_some();
    if options.is_nx && exists || options.is_xx && !exists {
        return Reply::Null;
    }
    turn.put(key, Entry { kind: Kind::String(arguments[2].clone()), expires_ms });
    Reply::OK
}

impl<'a> Options<'a> {
    fn read(words: &'a [Vec<u8>]) -> Option<Self> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.to_ascii_lowercase().as_slice() {
                b"nx" if !options.is_xx => options.is_nx = true,
                b"xx" if !options.is_nx => options.is_xx = true,
                b"px" if options.px.is_none() => options.px = Some(words.next()?),
                _ => return None,
            }
        }
        Some(options)
    }
}
