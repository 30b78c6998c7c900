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

/// Content of the keys of a lock when a script starts.
struct Found {
    holder: Holder,
    /// The value of the only reader, if it is stored as a string.
    only: Option<Vec<u8>>,
    intent: Reply,
    request: Reply,
}

pub(super) fn acquire(run: &mut Run<'_, '_>, keys: &[Vec<u8>], args: &[Vec<u8>]) -> Answer {
    let (lock, readers) = (argument(keys, 1), argument(keys, 2));
    let (value, ttl) = (argument(args, 1), whole(argument(args, 2)));
    let extends = argument(args, 3) == b"extend";
    let Found { holder, only, intent, request } = found(run, &keys[..4], value)?;
    if let Holder::Other(other) = holder {
        if extends {
            return Ok(Reply::Int(-1));
        }
        let left = int(&run.call("call('PTTL', KEYS[1]), #held", &[b"PTTL", lock])?);
        return refuse(run, (keys, args), &request, left, other);
    }
    let is_alone = match holder {
        Holder::Readers => only.as_deref() == Some(value),
        _ => true,
    };
    let left = left_of(run, (lock, readers), (&holder, only.is_some()))?;
    let now = if is_alone { 0 } else { now(run)? };
    let score = match only {
        None if !is_alone => score(run, readers, value)?,
        _ => None,
    };
    let holds = match holder {
        Holder::Nothing => false,
        _ => is_alone || score.is_some_and(|score| score >= now),
    };
    if matches!(holder, Holder::Own) {
        run.call("call('DEL', KEYS[3]", &[b"DEL", argument(keys, 3)])?;
    } else if !holds {
        if extends {
            let is_no_string = matches!(holder, Holder::Nothing)
                && matches!(run.held("KEYS[1]", lock)?, KeyContent::Other);
            return Ok(Reply::Int(if is_no_string { -1 } else { 0 }));
        }
        let blocked = Blocked::read(run, &intent, ("call('PTTL', KEYS[3]) - ", argument(keys, 3)))?;
        if let Some(left) = blocked.and_then(Blocked::left) {
            return refuse(run, (keys, args), &request, left, None);
        }
    }
    let number = match keys.get(4) {
        Some(counter) => Some(run.call("call('GET', KEYS[5]", &[b"GET", counter])?),
        None => None,
    };
    let keys_of_readers = (lock, readers);
    if !is_alone {
        if let Some(only) = &only {
            replace_only_reader(run, readers, only, now + left.unwrap_or(0), left.unwrap_or(0))?;
        }
        let expiry = now + ttl;
        let is_later = !holds || score.is_some_and(|score| score < expiry);
        add(run, keys_of_readers, (now, expiry), value, is_later)?;
    } else if !matches!(holder, Holder::Readers) || left.is_some_and(|left| left < ttl) {
        let longest = left.unwrap_or(0).max(ttl);
        if !set_only_reader(run, keys_of_readers, longest, value, &holder)? {
            let at = "call('PTTL', KEYS[1])) -- no string";
            let left = int(&run.call(at, &[b"PTTL", lock])?);
            return refuse(run, (keys, args), &request, left, None);
        }
    }
    if extends {
        return Ok(Reply::Int(1));
    }
    end_request(run, (keys, args), &request)?;
    Ok(match number {
        None => Reply::OK,
        Some(Reply::Null) => Reply::Array(vec![Reply::OK, Reply::text("0")]),
        Some(number) => Reply::Array(vec![Reply::OK, number]),
    })
}

/// Returns the remaining TTL of the writer that becomes a reader, or of the only reader.
fn left_of(
    run: &mut Run<'_, '_>,
    (lock, readers): (&[u8], &[u8]),
    (holder, has_only_reader): (&Holder, bool),
) -> Result<Option<i64>, Reply> {
    let (at, key) = match holder {
        Holder::Own => ("and call('PTTL', KEYS[1])", lock),
        Holder::Readers if has_only_reader => ("and call('PTTL', KEYS[2])", readers),
        _ => return Ok(None),
    };
    Ok(Some(int(&run.call(at, &[b"PTTL", key])?)))
}

