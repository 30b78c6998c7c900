//! Life cycle of a client, from open to closed.

use crate::protocol::Time;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    Open,
    /// The client is delivering pending releases. It reports the result of the close at `until`, or earlier once all
    /// releases are delivered.
    Delivering {
        until: Time,
    },
    /// The time limit has passed and the result was reported. The client still delivers pending releases.
    Reported,
    /// All releases are delivered, and all connections are closed.
    Closed,
}
