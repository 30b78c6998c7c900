//! Severity of events.

/// Severity of an event. The client builds an event only if a receiver wants its severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// An event that is logged at debug level.
    Detail,
    /// An event that may be logged at warn level.
    Trouble,
}
