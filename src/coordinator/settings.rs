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
    /// Maximum time for the driver to open a connection. If the application supplies the credentials, this limit is
    /// longer than `connect_timeout`. `connect_timeout` then limits the application's callback, and a timeout of the
    /// callback can still be reported.
    pub(crate) opening_timeout: Duration,
    /// Maximum TTL that any client of these nodes uses.
    pub(crate) max_ttl: Ttl,
    pub(crate) policy: Policy,
    /// Whether nodes that persist every write are exempt from the quarantine that follows a restart.
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
