//! `acquire_any.lua`: sets the first free key of several, with or without fencing counters.

use super::fenced::{AT_END, counter};
use super::number::{END, number};
use super::run::{Answer, KeyContent, MAX_VALUE, Run, argument};
use crate::server_model::reply::Reply;

/// The held key with the shortest remaining TTL.
struct ShortestKey {
    left: i64,
    place: usize,
    value: Option<Vec<u8>>,
}

/// The key that the caller gets. Places start at 1, as in Lua.
enum Choice {
    Free(usize),
    /// The key already has the caller's value.
    Set(usize),
    /// All keys are held.
    Nothing(Option<ShortestKey>),
}

pub(super) fn run(run: &mut Run<'_, '_>, keys: &[Vec<u8>], args: &[Vec<u8>]) -> Answer {
    let (value, ttl) = (argument(args, 1), argument(args, 2));
    let is_fenced = args.len() > 4;
    let (locks, beside) = keys.split_at(if is_fenced { keys.len() / 2 } else { keys.len() });
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // An index in KEYS.
    let first = (number(argument(args, 3)).unwrap_or_default() as usize).max(1);
    let watches = argument(args, 4) == b"1";
    if !is_fenced {
        let key = argument(locks, first);
        let set = [b"SET", key, value, b"NX", b"PX", ttl];
        if run.call("call('SET', KEYS[first]", &set)? != Reply::Null {
            if watches {
                run.call("call('GET', KEYS[first]", &[b"GET", key])?;
            }
            return Ok(index(first));
        }
    }
    let (chosen, is_free) = match choose(run, locks, value, first)? {
        Choice::Free(place) => (place, true),
        Choice::Set(place) => (place, false),
        Choice::Nothing(shortest) => return Ok(refusal(shortest)),
    };
    let write = [b"SET", argument(locks, chosen), value, b"PX", ttl];
    if !is_fenced {
        take(run, (is_free, watches), &write)?;
        return Ok(index(chosen));
    }
    let beside = argument(beside, chosen);
    let shown = counter(&run.pcall("redis.pcall('GET', counter)", &[b"GET", beside]))?;
    let drawn = f64::max(shown + 1.0, number(argument(args, 5)).unwrap_or_default());
    if drawn >= END {
        return Ok(Reply::error(AT_END));
    }
    take(run, (is_free, watches), &write)?;
    let digits = format!("{drawn:.0}");
    let raise = [b"SET", beside, digits.as_bytes(), b"PX", argument(args, 6)];
    run.call("redis.call('SET', counter", &raise)?;
    Ok(Reply::Array(vec![index(chosen), Reply::text(digits)]))
}

/// Sets the chosen key if it is free. The final `GET` matters only for client tracking.
fn take(
    run: &mut Run<'_, '_>,
    (is_free, watches): (bool, bool),
    write: &[&[u8]; 5],
) -> Result<(), Reply> {
    if is_free {
        run.call("redis.call('SET', KEYS[chosen]", write)?;
    }
    if is_free && watches {
        run.call("redis.call('GET', KEYS[chosen]", &[b"GET", write[1]])?;
    }
    Ok(())
}

/// Reads the lock keys up to the first one that the caller gets, beginning with the key that the caller wants to try
/// first.
fn choose(
    run: &mut Run<'_, '_>,
    locks: &[Vec<u8>],
    value: &[u8],
    first: usize,
) -> Result<Choice, Reply> {
    let mut shortest: Option<ShortestKey> = None;
    for step in 0..locks.len() {
        let place = (first.saturating_sub(1) + step) % locks.len() + 1;
        let key = argument(locks, place);
        let held = match run.held("KEYS[i]", key)? {
            KeyContent::Missing => return Ok(Choice::Free(place)),
            KeyContent::Value(held) if held == value => return Ok(Choice::Set(place)),
            KeyContent::Value(held) => Some(held).filter(|held| held.len() <= MAX_VALUE),
            KeyContent::Other => None,
        };
        let left = run.pttl(key)?;
        let is_shorter =
            |known: &ShortestKey| left != -1 && (known.left == -1 || left < known.left);
        if shortest.as_ref().is_none_or(is_shorter) {
            shortest = Some(ShortestKey { left, place, value: held });
        }
    }
    Ok(Choice::Nothing(shortest))
}

fn refusal(shortest: Option<ShortestKey>) -> Reply {
    let Some(ShortestKey { left, place, value }) = shortest else {
        return Reply::Array(Vec::new());
    };
    let key = [Reply::Int(left), index(place)];
    Reply::Array(key.into_iter().chain(value.map(Reply::Bulk)).collect())
}

fn index(place: usize) -> Reply {
    Reply::Int(i64::try_from(place).unwrap_or(i64::MAX))
}
