//! Who holds a lock, as one node tells.

use crate::wire::Value;
use std::fmt;
use std::time::Duration;

/// Who holds a lock on a node.
#[derive(Clone, PartialEq, Eq)]
pub struct Holder {
    value: Value,
    ttl: Option<Duration>,
}

impl Holder {
    pub(crate) fn new(value: Value, ttl: Option<Duration>) -> Self {
        Self { value, ttl }
    }

    /// The same holder, for what is left of its lock elsewhere.
    pub(crate) fn with_ttl(&self, ttl: Option<Duration>) -> Self {
        Self { value: self.value.clone(), ttl }
    }

    /// True if both are one attempt's.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.value == other.value
    }

    /// What the holder tells; see [`Acquire::metadata`](crate::Acquire::metadata).
    pub fn metadata(&self) -> Option<&str> {
        self.value.metadata()
    }

    /// True if the lock was released with a [cool-down](crate::Lease::release_after), or before
    /// [`at_least`](crate::Acquire::at_least) had passed: no lease has it.
    pub fn is_cooling_down(&self) -> bool {
        self.value.is_cooling()
    }

    /// How long the key has to live; `None` if it stands for ever.
    pub fn ttl(&self) -> Option<Duration> {
        self.ttl
    }

    /// True if the lock has this value, as [`Lease::value`](crate::Lease::value) returns it.
    pub fn has_value(&self, value: &str) -> bool {
        self.value.bytes() == value.as_bytes()
    }

    /// The first characters of the value: enough to tell holders apart, too little to release the
    /// lock.
    pub fn hint(&self) -> String {
        self.value.hint()
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Holder");
        debug.field("value", &self.value).field("metadata", &self.metadata());
        debug.field("ttl", &self.ttl).finish()
    }
}

/// By its metadata; without any, by the first characters of its value.
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.metadata() {
            _ if self.is_cooling_down() => f.write_str("nobody (released, cooling down)"),
            // It is the holder's text, and may end up in our log.
            Some(told) => write!(f, "{}", told.escape_debug()),
            None => write!(f, "{:?}", self.value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_value_compares_the_whole_value() {
        let value = "0123456789abcdef0123456789abcdef:web-1";
        let holder = Holder::new(Value::of(value.as_bytes()), None);
        assert!(holder.has_value(value));
        for other in
            ["", "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210:web-1"]
        {
            assert!(!holder.has_value(other), "{other}");
        }
    }
}
