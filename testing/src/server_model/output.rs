//! Output of the server.

/// A connection to a [`Server`](super::Server). Identifiers are not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub(super) u64);

/// An action of the server. Actions are returned in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Sends bytes.
    Bytes(ConnId, Vec<u8>),
    /// Closes the connection after the bytes that were sent before, and forgets it.
    Close(ConnId),
}
