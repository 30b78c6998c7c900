//! `release.lua`, which deletes each key that has the given value, or replaces the value; and `release_any.lua`.

use super::run::{Answer, KeyContent, Run, argument};
use crate::server_model::reply::Reply;

pub(super) fn run(run: &mut Run<'_, '_>, keys: &[Vec<u8>], args: &[Vec<u8>]) -> Answer {
    let value = argument(args, 1);
    if args.len() == 1 && all_hold(run, keys, value) {
        let delete: Vec<_> =
            std::iter::once(&b"DEL"[..]).chain(keys.iter().map(|k| &**k)).collect();
        run.call("redis.call('DEL', unpack(KEYS)", &delete)?;
        return Ok(Reply::Int(1));
    }
    let mut outcome = 1;
    for key in keys {
        match run.held("key", key)? {
            KeyContent::Value(held) if held == value => {
                if let [_, other, ..] = args {
                    let set = [b"SET", &key[..], other, b"PX", argument(args, 3)];
                    run.call("redis.call('SET', key, ARGV[2]", &set)?;
                } else {
                    run.call("redis.call('DEL', key", &[b"DEL", key])?;
                }
            }
            KeyContent::Missing => outcome = outcome.min(0),
            KeyContent::Value(_) | KeyContent::Other => outcome = -1,
        }
    }
    Ok(Reply::Int(outcome))
}

/// `release_any.lua`: deletes the keys that have the given value.
pub(super) fn run_any(run: &mut Run<'_, '_>, keys: &[Vec<u8>], args: &[Vec<u8>]) -> Answer {
    let mut first = 0;
    for (place, key) in (1..).zip(keys) {
        if matches!(run.held("key", key)?, KeyContent::Value(held) if held == argument(args, 1)) {
            run.call("redis.call('DEL', key", &[b"DEL", key])?;
            first = if first == 0 { place } else { first };
        }
    }
    Ok(Reply::Int(first))
}

fn all_hold(run: &mut Run<'_, '_>, keys: &[Vec<u8>], value: &[u8]) -> bool {
    let holds = |key: &Vec<u8>| {
        let held = run.held("KEYS[matching + 1]", key);
        matches!(held, Ok(KeyContent::Value(held)) if held == value)
    };
    keys.iter().all(holds)
}
