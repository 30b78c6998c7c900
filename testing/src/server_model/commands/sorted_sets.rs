//! `ZADD`, `ZREM`, `ZSCORE`, `ZREVRANGE` and `ZREMRANGEBYSCORE`, with the arguments that quorlock's scripts use.

use crate::server_model::command_context::CommandContext;
use crate::server_model::keyspace::{Entry, Kind};
use crate::server_model::reply::Reply;
use crate::server_model::request::integer;
use crate::server_model::trouble::{NO_FLOAT, NO_INTEGER, SYNTAX, WRONGTYPE};
use std::collections::BTreeMap;

type Members = BTreeMap<Vec<u8>, i64>;

/// Executes `ZADD key score member`.
pub(crate) fn add(context: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    let [_, key, score, member] = arguments else { return Reply::error(SYNTAX) };
    let Some(score) = whole(score) else { return Reply::error(NO_FLOAT) };
    let Ok(found) = find(context, key) else { return Reply::error(WRONGTYPE) };
    let (mut members, expires_ms) = found.unwrap_or_default();
    let before = members.insert(member.clone(), score);
    if before != Some(score) {
        context.put(key, Entry { kind: Kind::SortedSet(members), expires_ms });
    }
    Reply::Int(before.is_none().into())
}

/// Executes `ZREM key member`.
pub(crate) fn remove(context: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    let [_, key, member] = arguments else { return Reply::error(SYNTAX) };
    retain(context, key, |other, _| other != member)
}

/// Executes `ZREMRANGEBYSCORE key -inf max`.
pub(crate) fn remove_up_to(context: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    let Some(last) = whole(&arguments[3]).filter(|_| arguments[2] == b"-inf") else {
        return Reply::error("ERR min or max is not a float");
    };
    retain(context, &arguments[1], |_, score| score > last)
}

pub(crate) fn score(context: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    let Ok(found) = find(context, &arguments[1]) else { return Reply::error(WRONGTYPE) };
    let score = found.and_then(|(members, _)| members.get(&arguments[2]).copied());
    score.map_or(Reply::Null, Reply::Score)
}

/// Executes `ZREVRANGE key 0 stop [WITHSCORES]`, which returns the members with the highest scores. Members with the same
/// score are in the reverse order of their bytes.
pub(crate) fn latest(context: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    let (Some(start), Some(stop)) = (integer(&arguments[2]), integer(&arguments[3])) else {
        return Reply::error(NO_INTEGER);
    };
    let (0, Ok(stop)) = (start, usize::try_from(stop)) else { return Reply::error(SYNTAX) };
    let has_scores = match &arguments[4..] {
        [] => false,
        [option] if option.eq_ignore_ascii_case(b"WITHSCORES") => true,
        _ => return Reply::error(SYNTAX),
    };
    let Ok(found) = find(context, &arguments[1]) else { return Reply::error(WRONGTYPE) };
    let mut members: Vec<_> = found.unwrap_or_default().0.into_iter().collect();
    members.sort_by(|(a, low), (b, high)| (high, b).cmp(&(low, a)));
    members.truncate(stop + 1);
    if !has_scores {
        return Reply::Array(members.into_iter().map(|(it, _)| Reply::Bulk(it)).collect());
    }
    Reply::Pairs(
        members.into_iter().map(|(it, score)| (Reply::text(it), Reply::Score(score))).collect(),
    )
}

/// Removes the members for which `keeps` returns false, and returns their number. A sorted set without members is
/// deleted.
fn retain(
    context: &mut CommandContext<'_>,
    key: &[u8],
    keeps: impl Fn(&[u8], i64) -> bool,
) -> Reply {
    let Ok(found) = find(context, key) else { return Reply::error(WRONGTYPE) };
    let (mut members, expires_ms) = found.unwrap_or_default();
    let before = members.len();
    members.retain(|member, score| keeps(member, *score));
    let removed = before - members.len();
    if removed > 0 && members.is_empty() {
        context.remove(key);
    } else if removed > 0 {
        context.put(key, Entry { kind: Kind::SortedSet(members), expires_ms });
    }
    Reply::Int(i64::try_from(removed).unwrap_or(i64::MAX))
}

/// Returns the members and the expiry of a sorted set, or an error if the key has another type.
fn find(
    context: &mut CommandContext<'_>,
    key: &[u8],
) -> Result<Option<(Members, Option<i64>)>, ()> {
    match context.find(key) {
        None => Ok(None),
        Some(Entry { kind: Kind::SortedSet(members), expires_ms }) => {
            Ok(Some((members, expires_ms)))
        }
        Some(_) => Err(()),
    }
}

/// Parses a score. Only whole numbers are modelled.
fn whole(digits: &[u8]) -> Option<i64> {
    let number: f64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    #[allow(
        clippy::cast_possible_truncation,
        reason = "a whole number that a double represents exactly"
    )]
    (number.fract() == 0.0 && number.abs() < 9_007_199_254_740_992.0).then_some(number as i64)
}
