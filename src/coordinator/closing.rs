//! How far a client is closed.

use crate::protocol::Time;

/// How far a client is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    Open,
    /// Pending releases are being delivered. The result is reported at `until`, or earlier if all were delivered.
    Delivering {
        until: Time,
    },
    /// The result was reported, and pending releases are still delivered.
    Reported,
    /// All releases were delivered, and the connections are closed.
    Closed,
}
