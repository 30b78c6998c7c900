//! Progress of closing a client.

use crate::protocol::Time;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    Open,
    /// Pending releases are being delivered. The client reports the result at `until`, or earlier once all releases are
    /// delivered.
    Delivering {
        until: Time,
    },
    /// The time limit has passed and the result was reported. The client still delivers pending releases.
    Reported,
    /// Closed: all releases are delivered and all connections are closed.
    Closed,
}
