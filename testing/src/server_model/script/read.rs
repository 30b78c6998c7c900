//! `read.lua`: returns the value and the remaining TTL of a lock, and its fencing counter on request.

use super::fenced::counter;
use super::run::{Answer, KeyContent, MAX_VALUE, Run};
use crate::server_model::reply::Reply;

pub(super) fn run(run: &mut Run<'_, '_>, keys: &[Vec<u8>], _: &[Vec<u8>]) -> Answer {
    let key = keys.first().map(Vec::as_slice).unwrap_or_default();
    let found = match run.held("KEYS[1]", key)? {
        KeyContent::Missing => Reply::Int(-2),
        KeyContent::Value(held) if held.len() <= MAX_VALUE => {
            let left = Reply::Int(run.pttl(key)?);
            Reply::Array(vec![Reply::Bulk(held), left])
        }
        KeyContent::Value(_) | KeyContent::Other => Reply::Int(run.pttl(key)?),
    };
    let Some(beside) = keys.get(1) else { return Ok(found) };
    let digits = run.pcall("redis.pcall('GET', KEYS[2]", &[b"GET", beside]);
    // Negative zero becomes zero, as in Lua's comparison.
    let number = counter(&digits).unwrap_or_default() + 0.0;
    Ok(Reply::Array(vec![found, Reply::text(format!("{number:.0}"))]))
}
