//! `acquire_write.lua`: runs another script that sets one lock key, for a writer of a lock that also has readers.

use super::run::{Answer, Body, KeyContent, Run, argument};
use super::shared::{Blocked, READERS, first_number, int, whole};
use crate::server_model::reply::Reply;

/// Number of keys of `acquire_write.lua` itself. They follow the keys of the inner script.
const OWN_KEYS: usize = 3;
/// Number of arguments of `acquire_write.lua` itself. The other arguments belong to the inner script.
const OWN_ARGUMENTS: usize = 2;

pub(super) fn run(
    run: &mut Run<'_, '_>,
    set_key: Body,
    keys: &[Vec<u8>],
    args: &[Vec<u8>],
) -> Answer {
    let (others, own) = keys.split_at(keys.len().saturating_sub(OWN_KEYS));
    let (lock, readers, intent, waiting) =
        (argument(others, 1), argument(own, 1), argument(own, 2), argument(own, 3));
    let (ttl, own_intent) = (whole(argument(args, 1)), argument(args, 2));
    let found = match run.call("call('MGET', intent", &[b"MGET", intent, waiting])? {
        Reply::Array(found) => found,
        _ => Vec::new(),
    };
    let found = |place: usize| found.get(place).unwrap_or(&Reply::Null);
    let blocked = Blocked::read(run, found(0), ("call('PTTL', intent)", intent))?;
    let is_void = blocked.is_some_and(Blocked::is_void);
    let (window, mut left) = (first_number(found(1)), -1);
    if window.is_some() {
        left = int(&run.call("call('PTTL', waiting)", &[b"PTTL", waiting])?);
    }
    let readers_first = left >= 0 && blocked.and_then(Blocked::left).is_none();
    if readers_first && let Some(window) = window {
        left = let_readers_go_first(run, [lock, readers, waiting], left, window)?;
    }
    let mut answer = set_key(run, others, args.get(OWN_ARGUMENTS..).unwrap_or_default())?;
    if let Some(conflict) = conflict_with_readers(&mut answer) {
        if readers_first {
            *conflict = left.min(*conflict);
        } else if !own_intent.is_empty() {
            let expiry = (2 * ttl).to_string();
            let condition: &[u8] = if is_void { b"XX" } else { b"NX" };
            let set = [b"SET", intent, own_intent, condition, b"PX", expiry.as_bytes()];
            run.call("call('SET', intent", &set)?;
        }
    }
    Ok(answer)
}

/// Reserves a free lock for the readers that wait. Returns for how long they go first, in ms.
fn let_readers_go_first(
    run: &mut Run<'_, '_>,
    [lock, readers, waiting]: [&[u8]; 3],
    mut left: i64,
    window: f64,
) -> Result<i64, Reply> {
    let held = match run.held("lock", lock) {
        Ok(KeyContent::Missing) => None,
        Ok(KeyContent::Value(held)) if held == READERS => Some(held),
        _ => return Ok(left),
    };
    #[allow(clippy::cast_precision_loss, reason = "Lua's numbers are doubles")]
    if left as f64 > window {
        #[allow(clippy::cast_possible_truncation, reason = "a whole number below `left`")]
        {
            left = window as i64;
        }
        let limit = left.to_string();
        run.call("call('PEXPIRE', waiting", &[b"PEXPIRE", waiting, limit.as_bytes()])?;
    }
    if held.is_none() {
        run.call("call('DEL', KEYS[others + 1]", &[b"DEL", readers])?;
        let ttl = left.max(1).to_string();
        run.call("call('SET', lock", &[b"SET", lock, READERS, b"PX", ttl.as_bytes()])?;
    }
    Ok(left)
}

/// Returns the remaining TTL in the refusal of the inner script, if the lock has readers.
fn conflict_with_readers(answer: &mut Reply) -> Option<&mut i64> {
    let Reply::Array(parts) = answer else { return None };
    let parts = match parts.first() {
        Some(Reply::Array(_)) => match parts.first_mut() {
            Some(Reply::Array(conflict)) => conflict,
            _ => return None,
        },
        _ => parts,
    };
    match parts.as_mut_slice() {
        [Reply::Int(left), _, Reply::Bulk(value)] if value == READERS => Some(left),
        _ => None,
    }
}
