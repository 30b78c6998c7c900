//! `read.lua`: returns the value and the remaining TTL of a lock.

use super::run::{Answer, KeyContent, MAX_VALUE, Run};
use crate::server_model::reply::Reply;

pub(super) fn run(run: &mut Run<'_, '_>, keys: &[Vec<u8>], _: &[Vec<u8>]) -> Answer {
    let key = keys.first().map(Vec::as_slice).unwrap_or_default();
    let held = match run.held("KEYS[1]", key)? {
        KeyContent::Missing => return Ok(Reply::Int(-2)),
        KeyContent::Value(held) => Some(held).filter(|held| held.len() <= MAX_VALUE),
        KeyContent::Other => None,
    };
    let left = Reply::Int(run.pttl(key)?);
    Ok(held.map_or(left.clone(), |held| Reply::Array(vec![Reply::Bulk(held), left])))
}
