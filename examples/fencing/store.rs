//! A resource in a Redis of its own, which is none of the lock's nodes.

use crate::stale::Stale;
use quorlock::FencingToken;
use redis::aio::MultiplexedConnection;
use redis::{RedisError, RedisResult, Script};

/// A value under a key of a Redis server, which refuses whoever shows a lower token than it has seen.
///
/// The server must keep what it was told (`appendonly yes`, `appendfsync always`, `maxmemory-policy
/// noeviction`): if it forgets the mark, a stale holder is let in.
pub(crate) struct Store {
    connection: MultiplexedConnection,
    key: String,
    write: Script,
}

impl Store {
    /// The value under `key`.
    pub(crate) async fn open(url: &str, key: &str) -> RedisResult<Self> {
        let connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
        let write = Script::new(include_str!("write.lua"));
        Ok(Self { connection, key: key.to_owned(), write })
    }

    /// Reads the value; from then on, every lower token is refused. The first thing that a new holder
    /// does: what it reads cannot be changed by an earlier holder any more.
    pub(crate) async fn read(&self, token: FencingToken) -> RedisResult<Result<String, Stale>> {
        self.invoke(token, None).await
    }

    /// Writes the value, unless a higher token was seen.
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
