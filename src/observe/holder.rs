//! Holder of a lock, as reported by a node.

use crate::wire::Value;
use std::fmt;
use std::time::Duration;

/// Holder of a lock, as reported by a node.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(into = "Described"))]
pub struct Holder {
    value: Value,
    ttl: Option<Duration>,
}

/// JSON form of a [`Holder`], without the lock's value.
#[cfg(feature = "serde")]
#[derive(serde::Serialize)]
struct Described {
    hint: String,
    metadata: Option<String>,
    #[serde(rename = "ttl_seconds", serialize_with = "crate::wire::seconds")]
    ttl: Option<Duration>,
    cooling_down: bool,
}

#[cfg(feature = "serde")]
impl From<Holder> for Described {
    fn from(holder: Holder) -> Self {
        Self {
            hint: holder.hint(),
            metadata: holder.metadata().map(str::to_owned),
            ttl: holder.ttl(),
            cooling_down: holder.is_cooling_down(),
        }
    }
}

impl Holder {
    pub(crate) fn new(value: Value, ttl: Option<Duration>) -> Self {
        Self { value, ttl }
    }

    /// The same holder, with the remaining TTL on another node.
    pub(crate) fn with_ttl(&self, ttl: Option<Duration>) -> Self {
        Self { value: self.value.clone(), ttl }
    }

    /// True if both values belong to the same attempt.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.value == other.value
    }

    /// Returns the metadata that the holder stored with the lock, if any; see
    /// [`Acquire::metadata`](crate::Acquire::metadata).
    pub fn metadata(&self) -> Option<&str> {
        self.value.metadata()
    }

    /// Returns true if no lease holds the lock, but its key still exists: the lease was released with a
    /// [cool-down](crate::Lease::release_after), or before its [`at_least`](crate::Acquire::at_least) time had passed.
    pub fn is_cooling_down(&self) -> bool {
        self.value.is_cool_down()
    }

    /// Returns the remaining TTL of the key; `None` if the key has no expiry.
    pub fn ttl(&self) -> Option<Duration> {
        self.ttl
    }

    /// Returns true if the lock has this value, as returned by [`LeaseRef::value`](crate::LeaseRef::value).
    pub fn has_value(&self, value: &str) -> bool {
        self.value.bytes() == value.as_bytes()
    }

    /// Returns the first few characters of the lock's value, which are enough to distinguish holders, but not to release
    /// the lock.
    pub fn hint(&self) -> String {
        self.value.hint()
    }
}

/// Displays as `held by` and the holder, or as `cooling down`.
pub(crate) struct HeldBy<'a>(pub(crate) &'a Holder);

impl fmt::Display for HeldBy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(holder) = self;
        if holder.is_cooling_down() {
            f.write_str("cooling down")
        } else {
            write!(f, "held by {holder}")
        }
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Holder");
        debug.field("value", &self.value).field("metadata", &self.metadata());
        debug.field("ttl", &self.ttl).finish()
    }
}

/// Writes the metadata, or the first characters of the value if there is no metadata. If the lock is cooling down,
/// writes that no client holds it.
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.metadata() {
            _ if self.is_cooling_down() => f.write_str("no client (cooling down)"),
            // Text from another client: escape it for logs.
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
