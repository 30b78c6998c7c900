//! `fenced.lua`: runs another script on locks, and updates the fencing counter of each lock.

use super::number::{END, number};
use super::run::{Answer, Body, Run, argument};
use crate::server_model::reply::Reply;

pub(super) const AT_END: &str = "COUNTER a fencing counter has reached its maximum: delete its key";
/// Number of arguments of `fenced.lua` itself. The other arguments belong to the inner script.
const OWN_ARGUMENTS: usize = 3;

pub(super) fn run(
    run: &mut Run<'_, '_>,
    unfenced: Body,
    keys: &[Vec<u8>],
    args: &[Vec<u8>],
) -> Answer {
    let (locks, beside) = keys.split_at(keys.len() / 2);
    let (mode, ttl) = (argument(args, 2), argument(args, 3));
    let (counters, mut shown) = read_counters(run, beside, mode == b"try")?;
    let least = number(argument(args, 1)).unwrap_or_default();
    let next = if mode == b"incr" { shown + 1.0 } else { shown };
    let goal = next.max(least);
    if goal >= END {
        return Ok(Reply::error(AT_END));
    }
    let answer = unfenced(run, locks, args.get(OWN_ARGUMENTS..).unwrap_or_default())?;
    let is_done = match &answer {
        Reply::Error(_) => return Ok(answer),
        Reply::Int(result) => *result == 1,
        Reply::Status(_) => true,
        _ => false,
    };
    if is_done {
        shown = goal;
        for counter in counters {
            let digits = format!("{shown:.0}");
            let set = [b"SET", counter, digits.as_bytes(), b"PX", ttl];
            run.call("redis.call('SET', counter", &set)?;
        }
    }
    Ok(Reply::Array(vec![answer, Reply::text(format!("{shown:.0}"))]))
}

/// The keys of the valid fencing counters, and the highest value of these counters.
type Found<'a> = (Vec<&'a [u8]>, f64);

/// Reads the fencing counters at the keys `beside`. If `tries` is true, invalid counters are
/// skipped. Otherwise, an invalid counter is an error.
fn read_counters<'a>(
    run: &mut Run<'_, '_>,
    beside: &'a [Vec<u8>],
    tries: bool,
) -> Result<Found<'a>, Reply> {
    let (mut counters, mut shown) = (Vec::new(), 0.0);
    for key in beside {
        let digits = run.pcall("redis.pcall('GET', KEYS[i]", &[b"GET", key]);
        match counter(&digits) {
            Ok(found) => {
                counters.push(&**key);
                shown = f64::max(shown, found);
            }
            Err(_) if tries => {}
            Err(refusal) => return Err(refusal),
        }
    }
    Ok((counters, shown))
}

/// Parses the reply to a `GET` of a fencing counter. A missing counter is 0. If the counter is
/// invalid, returns the error reply of the script.
pub(super) fn counter(digits: &Reply) -> Result<f64, Reply> {
    let found = match digits {
        Reply::Bulk(digits) => number(digits),
        Reply::Null => Some(0.0),
        _ => None,
    };
    let is_valid = |found: &f64| *found >= 0.0 && *found < END && found.fract() == 0.0;
    found.filter(is_valid).ok_or_else(|| match digits {
        Reply::Error(error) if !error.contains("WRONGTYPE") => Reply::Error(error.clone()),
        _ => Reply::error("COUNTER the key of a fencing counter holds another value: delete it"),
    })
}
