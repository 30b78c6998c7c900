//! Serialization of durations (feature `serde`).
//!
//! All serialized types of this crate follow these conventions:
//!
//! - Names are in snake case and stable.
//! - A duration is a number of seconds, or null if it is unknown. The name of a duration field ends in `_seconds`.
//! - An enum is an object. Its field `kind`, `state` or `vote` contains the name of the variant, and its field `detail`
//!   contains the variant's data, if any. [`Finding`](crate::Finding) has its data beside `kind`.

use serde::{Serialize, Serializer};
use std::time::Duration;

/// Serializes a `Duration` or an `Option<Duration>` as a number of seconds.
pub(crate) fn seconds<T, S>(time: &T, serializer: S) -> Result<S::Ok, S::Error>
where
    T: Copy + Into<Option<Duration>>,
    S: Serializer,
{
    let time: Option<Duration> = (*time).into();
    time.map(|time| time.as_secs_f64()).serialize(serializer)
}
