//! `acquire_shared.lua` and `release_shared.lua`: add, extend and remove the readers of a lock.

use super::number::number;
use super::run::{Answer, KeyContent, MAX_VALUE, Run, argument};
use crate::server_model::reply::Reply;

/// Value of a lock key while the lock has readers.
pub(super) const READERS: &[u8] = b"quorlock:readers";

/// Holder of a lock, as seen by a reader with a given value.
enum Holder {
    Nothing,
    Readers,
    /// The reader itself, as a writer.
    Own,
    /// Another client, with its value unless this is too long or not a string.
    Other(Option<Vec<u8>>),
}

impl Holder {
    /// Returns the holder whose value the lock key holds.
    fn of(held: Vec<u8>, value: &[u8]) -> Self {
        match held {
            held if held == READERS => Self::Readers,
            held if held == value => Self::Own,
            held => Self::Other(Some(held).filter(|held| held.len() <= MAX_VALUE)),
        }
    }
}

pub(super) fn acquire(run: &mut Run<'_, '_>, keys: &[Vec<u8>], args: &[Vec<u8>]) -> Answer {
    let (lock, readers) = (argument(keys, 1), argument(keys, 2));
    let (value, ttl) = (argument(args, 1), whole(argument(args, 2)));
    let extends = argument(args, 3) == b"extend";
    let (holder, intent) = holder_and_intent(run, keys, value)?;
    if let Holder::Other(other) = holder {
        if extends {
            return Ok(Reply::Int(-1));
        }
        let left = int(&run.call("call('PTTL', KEYS[1])", &[b"PTTL", lock])?);
        return refuse(run, (keys, args), left, other);
    }
    let now = now(run)?;
    let mut expiry = now + ttl;
    let own = match holder {
        Holder::Readers => score(run, readers, value)?.filter(|own| *own >= now),
        _ => None,
    };
    if matches!(holder, Holder::Own) {
        let left = int(&run.call("call('PTTL', KEYS[1]))", &[b"PTTL", lock])?);
        expiry = expiry.max(now + left);
        run.call("call('DEL', KEYS[3]", &[b"DEL", argument(keys, 3)])?;
    } else if own.is_none() {
        if extends {
            let is_no_string = matches!(holder, Holder::Nothing)
                && matches!(run.held("KEYS[1]", lock)?, KeyContent::Other);
            return Ok(Reply::Int(if is_no_string { -1 } else { 0 }));
        }
        if let Some(left) = remaining(&intent, now) {
            return refuse(run, (keys, args), left, None);
        }
    }
    let number = match keys.get(4) {
        Some(counter) => Some(run.call("call('GET', KEYS[5]", &[b"GET", counter])?),
        None => None,
    };
    let ends = expiry.to_string();
    if matches!(holder, Holder::Readers) {
        let until = (now - 1).to_string();
        let remove = [b"ZREMRANGEBYSCORE", readers, b"-inf", until.as_bytes()];
        run.call("call('ZREMRANGEBYSCORE'", &remove)?;
        if own.is_none_or(|own| own < expiry) {
            run.call("call('ZADD', KEYS[2], expiry", &[b"ZADD", readers, ends.as_bytes(), value])?;
            if let Some(last) = last(run, readers)? {
                expire_at(run, [lock, readers], last, "last")?;
            }
        }
    } else {
        let condition = if matches!(holder, Holder::Own) { "XX" } else { "NX" };
        let set = [b"SET", lock, READERS, b"PXAT", ends.as_bytes(), condition.as_bytes()];
        if run.call("call('SET', KEYS[1]", &set)? == Reply::Null {
            let left = int(&run.call("call('PTTL', KEYS[1])) -- no string", &[b"PTTL", lock])?);
            return refuse(run, (keys, args), left, None);
        }
        run.call("call('DEL', KEYS[2]", &[b"DEL", readers])?;
        run.call("call('ZADD', KEYS[2], ends", &[b"ZADD", readers, ends.as_bytes(), value])?;
        run.call("call('PEXPIREAT', KEYS[2], ends", &[b"PEXPIREAT", readers, ends.as_bytes()])?;
    }
    if extends {
        return Ok(Reply::Int(1));
    }
    Ok(match number {
        None => Reply::OK,
        Some(Reply::Null) => Reply::Array(vec![Reply::OK, Reply::text("0")]),
        Some(number) => Reply::Array(vec![Reply::OK, number]),
    })
}

fn holder_and_intent(
    run: &mut Run<'_, '_>,
    keys: &[Vec<u8>],
    value: &[u8],
) -> Result<(Holder, Reply), Reply> {
    let found = [b"MGET", argument(keys, 1), argument(keys, 3)];
    match run.pcall("redis.pcall('MGET'", &found) {
        Reply::Array(found) => {
            let holder = match &found[0] {
                Reply::Bulk(held) => Holder::of(held.clone(), value),
                _ => Holder::Nothing,
            };
            Ok((holder, found[1].clone()))
        }
        refusal => Err(refusal),
    }
}

fn refuse(
    run: &mut Run<'_, '_>,
    (keys, args): (&[Vec<u8>], &[Vec<u8>]),
    left: i64,
    holder: Option<Vec<u8>>,
) -> Answer {
    if argument(args, 3) == b"wait" {
        let until = (left.max(0) + whole(argument(args, 2))).to_string();
        let set = [b"SET", argument(keys, 4), b"1", b"PX", until.as_bytes()];
        run.call("call('SET', KEYS[4]", &set)?;
    }
    let conflict = [Reply::Int(left), Reply::Int(1)];
    Ok(Reply::Array(conflict.into_iter().chain(holder.map(Reply::Bulk)).collect()))
}

