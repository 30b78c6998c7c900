//! `period.lua`: compares the counter of a scheduled job with the number of a period.

use super::number::{END, number};
use super::run::{Answer, Run, argument};
use crate::server_model::reply::Reply;

pub(super) fn run(run: &mut Run<'_, '_>, keys: &[Vec<u8>], args: &[Vec<u8>]) -> Answer {
    let (key, period, ttl) = (argument(keys, 1), argument(args, 1), argument(args, 2));
    let reply = run.pcall("redis.pcall('GET', KEYS[1]", &[b"GET", key]);
    if reply != Reply::Null {
        let digits = if let Reply::Bulk(digits) = &reply { number(digits) } else { None };
        let is_valid = |number: &f64| (0.0..END).contains(number) && number.fract() == 0.0;
        let Some(shown) = digits.filter(is_valid) else {
            return Ok(match reply {
                Reply::Error(error) if !error.contains("WRONGTYPE") => Reply::Error(error),
                _ => Reply::error(NO_NUMBER),
            });
        };
        if shown >= number(period).unwrap_or_default() {
            let left = run.pttl(key)?;
            return Ok(Reply::Array(vec![Reply::text(format!("{shown:.0}")), Reply::Int(left)]));
        }
    }
    if ttl != b"0" {
        run.call("redis.call('SET', KEYS[1]", &[b"SET", key, period, b"PX", ttl])?;
    }
    Ok(Reply::Int(1))
}

const NO_NUMBER: &str = "COUNTER the key of a job counter holds another value: delete it";
