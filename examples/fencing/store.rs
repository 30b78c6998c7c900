//! A fenced resource in a Redis server that is not a node of the lock.

use crate::stale::Stale;
use quorlock::FencingToken;
use redis::aio::MultiplexedConnection;
use redis::{RedisError, RedisResult, Script};

/// A value in a Redis server that can only be used with a fencing token at least as high as every earlier one.
///
/// The server must be durable (`appendonly yes`, `appendfsync always`, `maxmemory-policy noeviction`). If the server
/// loses the token, it accepts a stale holder.
pub(crate) struct Store {
    connection: MultiplexedConnection,
    key: String,
    write: Script,
}

impl Store {
    /// Connects to the server, which stores the value at `key`.
    pub(crate) async fn open(url: &str, key: &str) -> RedisResult<Self> {
        let connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
        let write = Script::new(include_str!("write.lua"));
        Ok(Self { connection, key: key.to_owned(), write })
    }

    /// Reads the value and records `token`, so the server rejects lower tokens from then on. A new holder calls `read`
    /// first. Otherwise, an earlier holder could change the value after it was read.
    pub(crate) async fn read(&self, token: FencingToken) -> RedisResult<Result<String, Stale>> {
        self.invoke(token, None).await
    }

    /// Writes the value and records `token`, unless the server has recorded a higher token.
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
