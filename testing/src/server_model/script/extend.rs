//! `extend.lua`: if all keys have the given value, raises their remaining TTL to at least the given
//! TTL.

use super::number::number;
use super::run::{Answer, KeyContent, Run, argument};
use crate::server_model::reply::Reply;

pub(super) fn run(run: &mut Run<'_, '_>, keys: &[Vec<u8>], args: &[Vec<u8>]) -> Answer {
    let (value, ttl) = (argument(args, 1), argument(args, 2));
    let mut is_missing = false;
    for key in keys {
        match run.held("key", key)? {
            KeyContent::Missing => is_missing = true,
            KeyContent::Value(held) if held == value => {}
            KeyContent::Value(_) | KeyContent::Other => return Ok(Reply::Int(-1)),
        }
    }
    if is_missing {
        return Ok(Reply::Int(0));
    }
    for key in keys {
        if is_below(run.pttl(key)?, ttl) {
            run.call("redis.call('PEXPIRE'", &[b"PEXPIRE", key, ttl])?;
        }
    }
    Ok(Reply::Int(1))
}

#[allow(clippy::cast_precision_loss, reason = "Lua's numbers are doubles")]
fn is_below(left: i64, ttl: &[u8]) -> bool {
    number(ttl).is_some_and(|ttl| (left as f64) < ttl)
}
