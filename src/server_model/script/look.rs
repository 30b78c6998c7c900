//! `look.lua`: reads a lock.

use super::run::{Answer, Held, Run};
use crate::server_model::reply::Reply;

pub(super) fn run(run: &mut Run<'_, '_>, keys: &[Vec<u8>], _: &[Vec<u8>]) -> Answer {
    let key = keys.first().map(Vec::as_slice).unwrap_or_default();
    match run.held("KEYS[1]", key)? {
        Held::Nothing => Ok(Reply::Int(-2)),
        Held::Other => run.pttl(key).map(Reply::Int),
        Held::Value(held) => {
            let call = "redis.call('PTTL', KEYS[1]) }";
            Ok(Reply::Array(vec![Reply::Bulk(held), run.call(call, &[b"PTTL", key])?]))
        }
    }
}
