//! Settings of a [`Coordinator`](super::Coordinator).

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
    /// Maximum time for the driver to open a connection. Longer than `connect_timeout` if the application supplies the
    /// credentials: `connect_timeout` then limits the application's callback, and the driver needs time to report that
    /// the callback has timed out.
    pub(crate) opening_timeout: Duration,
    /// Maximum TTL that any client of these nodes uses.
    pub(crate) max_ttl: Ttl,
    pub(crate) policy: Policy,
    /// Whether the application trusts the nodes to persist every write. The votes of a trusted node count immediately
    /// after a restart of the node.
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
    /// Advice to append to the error if the server closes a new connection without a reply.
    pub(crate) hint_if_closed: &'static str,
    /// Advice to append to the error if a new connection times out without any reply.
    pub(crate) hint_if_silent: &'static str,
}
