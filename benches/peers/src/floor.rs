//! The floor: what the network and the servers cost when nothing is kept safe.

use std::sync::atomic::{AtomicU64, Ordering};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, Value};

use crate::contender::{Contender, TTL, nodelay_client};

/// Deletes KEYS\[1\] if it holds ARGV\[1\]; answers the number of deleted keys.
pub(crate) const RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";

/// A raw fan-out over one multiplexed connection per node that returns at the quorum.
///
/// No clean-up, no validity, no timeouts, no reconnects: not a lock, only a bound for one.
pub(crate) struct Floor {
    nodes: Vec<MultiplexedConnection>,
    release_sha: String,
    next_value: AtomicU64,
}

/// A key and the value it was given.
pub(crate) struct Held {
    key: String,
    value: String,
}

impl Contender for Floor {
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

impl Floor {
    /// Sends `command` to all nodes and returns once a majority has answered `expected`.
    async fn at_quorum(&self, command: &Cmd, expected: &Value) -> Result<(), String> {
        let mut answers: FuturesUnordered<_> = self
            .nodes
            .iter()
            .cloned()
            .map(|mut node| async move { node.send_packed_command(command).await })
            .collect();
        let mut missing = self.nodes.len() / 2 + 1;
        while let Some(answer) = answers.next().await {
            if answer.is_ok_and(|value| value == *expected) {
                missing -= 1;
                if missing == 0 {
                    return Ok(());
                }
            }
        }
        Err(format!("{missing} votes missing"))
    }
}
