//! A session with a server: the redis crate's connection, over a stream that we lend it.

use super::pushes::PushQueue;
use super::shared::NodeShared;
use crate::transport::Stream;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisConnectionInfo, RedisError};
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
    /// Connects to `node`, and greets it in RESP3 or RESP2. What the server pushes goes to `pushes`, which
    /// is for RESP3.
    ///
    /// # Cancel safety
    /// Dropping the future closes the stream.
    pub(super) async fn open(
        node: &NodeShared,
        resp3: bool,
        pushes: Option<Arc<PushQueue>>,
    ) -> Result<Self, RedisError> {
        let opened = Self::begin(node.connect().await?, &node.login(resp3), pushes).await;
        opened.map(|(connection, driver)| {
            let driver = Driver(tokio::spawn(node.environment.task(driver)));
            Self { connection, _driver: driver }
        })
    }

    /// Greets the server behind `stream`: `HELLO 3` where `login` says so, user, password and database.
    async fn begin(
        stream: Box<dyn Stream>,
        login: &RedisConnectionInfo,
        pushes: Option<Arc<PushQueue>>,
    ) -> Result<(MultiplexedConnection, impl Future<Output = ()> + Send + 'static), RedisError>
    {
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
        MultiplexedConnection::new_with_config(login, stream, config).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::timeout;

    #[tokio::test]
    async fn a_session_that_is_dropped_closes_its_stream_whatever_is_under_way() {
        let (ours, mut theirs) = duplex(4096);
        let login = RedisConnectionInfo::default().set_db(7);
        let mut said = [0; 4096];
        let greeted = async {
            let length = theirs.read(&mut said).await.expect("it is open");
            theirs.write_all(b"+OK\r\n+OK\r\n+OK\r\n").await.expect("it is open");
            String::from_utf8_lossy(&said[..length]).into_owned()
        };
        let (session, said) = tokio::join!(Session::begin(Box::new(ours), &login, None), greeted);
        assert!(said.contains("SELECT") && said.contains("LIB-NAME"), "{said}");
        let (connection, driver) = session.expect("it was greeted");
        let session = Session { connection, _driver: Driver(tokio::spawn(driver)) };

        let mut connection = session.connection.clone();
        let mut unanswered =
            Box::pin(async move { connection.send_packed_command(&redis::cmd("TIME")).await });
        assert!((&mut unanswered).now_or_never().is_none());
        let mut said = [0; 4096];
        let length = theirs.read(&mut said).await.expect("it is open");
        assert!(said[..length].ends_with(b"TIME\r\n"));

        drop(session);
        let soon = Duration::from_secs(20);
        let closed = timeout(soon, theirs.read(&mut said)).await.expect("in time");
        assert_eq!(closed.expect("a close is no error"), 0);
        let failed = timeout(soon, unanswered).await.expect("in time");
        assert!(failed.expect_err("nobody answers").is_connection_dropped());
    }
}
