//! The lower limit of the cost of a lock: the network and the servers, without any safety.

use std::sync::atomic::{AtomicU64, Ordering};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, Value};

use crate::contender::{Contender, TTL, nodelay_client};

/// Deletes KEYS\[1\] if its value is ARGV\[1\], and returns the number of deleted keys.
pub(crate) const RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";

/// Sends each command to all nodes and returns when a quorum has replied. Each node has one multiplexed connection.
///
/// This is not a lock: it has no clean-up, validity, timeouts or reconnects.
pub(crate) struct RawFanOut {
    nodes: Vec<MultiplexedConnection>,
    release_sha: String,
    next_value: AtomicU64,
}

pub(crate) struct Held {
    key: String,
    value: String,
}

impl Contender for RawFanOut {
    const NAME: &'static str = "raw fan-out";
    type Lock = Held;

    async fn connect(urls: &[String]) -> Result<Self, String> {
        let mut nodes = Vec::with_capacity(urls.len());
        let mut release_sha = String::new();
        for url in urls {
            let config = AsyncConnectionConfig::new().set_response_timeout(None);
            let mut node = nodelay_client(url)?
                .get_multiplexed_async_connection_with_config(&config)
                .await
                .map_err(|error| error.to_string())?;
            release_sha = redis::cmd("SCRIPT")
                .arg("LOAD")
                .arg(RELEASE)
                .query_async(&mut node)
                .await
                .map_err(|error| error.to_string())?;
            nodes.push(node);
        }
        Ok(Self { nodes, release_sha, next_value: AtomicU64::new(0) })
    }

    async fn lock(&self, key: &str) -> Result<Held, String> {
        let value = format!("{:032x}", self.next_value.fetch_add(1, Ordering::Relaxed));
        let mut set = redis::cmd("SET");
        set.arg(key).arg(&value).arg("NX").arg("PX").arg(TTL.as_millis());
        self.at_quorum(&set, &Value::Okay).await?;
        Ok(Held { key: key.to_owned(), value })
    }

    async fn unlock(&self, held: Held) -> Result<(), String> {
        let mut delete = redis::cmd("EVALSHA");
        delete.arg(&self.release_sha).arg(1).arg(&held.key).arg(&held.value);
        self.at_quorum(&delete, &Value::Int(1)).await
    }
}

impl RawFanOut {
    /// Sends `command` to all nodes. Returns when a majority has replied with `expected`, and fails once that has
    /// become impossible.
    async fn at_quorum(&self, command: &Cmd, expected: &Value) -> Result<(), String> {
        let mut replies: FuturesUnordered<_> = self
            .nodes
            .iter()
            .cloned()
            .map(|mut node| async move { node.send_packed_command(command).await })
            .collect();
        let mut missing = self.nodes.len() / 2 + 1;
        while let Some(reply) = replies.next().await {
            if reply.is_ok_and(|value| value == *expected) {
                missing -= 1;
                if missing == 0 {
                    return Ok(());
                }
            }
        }
        Err(format!("{missing} more votes needed for a quorum"))
    }
}
