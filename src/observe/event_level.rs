//! Log levels of events.

/// Log level of an event. An event is built only if a receiver wants events of its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventLevel {
    Debug,
    /// An event that may be logged at warn level, depending on its content.
    Warn,
}
