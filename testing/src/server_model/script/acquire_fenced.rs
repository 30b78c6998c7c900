//! `acquire_fenced.lua`: sets the key of one lock and increments the lock's fencing counter.

use super::fenced::{AT_END, counter};
use super::number::{END, number};
use super::run::{Answer, KeyContent, MAX_VALUE, Run, argument};
use crate::server_model::reply::Reply;

pub(super) fn run(run: &mut Run<'_, '_>, keys: &[Vec<u8>], args: &[Vec<u8>]) -> Answer {
    let (key, beside) = (argument(keys, 1), argument(keys, 2));
    let (least, counter_ttl) = (argument(args, 1), argument(args, 2));
    let (value, ttl) = (argument(args, 3), argument(args, 4));
    let shown = counter(&run.pcall("redis.pcall('GET', KEYS[2]", &[b"GET", beside]))?;
    let drawn = f64::max(shown + 1.0, number(least).unwrap_or_default());
    if drawn >= END {
        return Ok(Reply::error(AT_END));
    }
    let set = [b"SET", key, value, b"NX", b"PX", ttl];
    if run.call("redis.call('SET', KEYS[1]", &set)? != Reply::OK {
        let held = match run.held("KEYS[1]", key)? {
            KeyContent::Value(held) if held == value => None,
            KeyContent::Value(held) => Some(Some(held).filter(|held| held.len() <= MAX_VALUE)),
            KeyContent::Missing | KeyContent::Other => Some(None),
        };
        if let Some(held) = held {
            let left = Reply::Int(run.pttl(key)?);
            let conflict = [left, Reply::Int(1)].into_iter().chain(held.map(Reply::Bulk));
            let shown = Reply::text(format!("{shown:.0}"));
            return Ok(Reply::Array(vec![Reply::Array(conflict.collect()), shown]));
        }
    }
    let digits = format!("{drawn:.0}");
    let set = [b"SET", beside, digits.as_bytes(), b"PX", counter_ttl];
    run.call("redis.call('SET', KEYS[2]", &set)?;
    #[allow(clippy::cast_possible_truncation)] // The number is whole and below 2^53.
    Ok(Reply::Int(drawn as i64))
}
