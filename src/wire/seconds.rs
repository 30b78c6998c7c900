//! JSON form of durations (feature `serde`).
//!
//! Conventions of all serialized types: names are in snake case and stable. A duration is a number of seconds, in a field
//! whose name ends in `_seconds`; null if it is unknown. An enum is an object with the name of the variant as `kind`,
//! `state` or `vote`, and the variant's data, if any, as `detail`. [`Finding`](crate::Finding) has its data beside `kind`.

use serde::{Serialize, Serializer};
use std::time::Duration;

/// Serializes a `Duration` or an `Option<Duration>`.
pub(crate) fn seconds<T, S>(time: &T, serializer: S) -> Result<S::Ok, S::Error>
where
    T: Copy + Into<Option<Duration>>,
    S: Serializer,
{
    let time: Option<Duration> = (*time).into();
    time.map(|time| time.as_secs_f64()).serialize(serializer)
}