/// Reads the lock key and the readers, and the writer's intent and the request of a waiting reader unless `keys` has only
/// two keys.
fn found(run: &mut Run<'_, '_>, keys: &[Vec<u8>], value: &[u8]) -> Result<Found, Reply> {
    let words: Vec<&[u8]> =
        std::iter::once(&b"MGET"[..]).chain(keys.iter().map(Vec::as_slice)).collect();
    match run.pcall("redis.pcall('MGET'", &words) {
        Reply::Array(found) => {
            let holder = match &found[0] {
                Reply::Bulk(held) => Holder::of(held.clone(), value),
                _ => Holder::Nothing,
            };
            let other = |place: usize| found.get(place).cloned().unwrap_or(Reply::Null);
            let only = match &found[1] {
                Reply::Bulk(only) => Some(only.clone()),
                _ => None,
            };
            Ok(Found { holder, only, intent: other(2), request: other(3) })
        }
        refusal => Err(refusal),
    }
}

/// Sets the lock key and the readers of a lock that has no other reader. Returns false if the lock key is no string.
fn set_only_reader(
    run: &mut Run<'_, '_>,
    (lock, readers): (&[u8], &[u8]),
    ttl: i64,
    value: &[u8],
    holder: &Holder,
) -> Result<bool, Reply> {
    let ttl = ttl.to_string();
    let condition: &[u8] = if matches!(holder, Holder::Nothing) { b"NX" } else { b"XX" };
    let set = [b"SET", lock, READERS, b"PX", ttl.as_bytes(), condition];
    if run.call("call('SET', KEYS[1], READERS", &set)? == Reply::Null {
        return Ok(false);
    }
    let set = [b"SET", readers, value, b"PX", ttl.as_bytes()];
    run.call("call('SET', KEYS[2], value", &set)?;
    Ok(true)
}

/// Turns the readers of a lock into a sorted set.
fn replace_only_reader(
    run: &mut Run<'_, '_>,
    readers: &[u8],
    only: &[u8],
    expiry: i64,
    left: i64,
) -> Result<(), Reply> {
    run.call("call('DEL', KEYS[2]", &[b"DEL", readers])?;
    let expiry = expiry.to_string();
    match run.pcall("redis.pcall('ZADD'", &[b"ZADD", readers, expiry.as_bytes(), only]) {
        Reply::Int(_) => Ok(()),
        refusal => {
            let left = left.max(1).to_string();
            let set = [b"SET", readers, only, b"PX", left.as_bytes()];
            run.call("call('SET', KEYS[2], only", &set)?;
            Err(refusal)
        }
    }
}

/// Adds a reader to the sorted set if its expiry is later than the one of its entry.
fn add(
    run: &mut Run<'_, '_>,
    (lock, readers): (&[u8], &[u8]),
    (now, expiry): (i64, i64),
    value: &[u8],
    is_later: bool,
) -> Result<(), Reply> {
    let (until, ends) = ((now - 1).to_string(), expiry.to_string());
    let remove = [b"ZREMRANGEBYSCORE", readers, b"-inf", until.as_bytes()];
    run.call("call('ZREMRANGEBYSCORE'", &remove)?;
    if is_later {
        run.call("call('ZADD', KEYS[2], now + ttl", &[b"ZADD", readers, ends.as_bytes(), value])?;
        if let Some(last) = last(run, readers)? {
            expire_at(run, [lock, readers], last, "last")?;
        }
    }
    Ok(())
}

fn refuse(
    run: &mut Run<'_, '_>,
    (keys, args): (&[Vec<u8>], &[Vec<u8>]),
    request: &Reply,
    left: i64,
    holder: Option<Vec<u8>>,
) -> Answer {
    if let Some(own) = args.get(3)
        && first_number(request).unwrap_or(0.0) <= first_number_of(own).unwrap_or(0.0)
    {
        let until = (left.max(0) + whole(argument(args, 2))).to_string();
        let set = [b"SET", argument(keys, 4), own, b"PX", until.as_bytes()];
        run.call("call('SET', KEYS[4]", &set)?;
    }
    let conflict = [Reply::Int(left), Reply::Int(1)];
    Ok(Reply::Array(conflict.into_iter().chain(holder.map(Reply::Bulk)).collect()))
}

