//! One node of a client: where it is, and how to log in.

use super::credentials::Login;
use super::environment::Environment;
use crate::protocol::NodeId;
use crate::transport::{Address, Stream};
use crate::wire::NodeFailure;
use redis::RedisConnectionInfo;
use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Timeouts of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timings {
    /// For the reply to a command.
    pub(crate) answer: Duration,
    /// Time that a connection may take until it is set up.
    pub(crate) connect: Duration,
}

/// One node of one client.
pub(crate) struct Node {
    pub(crate) id: NodeId,
    /// The address, for display.
    pub(crate) name: Arc<str>,
    pub(crate) timings: Timings,
    pub(crate) login: Login,
    pub(crate) environment: Environment,
    address: Address,
}

impl Node {
    pub(crate) fn new(
        id: NodeId,
        name: Arc<str>,
        address: Address,
        login: Login,
        timings: Timings,
        environment: Environment,
    ) -> Self {
        Self { id, name, timings, login, environment, address }
    }

    /// Hints for a connection that the server closed before its first reply, and for one without a reply.
    pub(crate) fn hints(&self) -> (&'static str, &'static str) {
        (self.address.hint_if_closed(), self.address.hint_if_silent())
    }

    /// The credentials for a new connection, and the remaining time of the connect timeout.
    ///
    /// # Cancel safety
    /// Dropping the future drops the future of the callback that obtains them.
    pub(crate) async fn log_in(
        &self,
    ) -> Result<(Cow<'_, RedisConnectionInfo>, Duration), NodeFailure> {
        self.login.obtain(&self.name, self.timings.connect, &self.environment.clock).await
    }

    /// Opens a stream to the node.
    pub(crate) async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        self.environment.transport.connect(&self.address).await
    }
}
