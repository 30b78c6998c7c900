//! `period.lua`: compares the counter of a scheduled job with a period.

use super::number::{END, number};
use super::run::{Answer, Run, argument};
use crate::server_model::reply::Reply;

const NO_NUMBER: &str = "COUNTER the key of a job counter holds another value: delete it";

pub(super) fn run(run: &mut Run<'_, '_>, keys: &[Vec<u8>], args: &[Vec<u8>]) -> Answer {
    let (counter_key, record_key) = (argument(keys, 1), argument(keys, 2));
    let [period, ttl, begin, own] = [1, 2, 3, 4].map(|place| argument(args, place));
    let reply = run.pcall("redis.pcall('GET', KEYS[1]", &[b"GET", counter_key]);
    if reply != Reply::Null {
        let (digits, shown) = match &reply {
            Reply::Bulk(digits) => (&**digits, number(digits)),
            _ => (&[][..], None),
        };
        let is_valid = |number: &f64| (0.0..END).contains(number) && number.fract() == 0.0;
        let Some(shown) = shown.filter(is_valid) else {
            return Ok(match reply {
                Reply::Error(error) if !error.contains("WRONGTYPE") => Reply::Error(error),
                _ => Reply::error(NO_NUMBER),
            });
        };
        let record = run.pcall("redis.pcall('GET', KEYS[2]", &[b"GET", record_key]);
        let record = if let Reply::Bulk(record) = record { record } else { Vec::new() };
        let time = record_parts(&record).filter(|(told, _)| *told == digits);
        if time.is_some() && record == own {
            return Ok(Reply::Int(1));
        }
        let (is_taken, record) = match time {
            Some((_, time)) => (number(time) >= number(begin), record.clone()),
            None => (shown >= number(period).unwrap_or_default(), Vec::new()),
        };
        if is_taken {
            let left = run.pttl(counter_key)?;
            let parts = [Reply::text(format!("{shown:.0}")), Reply::Int(left), Reply::Bulk(record)];
            return Ok(Reply::Array(parts.into()));
        }
    }
    if ttl != b"0" {
        let set = [b"SET", counter_key, period, b"PX", ttl];
        run.call("redis.call('SET', KEYS[1]", &set)?;
        if !own.is_empty() {
            run.call("redis.call('SET', KEYS[2]", &[b"SET", record_key, own, b"PX", ttl])?;
        }
    }
    Ok(Reply::Int(1))
}

/// Returns the number and the time in a record, as the pattern `^(%d+):%a+:%d+:(%d+):` does.
fn record_parts(record: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut parts = record.splitn(5, |byte| *byte == b':');
    let mut part = |is_valid: fn(&u8) -> bool| {
        parts.next().filter(|part| !part.is_empty() && part.iter().all(is_valid))
    };
    let told = part(u8::is_ascii_digit)?;
    part(u8::is_ascii_alphabetic)?;
    part(u8::is_ascii_digit)?;
    let time = part(u8::is_ascii_digit)?;
    parts.next().map(|_value| (told, time))
}
