//! Life cycle of a client, from open to closed.

use crate::protocol::Time;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    Open,
    /// The client is delivering pending releases. It reports the result once all releases are delivered, or at `until`
    /// at the latest.
    Delivering {
        until: Time,
    },
    /// The result was reported at the time limit. The client still delivers pending releases.
    Reported,
    Closed,
}
