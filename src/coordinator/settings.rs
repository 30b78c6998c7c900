//! Settings of a coordinator.

use crate::protocol::{ClientId, Drift, Policy, Quorum, Ttl};
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) quorum: Quorum,
    pub(crate) drift: Drift,
    pub(crate) node_timeout: Duration,
    /// Maximum time to establish and set up a connection.
    pub(crate) connect_timeout: Duration,
    /// Maximum time for the driver to open a connection. The limit exceeds `connect_timeout` if the driver calls the
    /// application for credentials: the connect timeout limits the call, whose error must still be reported.
    pub(crate) opening_timeout: Duration,
    /// Maximum TTL that any client of these nodes uses.
    pub(crate) max_ttl: Ttl,
    pub(crate) policy: Policy,
    /// True if nodes that persist each write are exempt from the quarantine.
    pub(crate) trusts_persistence: bool,
    pub(crate) client: ClientId,
    pub(crate) nodes: Box<[NodeSettings]>,
    /// Length of the key prefix, in bytes.
    pub(crate) prefix: usize,
}

#[derive(Clone)]
pub(crate) struct NodeSettings {
    /// The node's address, without user and password.
    pub(crate) name: Arc<str>,
    /// Hint for the error of a connection that the server closed without a reply.
    pub(crate) hint_if_closed: &'static str,
    /// Hint for the error of a connection that timed out without any reply.
    pub(crate) hint_if_silent: &'static str,
}
