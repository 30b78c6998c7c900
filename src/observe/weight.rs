//! Levels of events.

/// Level of an event. Events below every receiver's level are not built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// Logged at debug level.
    Detail,
    /// Logged at warn level.
    Trouble,
}
