//! Output of the server to its clients.

/// Identifier of a connection to a [`Server`](super::Server). Identifiers are not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub(super) u64);

/// An action for the caller to perform on a connection. The caller must perform the actions in the
/// order in which the server returns them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send these bytes to the client.
    Bytes(ConnId, Vec<u8>),
    /// Close the connection after sending all earlier bytes.
    Close(ConnId),
}
