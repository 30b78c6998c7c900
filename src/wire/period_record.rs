//! The record of the call that took a period of a scheduled job. It is stored beside the job's counter.

use super::value::Value;
use std::sync::Arc;
use std::time::Duration;

/// The call that took a period: stored as `number:mode:length:time:value`, with times in microseconds.
///
/// The mode is `start` if the number was stored before the job, or `end` if it was stored after the job. An older
/// version of this library stores a counter without a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PeriodRecord {
    text: Arc<[u8]>,
    /// Whether the number was stored after the job.
    pub(crate) takes_over: bool,
    /// The length of the period.
    pub(crate) period: Duration,
    /// When the call determined its period, by its wall clock, in microseconds since 1970.
    pub(crate) at_us: u64,
    /// The value of the call's lease.
    pub(crate) value: Value,
}

impl PeriodRecord {
    pub(crate) fn new(
        number: u64,
        takes_over: bool,
        period: Duration,
        at_us: u64,
        value: Value,
    ) -> Self {
        let mode = if takes_over { "end" } else { "start" };
        let head = format!("{number}:{mode}:{}:{at_us}:", period.as_micros());
        let text = [head.as_bytes(), value.bytes()].concat().into();
        Self { text, takes_over, period, at_us, value }
    }

    /// Returns `None` if `text` is no record.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let mut parts = text.splitn(5, |byte| *byte == b':');
        let mut part = || std::str::from_utf8(parts.next()?).ok();
        let (_number, mode) = (part()?, part()?);
        let (period, at_us) = (part()?.parse().ok()?, part()?.parse().ok()?);
        let (period, value) = (Duration::from_micros(period), Value::of(parts.next()?));
        Some(Self { text: text.into(), takes_over: mode == "end", period, at_us, value })
    }

    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_is_parsed_as_written() {
        for value in ["0123456789abcdef0123456789abcdef", "x:host:7", ""] {
            let value = Value::of(value.as_bytes());
            for takes_over in [false, true] {
                let day = Duration::from_hours(24);
                let record =
                    PeriodRecord::new(17, takes_over, day, 1_469_000_000_000_000, value.clone());
                assert_eq!(PeriodRecord::parse(record.text()), Some(record));
            }
        }
        for invalid in ["", "17", "17:start:1:2", "17:start:x:2:v", "17:start:1::v"] {
            assert_eq!(PeriodRecord::parse(invalid.as_bytes()), None, "{invalid}");
        }
    }
}
