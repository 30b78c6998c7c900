//! `release.lua`: deletes or replaces each key that has the given value.

use super::run::{Answer, Held, Run, argument};
use crate::server_model::reply::Reply;

pub(super) fn run(run: &mut Run<'_, '_>, keys: &[Vec<u8>], args: &[Vec<u8>]) -> Answer {
    let value = argument(args, 1);
    if let ([key], [_]) = (keys, args)
        && let Ok(Held::Value(held)) = run.held("KEYS[1]", key)
        && held == value
    {
        return run.call("redis.call('DEL', KEYS[1]", &[b"DEL", key]);
    }
    let mut outcome = 1;
    for key in keys {
        match run.held("key", key)? {
            Held::Value(held) if held == value => {
                if let [_, other, ..] = args {
                    let set = [b"SET", &key[..], other, b"PX", argument(args, 3)];
                    run.call("redis.call('SET', key, ARGV[2]", &set)?;
                } else {
                    run.call("redis.call('DEL', key", &[b"DEL", key])?;
                }
            }
            Held::Missing => outcome = outcome.min(0),
            Held::Value(_) | Held::Other => outcome = -1,
        }
    }
    Ok(Reply::Int(outcome))
}