pub(super) fn release(run: &mut Run<'_, '_>, keys: &[Vec<u8>], args: &[Vec<u8>]) -> Answer {
    let (lock, readers, value) = (argument(keys, 1), argument(keys, 2), argument(args, 1));
    let cool_down = args.get(1).map(|other| (&other[..], argument(args, 3)));
    match holder(run, lock, value)? {
        Holder::Nothing => return Ok(Reply::Int(0)),
        Holder::Other(_) => return Ok(Reply::Int(-1)),
        Holder::Readers => {}
        Holder::Own => {
            if let Some((other, ttl)) = cool_down {
                run.call("call('SET', KEYS[1]", &[b"SET", lock, other, b"PX", ttl])?;
                return Ok(Reply::Int(1));
            }
            run.call("call('DEL', KEYS[1])", &[b"DEL", lock])?;
            return Ok(Reply::Int(2));
        }
    }
    let latest =
        run.call("call('ZREVRANGE', KEYS[2], 0, 1", &[b"ZREVRANGE", readers, b"0", b"1"])?;
    if matches!(&latest, Reply::Array(only) if *only == [Reply::Bulk(value.to_vec())])
        && cool_down.is_none()
    {
        run.call("call('DEL', KEYS[1], KEYS[2]", &[b"DEL", lock, readers])?;
        return Ok(Reply::Int(2));
    }
    let now = now(run)?;
    let until = (now - 1).to_string();
    let remove = [b"ZREMRANGEBYSCORE", readers, b"-inf", until.as_bytes()];
    run.call("call('ZREMRANGEBYSCORE'", &remove)?;
    let Some(own) = score(run, readers, value)? else { return Ok(Reply::Int(0)) };
    run.call("call('ZREM'", &[b"ZREM", readers, value])?;
    if let Some((other, ttl)) = cool_down {
        let until = (now + whole(ttl)).to_string();
        run.call("call('ZADD'", &[b"ZADD", readers, until.as_bytes(), other])?;
    }
    let Some(last) = last(run, readers)? else {
        run.call("call('DEL', KEYS[1], KEYS[2]", &[b"DEL", lock, readers])?;
        return Ok(Reply::Int(2));
    };
    if cool_down.is_some() || own > last {
        expire_at(run, [lock, readers], last.max(now + 1), "expiry")?;
    }
    Ok(Reply::Int(1))
}

fn holder(run: &mut Run<'_, '_>, lock: &[u8], value: &[u8]) -> Result<Holder, Reply> {
    Ok(match run.held("KEYS[1]", lock)? {
        KeyContent::Missing => Holder::Nothing,
        KeyContent::Value(held) => Holder::of(held, value),
        KeyContent::Other => Holder::Other(None),
    })
}

fn score(run: &mut Run<'_, '_>, readers: &[u8], value: &[u8]) -> Result<Option<i64>, Reply> {
    match run.call("call('ZSCORE'", &[b"ZSCORE", readers, value])? {
        Reply::Score(score) => Ok(Some(score)),
        _ => Ok(None),
    }
}

/// Returns the expiry of the reader that expires last.
fn last(run: &mut Run<'_, '_>, readers: &[u8]) -> Result<Option<i64>, Reply> {
    let last = run.call(
        "call('ZREVRANGE', KEYS[2], 0, 0",
        &[b"ZREVRANGE", readers, b"0", b"0", b"WITHSCORES"],
    )?;
    match last {
        Reply::Pairs(pairs) => match pairs.as_slice() {
            [(_, Reply::Score(last))] => Ok(Some(*last)),
            _ => Ok(None),
        },
        _ => Ok(None),
    }
}

/// Sets the expiry of the lock key and of the list of readers. `variable` is the name of `ms` in the script.
fn expire_at(
    run: &mut Run<'_, '_>,
    keys: [&[u8]; 2],
    ms: i64,
    variable: &str,
) -> Result<(), Reply> {
    let ms = ms.to_string();
    for (place, key) in (1..).zip(keys) {
        let at = format!("call('PEXPIREAT', KEYS[{place}], {variable})");
        run.call(&at, &[b"PEXPIREAT", key, ms.as_bytes()])?;
    }
    Ok(())
}

/// Reads the clock with `TIME`, in ms since 1970.
pub(super) fn now(run: &mut Run<'_, '_>) -> Result<i64, Reply> {
    let Reply::Array(parts) = run.call("call('TIME')", &[b"TIME"])? else { return Ok(0) };
    let part = |place: usize| match parts.get(place) {
        Some(Reply::Bulk(digits)) => whole(digits),
        _ => 0,
    };
    Ok(part(0) * 1_000 + part(1) / 1_000)
}

/// Returns the time from `now` until a writer's intent ends, in ms. Returns `None` without an intent.
pub(super) fn remaining(intent: &Reply, now: i64) -> Option<i64> {
    #[allow(clippy::cast_precision_loss, reason = "Lua's numbers are doubles")]
    let left = intent_end(intent)? - now as f64;
    #[allow(clippy::cast_possible_truncation, reason = "as in the conversion of Lua's numbers")]
    (left > 0.0).then_some(left as i64)
}

/// Parses a writer's intent: when it ends, in ms since 1970.
pub(super) fn intent_end(intent: &Reply) -> Option<f64> {
    match intent {
        Reply::Bulk(digits) => number(digits),
        _ => None,
    }
}

pub(super) fn int(reply: &Reply) -> i64 {
    match reply {
        Reply::Int(number) => *number,
        _ => 0,
    }
}

/// Parses a whole number.
pub(super) fn whole(digits: &[u8]) -> i64 {
    #[allow(clippy::cast_possible_truncation, reason = "whole and below 2^53")]
    number(digits).map_or(0, |number| number as i64)
}
