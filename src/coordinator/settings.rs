//! Settings of a coordinator.

use crate::protocol::{ClientId, Drift, Policy, Quorum, Ttl};
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) quorum: Quorum,
    pub(crate) drift: Drift,
    /// Maximum time for a reply to a command.
    pub(crate) node_timeout: Duration,
    /// Maximum time to establish and set up a connection.
    pub(crate) connect_timeout: Duration,
    /// Maximum time for the driver to open a connection. Longer than `connect_timeout` if it calls the application for
    /// credentials: that call has the connect timeout as its limit, and its error is to be reported.
    pub(crate) opening_timeout: Duration,
    /// Maximum ttl of all clients of the nodes.
    pub(crate) max_ttl: Ttl,
    pub(crate) policy: Policy,
    /// True if nodes that persist each write are exempt from the quarantine.
    pub(crate) trusts_persistence: bool,
    /// Identifies the client in the values of its locks.
    pub(crate) client: ClientId,
    pub(crate) nodes: Box<[NodeSettings]>,
    /// Length of the key prefix, in bytes.
    pub(crate) prefix: usize,
}

#[derive(Clone)]
pub(crate) struct NodeSettings {
    /// The address, without user and password.
    pub(crate) name: Arc<str>,
    /// Hint for a connection that the server closes without a reply.
    pub(crate) hint_if_closed: &'static str,
    /// Hint for a connection without any reply.
    pub(crate) hint_if_silent: &'static str,
}
