//! A fenced resource in a Redis server that is not a node of the lock.

use crate::stale::Stale;
use quorlock::FencingToken;
use redis::aio::MultiplexedConnection;
use redis::{RedisError, RedisResult, Script};

/// A value in a Redis server that rejects tokens lower than the highest one it has seen.
///
/// The server must be durable (`appendonly yes`, `appendfsync always`, `maxmemory-policy noeviction`): if it loses the
/// token, it accepts a stale holder.
pub(crate) struct Store {
    connection: MultiplexedConnection,
    key: String,
    write: Script,
}

impl Store {
    /// Connects to the server; the value is stored at `key`.
    pub(crate) async fn open(url: &str, key: &str) -> RedisResult<Self> {
        let connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
        let write = Script::new(include_str!("write.lua"));
        Ok(Self { connection, key: key.to_owned(), write })
    }

    /// Reads the value. From then on lower tokens are rejected. A new holder calls this first, so that an earlier
    /// holder cannot change the value it has read.
    pub(crate) async fn read(&self, token: FencingToken) -> RedisResult<Result<String, Stale>> {
        self.invoke(token, None).await
    }

    /// Writes the value, unless the server has seen a higher token.
    pub(crate) async fn write(
        &self,
        token: FencingToken,
        value: &str,
    ) -> RedisResult<Result<String, Stale>> {
        self.invoke(token, Some(value)).await
    }

    async fn invoke(
        &self,
        token: FencingToken,
        value: Option<&str>,
    ) -> RedisResult<Result<String, Stale>> {
        let mut call = self.write.key(&self.key);
        call.arg(token.get()).arg(value);
        let mut connection = self.connection.clone();
        let (done, answer): (bool, String) = call.invoke_async(&mut connection).await?;
        if done {
            return Ok(Ok(answer));
        }
        let highest = answer.parse::<FencingToken>();
        let highest = highest.map_err(|error| RedisError::from(std::io::Error::other(error)))?;
        Ok(Err(Stale { token, highest }))
    }
}
