//! Output of the server to its clients.

/// Identifier of a connection to a [`Server`](super::Server). Identifiers are not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub(super) u64);

/// An action of the server on one connection. The caller must perform the actions in the returned
/// order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Sends bytes to the client.
    Bytes(ConnId, Vec<u8>),
    /// Closes the connection after all bytes that were sent before this action.
    Close(ConnId),
}
