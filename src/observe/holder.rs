//! Who holds a lock, as one node tells.

use crate::wire::{Value, short};
use std::fmt;
use std::time::Duration;

/// A clock that is slewed can go back by less than this while a lock is held.
const SLEW: Duration = Duration::from_secs(1);

/// Who holds a lock on a node.
#[derive(Clone, PartialEq, Eq)]
pub struct Holder {
    value: Value,
    ttl: Option<Duration>,
    /// The longest ttl that a lock can have, if that is known.
    max_ttl: Option<Duration>,
}

/// Remark on a lock that has more time to live than this `max_ttl` allows.
pub(crate) struct Excess(pub(crate) Duration);

impl Holder {
    pub(crate) fn new(value: Value, ttl: Option<Duration>) -> Self {
        Self { value, ttl, max_ttl: None }
    }

    /// The same holder, for what is left of its lock elsewhere.
    pub(crate) fn with_ttl(&self, ttl: Option<Duration>) -> Self {
        Self { ttl, ..self.clone() }
    }

    /// The same holder, whose lock has at most this ttl.
    pub(crate) fn with_max_ttl(self, max_ttl: Duration) -> Self {
        Self { max_ttl: Some(max_ttl), ..self }
    }

    /// True if the lock's remaining time exceeds the [`max_ttl`](crate::Builder::max_ttl) of this client. The node's
    /// clock was put back since, or another client has a longer `max_ttl`. Correct that, or delete the lock with
    /// [`force_release`](crate::Redlock::force_release).
    pub fn exceeds_max_ttl(&self) -> bool {
        self.excess().is_some()
    }

    /// A value of another format may have any ttl.
    pub(crate) fn excess(&self) -> Option<Excess> {
        let max_ttl = self.max_ttl.filter(|_| self.value.secret().is_some())?;
        self.ttl.filter(|ttl| ttl.saturating_sub(SLEW) > max_ttl).map(|_| Excess(max_ttl))
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

    /// True if the lock has this value, as [`LeaseRef::value`](crate::LeaseRef::value) returns it.
    pub fn has_value(&self, value: &str) -> bool {
        self.value.bytes() == value.as_bytes()
    }

    /// The first characters of the value: enough to tell holders apart, too little to release the
    /// lock.
    pub fn hint(&self) -> String {
        self.value.hint()
    }
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "longer than the max_ttl of {}: the node's clock was put back, or a ",
            short(self.0)
        )?;
        write!(f, "client has a longer max_ttl; correct that, or use force_release")
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Holder");
        debug.field("value", &self.value).field("metadata", &self.metadata());
        debug.field("ttl", &self.ttl).finish_non_exhaustive()
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

    #[test]
    fn only_a_lock_of_this_format_can_exceed_the_max_ttl() {
        let seconds = Duration::from_secs;
        let of = |value: &str, ttl| {
            let holder = Holder::new(Value::of(value.as_bytes()), ttl).with_max_ttl(seconds(60));
            holder.exceeds_max_ttl()
        };
        let ours = "0123456789abcdef0123456789abcdef:worker-7";
        assert!(of(ours, Some(seconds(3_600))));
        assert!(!of(ours, Some(seconds(60))) && !of(ours, Some(seconds(61))), "clocks are slewed");
        assert!(!of("worker-7", Some(seconds(3_600))), "another program's");
        let unlimited = Holder::new(Value::of(ours.as_bytes()), Some(seconds(3_600)));
        assert!(!unlimited.exceeds_max_ttl(), "the bound is not known");
    }
}
