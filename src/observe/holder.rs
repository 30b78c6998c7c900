//! The holder of a lock, as reported by a node.

use crate::wire::{Value, short};
use std::fmt;
use std::time::Duration;

/// Tolerance for the comparison of a remaining TTL with `max_ttl`: a node's clock may be slewed backwards while a lock
/// is held.
const SLEW: Duration = Duration::from_secs(1);

/// Holder of a lock, as reported by a node.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(into = "SerializedHolder"))]
pub struct Holder {
    value: Value,
    ttl: Option<Duration>,
    max_ttl: Option<Duration>,
}

/// Serialized form of a [`Holder`]. Omits the lock's value, because any client that knows the value can release the
/// lock.
#[cfg(feature = "serde")]
#[derive(serde::Serialize)]
struct SerializedHolder {
    hint: String,
    metadata: Option<String>,
    #[serde(rename = "ttl_seconds", serialize_with = "crate::wire::seconds")]
    ttl: Option<Duration>,
    cooling_down: bool,
    readers: bool,
    exceeds_max_ttl: bool,
}

#[cfg(feature = "serde")]
impl From<Holder> for SerializedHolder {
    fn from(holder: Holder) -> Self {
        Self {
            hint: holder.hint(),
            metadata: holder.metadata().map(str::to_owned),
            ttl: holder.ttl(),
            cooling_down: holder.is_cooling_down(),
            readers: holder.is_readers(),
            exceeds_max_ttl: holder.exceeds_max_ttl(),
        }
    }
}

/// Displays the warning for a lock whose TTL exceeds the contained `max_ttl`, with possible causes and remedies.
pub(crate) struct ExceedsMaxTtl(pub(crate) Duration);

impl Holder {
    pub(crate) fn new(value: Value, ttl: Option<Duration>) -> Self {
        Self { value, ttl, max_ttl: None }
    }

    /// Returns a copy of this holder with the TTL that another node reported.
    pub(crate) fn with_ttl(&self, ttl: Option<Duration>) -> Self {
        Self { ttl, ..self.clone() }
    }

    pub(crate) fn with_max_ttl(self, max_ttl: Duration) -> Self {
        Self { max_ttl: Some(max_ttl), ..self }
    }

    /// Returns true if the lock's remaining TTL exceeds this client's [`max_ttl`](crate::Builder::max_ttl). In this
    /// case, the node's clock was set back, or another client uses a longer `max_ttl`. Correct the cause, or delete the
    /// lock with [`force_release`](crate::Redlock::force_release).
    ///
    /// Returns false for a value that another program has set, because such a key may have any TTL.
    pub fn exceeds_max_ttl(&self) -> bool {
        self.excess().is_some()
    }

    /// Returns the `max_ttl` that the lock's remaining TTL exceeds, or `None` if it exceeds no limit. Also returns
    /// `None` for a value that another program has set, because such a key may have any TTL.
    pub(crate) fn excess(&self) -> Option<ExceedsMaxTtl> {
        let max_ttl = self.max_ttl.filter(|_| self.value.secret().is_some())?;
        self.ttl.filter(|ttl| ttl.saturating_sub(SLEW) > max_ttl).map(|_| ExceedsMaxTtl(max_ttl))
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.value == other.value
    }

    /// Returns the metadata that the holder stored with the lock, or `None` if the holder stored none; see
    /// [`Acquire::metadata`](crate::Acquire::metadata).
    pub fn metadata(&self) -> Option<&str> {
        self.value.metadata()
    }

    /// Returns the number of permits that the holder's [semaphore](crate::Semaphore) has. Returns `None` if the lock is
    /// not a permit of a semaphore.
    pub fn permits(&self) -> Option<usize> {
        self.value.permits()
    }

    /// Returns true if the key still exists although no lease holds the lock. This is the case if the lease was
    /// released with a [cool-down](crate::Lease::release_after), or before its [`at_least`](crate::Acquire::at_least)
    /// time had passed.
    pub fn is_cooling_down(&self) -> bool {
        self.value.is_cool_down()
    }

    /// Returns true if [readers](crate::RwLock::read) hold the lock. The [TTL](Self::ttl) is the TTL of the
    /// reader that expires last. The nodes do not report the readers themselves.
    pub fn is_readers(&self) -> bool {
        self.value.is_readers()
    }

    /// Returns the remaining TTL of the key, or `None` if the key has no expiry.
    pub fn ttl(&self) -> Option<Duration> {
        self.ttl
    }

    /// Returns true if the lock's value equals `value`, for example the result of
    /// [`LeaseRef::value`](crate::LeaseRef::value).
    pub fn has_value(&self, value: &str) -> bool {
        self.value.bytes() == value.as_bytes()
    }

    /// Returns the first few characters of the lock's value. They are enough to distinguish holders, but not enough to
    /// release the lock.
    pub fn hint(&self) -> String {
        self.value.hint()
    }
}

/// Displays a holder as `held by` and the holder's description, or as `cooling down`.
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

impl fmt::Display for ExceedsMaxTtl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "longer than max_ttl {}: the node's clock was set back, or a client uses a longer max_ttl; \
             correct the clock or the setting, or force the release",
            short(self.0)
        )
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Holder");
        debug.field("value", &self.value).field("metadata", &self.metadata());
        debug.field("ttl", &self.ttl).finish_non_exhaustive()
    }
}

/// Writes the metadata of the holder, or the first characters of the value if the holder has no metadata. Writes `no
/// client` if the lock is cooling down, and `readers` if readers hold it.
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.metadata() {
            _ if self.is_cooling_down() => f.write_str("no client (cooling down)"),
            _ if self.is_readers() => f.write_str("readers"),
            // Another client has chosen this text, so it is escaped for logs.
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
    fn foreign_values_never_exceed_max_ttl() {
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
        assert!(!unlimited.exceeds_max_ttl(), "max_ttl is unknown");
    }
}