/// Ends the stored request of the reader that was added.
fn end_request(
    run: &mut Run<'_, '_>,
    (keys, args): (&[Vec<u8>], &[Vec<u8>]),
    request: &Reply,
) -> Result<(), Reply> {
    if let (Some(own), Reply::Bulk(request)) = (args.get(3), request)
        && own == request
    {
        run.call("call('PEXPIRE', KEYS[4]", &[b"PEXPIRE", argument(keys, 4), b"20"])?;
    }
    Ok(())
}

pub(super) fn release(run: &mut Run<'_, '_>, keys: &[Vec<u8>], args: &[Vec<u8>]) -> Answer {
    let (lock, readers, value) = (argument(keys, 1), argument(keys, 2), argument(args, 1));
    let cool_down = args.get(1).map(|other| (&other[..], argument(args, 3)));
    let found = found(run, &keys[..2], value)?;
    match found.holder {
        Holder::Nothing => {
            let is_no_string = matches!(run.held("KEYS[1]", lock)?, KeyContent::Other);
            return Ok(Reply::Int(if is_no_string { -1 } else { 0 }));
        }
        Holder::Other(_) => return Ok(Reply::Int(-1)),
        Holder::Readers => {}
        Holder::Own => {
            if let Some((other, ttl)) = cool_down {
                run.call("call('SET', KEYS[1], ARGV[2]", &[b"SET", lock, other, b"PX", ttl])?;
                return Ok(Reply::Int(1));
            }
            run.call("call('DEL', KEYS[1])", &[b"DEL", lock])?;
            return Ok(Reply::Int(2));
        }
    }
    match (found.only, cool_down) {
        (None, _) => {}
        (Some(only), _) if only != value => return Ok(Reply::Int(0)),
        (Some(_), Some((other, ttl))) => {
            let set = [b"SET", lock, READERS, b"PX", ttl];
            run.call("call('SET', KEYS[1], READERS", &set)?;
            run.call("call('SET', KEYS[2]", &[b"SET", readers, other, b"PX", ttl])?;
            return Ok(Reply::Int(1));
        }
        (Some(_), None) => {
            run.call("call('DEL', KEYS[1], KEYS[2]", &[b"DEL", lock, readers])?;
            return Ok(Reply::Int(2));
        }
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
        // The second of two equal calls.
        let at = "call('DEL', KEYS[1], KEYS[2])\n  return 2\nend\nif ARGV[2]";
        run.call(at, &[b"DEL", lock, readers])?;
        return Ok(Reply::Int(2));
    };
    if cool_down.is_some() || own > last {
        expire_at(run, [lock, readers], last.max(now + 1), "expiry")?;
    }
    Ok(Reply::Int(1))
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

/// A writer's intent: its TTL, and how long it is still in force, in ms.
#[derive(Clone, Copy)]
pub(super) struct Blocked {
    ttl: f64,
    left: f64,
}

impl Blocked {
    /// Reads the remaining TTL of the key with the content `intent`. `at` is the call in the script's source.
    pub(super) fn read(
        run: &mut Run<'_, '_>,
        intent: &Reply,
        (at, key): (&str, &[u8]),
    ) -> Result<Option<Self>, Reply> {
        let Some(ttl) = first_number(intent) else { return Ok(None) };
        let left = int(&run.call(at, &[b"PTTL", key])?);
        #[allow(clippy::cast_precision_loss, reason = "Lua's numbers are doubles")]
        Ok(Some(Self { ttl, left: left as f64 - ttl }))
    }

    pub(super) fn is_void(self) -> bool {
        self.left > self.ttl
    }

    /// Returns for how long new readers must wait, if the intent is in force.
    #[allow(clippy::cast_possible_truncation, reason = "as in the conversion of Lua's numbers")]
    pub(super) fn left(self) -> Option<i64> {
        (self.left > 0.0 && !self.is_void()).then_some(self.left as i64)
    }
}

/// Parses the digits at the beginning of an intent or a request.
pub(super) fn first_number(reply: &Reply) -> Option<f64> {
    match reply {
        Reply::Bulk(text) => first_number_of(text),
        _ => None,
    }
}

fn first_number_of(text: &[u8]) -> Option<f64> {
    let count = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    number(&text[..count])
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
