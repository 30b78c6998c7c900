//! The shared counters that are worked on under the locks, on a server without faults.
//!
//! A counter is read, slept on and written back. Each write that takes place is counted in the same
//! transaction, so at the end a counter differs from its count by the updates that were lost.
//!
//! A write lands at some time after it was sent. What lands after the validity of its lease is
//! refused by the server: that is not what the lock promises to prevent (a process can be stopped
//! between its last look at the lease and the write). Such refusals are counted, too.

use kit::Server;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue, RedisResult};
use std::time::Duration;

/// KEYS: the counter, its count. ARGV: the value, the end of the validity by the wall clock in
/// microseconds.
const WRITE: &str = r"
local now = redis.call('TIME')
if now[1] * 1000000 + now[2] >= tonumber(ARGV[2]) then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
redis.call('INCR', KEYS[2])
return 1";

/// The counters, as a client sees them.
#[derive(Clone)]
pub(crate) struct Cells {
    connection: MultiplexedConnection,
}

impl Cells {
    /// Connects to the server of the counters.
    pub(crate) async fn open(url: &str) -> RedisResult<Self> {
        let client = redis::Client::open(url)?;
        // It has no faults, but the machine may be busy.
        let config = redis::AsyncConnectionConfig::new()
            .set_response_timeout(Some(Duration::from_secs(20)))
            .set_connection_timeout(Some(Duration::from_secs(20)));
        let connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        Ok(Self { connection })
    }

    /// The counter of a resource.
    pub(crate) async fn read(&self, resource: u16) -> RedisResult<u64> {
        let value: Option<u64> = self.query(redis::cmd("GET").arg(counter(resource))).await?;
        Ok(value.unwrap_or(0))
    }

    /// Sets the counter, if that lands before `deadline`, by the wall clock in microseconds; says
    /// whether it did.
    pub(crate) async fn write(
        &self,
        resource: u16,
        value: u64,
        deadline: u64,
    ) -> RedisResult<bool> {
        let mut write = redis::cmd("EVAL");
        write.arg(WRITE).arg(2).arg(counter(resource)).arg(count(resource)).arg(value);
        self.query(write.arg(deadline)).await
    }

    /// Asks their server.
    pub(crate) async fn query<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        command.query_async(&mut self.connection.clone()).await
    }
}

/// How many updates of a resource's counter took place, and how many of them were lost.
pub(crate) fn audit(server: &Server, resource: u16) -> (u64, u64) {
    let number = |key: String| {
        let text = server.get(key).map(|text| String::from_utf8_lossy(&text).into_owned());
        text.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0)
    };
    let writes = number(count(resource));
    (writes, writes.saturating_sub(number(counter(resource))))
}

fn counter(resource: u16) -> String {
    format!("counter:{resource}")
}

fn count(resource: u16) -> String {
    format!("count:{resource}")
}
