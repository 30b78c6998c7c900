//! One node of a client: its address, credentials and timeouts.

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

#[derive(Clone, Copy, Debug)]
pub(crate) struct Timings {
    /// Maximum time from sending a command to receiving its reply.
    pub(crate) answer: Duration,
    /// Maximum time to connect and to set up the connection.
    pub(crate) connect: Duration,
}

pub(crate) struct Node {
    pub(crate) id: NodeId,
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

    /// Returns two suffixes for error messages. The first applies if the server closes the connection before its first
    /// reply. The second applies if the server sends no reply.
    pub(crate) fn hints(&self) -> (&'static str, &'static str) {
        (self.address.hint_if_closed(), self.address.hint_if_silent())
    }

    /// Returns the credentials for a new connection, and the time that remains of the connect timeout.
    ///
    /// # Cancel safety
    /// Dropping the future drops the future of the credential callback.
    pub(crate) async fn log_in(
        &self,
    ) -> Result<(Cow<'_, RedisConnectionInfo>, Duration), NodeFailure> {
        self.login.obtain(&self.name, self.timings.connect, &self.environment.clock).await
    }

    pub(crate) async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        self.environment.transport.connect(&self.address).await
    }
}
