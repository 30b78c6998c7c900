//! A session with a server: the redis crate's connection, over a stream that we lend it.

use super::pushes::PushQueue;
use super::shared::NodeShared;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisError};
use std::convert::Infallible;
use std::sync::Arc;
use tokio::task::JoinHandle;

/// A connection whose server has let us in. Dropping it closes the stream.
pub(super) struct Session {
    pub(super) connection: MultiplexedConnection,
    _driver: Driver,
}

/// The task that moves what is said over the stream. It ends when this is dropped, and the stream with it.
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Session {
    /// Connects, and greets: `HELLO 3` or RESP2, user, password and database. What the server pushes
    /// goes to `pushes`, which is for RESP3.
    ///
    /// # Cancel safety
    /// Dropping the future closes the stream.
    pub(super) async fn open(
        node: &NodeShared,
        resp3: bool,
        pushes: Option<Arc<PushQueue>>,
    ) -> Result<Self, RedisError> {
        // Time is kept by the caller and by the node's task: a timeout of the crate's own would
        // leave the connection open and its replies out of step with ours.
        let mut config =
            AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        if let Some(queue) = pushes {
            config = config.set_push_sender(move |push| {
                queue.put(push);
                Ok::<(), Infallible>(())
            });
        }
        let stream = node.connect().await?;
        let (connection, driver) =
            MultiplexedConnection::new_with_config(&node.login(resp3), stream, config).await?;
        Ok(Self { connection, _driver: Driver(tokio::spawn(driver)) })
    }
}
