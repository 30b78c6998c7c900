//! `acquire.lua`: sets all keys of a multi-key lock, or none.

use super::run::{Answer, KeyContent, MAX_VALUE, Run, argument};
use crate::server_model::reply::Reply;

/// The conflicting key with the longest remaining TTL.
struct LongestKey {
    left: i64,
    place: i64,
    value: Option<Vec<u8>>,
}

pub(super) fn run(run: &mut Run<'_, '_>, keys: &[Vec<u8>], args: &[Vec<u8>]) -> Answer {
    let (value, ttl) = (argument(args, 1), argument(args, 2));
    let exists: Vec<_> = std::iter::once(&b"EXISTS"[..]).chain(keys.iter().map(|k| &**k)).collect();
    if run.pcall("redis.pcall('EXISTS'", &exists) == Reply::Int(0) {
        for key in keys {
            run.call("call('SET', KEYS[i], value", &[b"SET", key, value, b"PX", ttl])?;
        }
        return Ok(Reply::OK);
    }
    let mut missing = Vec::new();
    let mut longest: Option<LongestKey> = None;
    for (place, key) in (1..).zip(keys) {
        let held = match run.held("key", key)? {
            KeyContent::Missing => {
                missing.push(key);
                continue;
            }
            KeyContent::Value(held) if held == value => continue,
            KeyContent::Value(held) => Some(held).filter(|held| held.len() <= MAX_VALUE),
            KeyContent::Other => None,
        };
        let left = run.pttl(key)?;
        let is_longer = |known: &LongestKey| left == -1 || known.left != -1 && left > known.left;
        if longest.as_ref().is_none_or(is_longer) {
            longest = Some(LongestKey { left, place, value: held });
        }
    }
    if let Some(LongestKey { left, place, value }) = longest {
        let value = value.map(Reply::Bulk);
        return Ok(Reply::Array(
            [Reply::Int(left), Reply::Int(place)].into_iter().chain(value).collect(),
        ));
    }
    for key in missing {
        run.call("redis.call('SET', key, ARGV[1]", &[b"SET", key, value, b"PX", ttl])?;
    }
    Ok(Reply::OK)
}
