//! One connection to a node, set up and probed.

use super::failure::NodeFailure;
use super::order::Order;
use super::script;
use super::shared::{Broken, NodeShared};
use futures::future::BoxFuture;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, ErrorKind, ProtocolVersion, PushInfo, PushKind, RedisError, Value,
};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::coop::unconstrained;
use tokio::time::{Instant, timeout};

/// What a server says of itself when a connection is set up. Unknown where it may not be asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerInfo {
    pub(crate) run_id: Option<Arc<str>>,
    pub(crate) version: Option<Arc<str>>,
    pub(crate) is_replica: bool,
    /// How long the server has been up, in whole seconds.
    pub(crate) uptime: Option<Duration>,
    /// True if it writes every command to disk before it answers: it forgets nothing in a restart.
    pub(crate) is_durable: bool,
    /// The eviction policy, if the server may evict keys to save memory.
    pub(crate) evicting: Option<Arc<str>>,
}

/// What is asked for by `INFO`. Older servers take one section at a time.
const SECTIONS: [&str; 4] = ["server", "replication", "memory", "persistence"];

type Replies = BoxFuture<'static, Result<Vec<Value>, RedisError>>;

/// A pipeline that was written and not yet answered.
struct Written {
    replies: Replies,
    orders: Vec<Order>,
    at: Instant,
}

/// A connection whose set-up was answered, and the pipelines under way on it.
pub(super) struct Link {
    connection: MultiplexedConnection,
    pushes: mpsc::UnboundedReceiver<PushInfo>,
    pub(super) client_id: Option<i64>,
    pub(super) info: ServerInfo,
    /// True if an earlier connection may still deliver something.
    pub(super) is_doubtful: bool,
    /// True if the server tells when keys that we asked about change.
    pub(super) tracks: bool,
    resp3: bool,
    under_way: VecDeque<Written>,
}

/// The answers to one pipeline, with what was asked.
pub(super) struct Answered {
    /// When it was written.
    pub(super) at: Instant,
    pub(super) orders: Vec<Order>,
    pub(super) replies: Result<Vec<Value>, RedisError>,
}

/// What happens on a connection.
pub(super) enum News {
    Answered(Answered),
    Pushed(Pushed),
    Closed,
}

/// Keys that have changed on the server.
pub(super) enum Pushed {
    /// Any of them: the server was flushed.
    All,
    Keys(Vec<Vec<u8>>),
}

impl Link {
    /// Connects and sets up: `HELLO 3` (or RESP2 where the server refuses it), the scripts, the
    /// connection's id, and what the server says of itself.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection; nothing but the set-up was sent on it.
    pub(super) async fn establish(node: &NodeShared) -> Result<Self, NodeFailure> {
        let connecting = async {
            let resp3 = !node.speaks_resp2.load(Ordering::Relaxed);
            let mut link = match Self::open(node, resp3).await {
                Err(error) if resp3 && refuses_hello(&error) => {
                    let link = Self::open(node, false).await;
                    node.speaks_resp2.store(link.is_ok(), Ordering::Relaxed);
                    link
                }
                other => other,
            }?;
            link.bury(node).await?;
            Ok(link)
        };
        let link = match timeout(node.timings.connect, connecting).await {
            Ok(Ok(link)) => link,
            Ok(Err(error)) => return Err(NodeFailure::unreachable(&error)),
            Err(_) => return Err(NodeFailure::Unreachable("timeout while connecting".into())),
        };
        if link.info.is_replica {
            return Err(NodeFailure::Replica);
        }
        if let Some(run_id) = &link.info.run_id {
            node.siblings.enter(node.id, run_id)?;
        }
        Ok(link)
    }

    async fn open(node: &NodeShared, resp3: bool) -> Result<Self, RedisError> {
        let (push_sender, pushes) = mpsc::unbounded_channel();
        // Time is kept by the caller and by the node's task: a timeout of the crate's own would
        // leave the connection open and its replies out of step with ours.
        let mut config =
            AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        if resp3 {
            config = config.set_push_sender(push_sender);
        }
        let protocol = if resp3 { ProtocolVersion::RESP3 } else { ProtocolVersion::RESP2 };
        let client = redis::Client::open(node.info(protocol))?;
        let connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let mut link = Self {
            connection,
            pushes,
            client_id: None,
            info: ServerInfo::default(),
            is_doubtful: false,
            tracks: false,
            resp3,
            under_way: VecDeque::new(),
        };
        link.set_up().await?;
        Ok(link)
    }

    async fn set_up(&mut self) -> Result<(), RedisError> {
        let mut pipeline = redis::Pipeline::new();
        pipeline.cmd("CLIENT").arg("ID");
        for section in SECTIONS {
            pipeline.cmd("INFO").arg(section);
        }
        pipeline.cmd("CONFIG").arg("GET").arg("appendfsync");
        for source in script::sources() {
            pipeline.cmd("SCRIPT").arg("LOAD").arg(source);
        }
        if self.resp3 {
            // RESP2 would answer OK, and could not push.
            pipeline.cmd("CLIENT").arg("TRACKING").arg("ON").arg("OPTIN").arg("NOLOOP");
        }
        // Each of these may be forbidden to our user: what is not known is not used.
        let replies = self.connection.send_packed_commands(&pipeline, 0, pipeline.len()).await?;
        if let Some(Value::Int(id)) = replies.first() {
            self.client_id = Some(*id);
        }
        self.tracks = self.resp3 && matches!(replies.last(), Some(Value::Okay));
        let texts = replies.iter().skip(1).take(SECTIONS.len()).filter_map(text);
        self.info = ServerInfo::parse(&texts.collect::<String>());
        // The append-only file is on: now it matters when it is written.
        self.info.is_durable &= replies.get(1 + SECTIONS.len()).is_some_and(syncs_always);
        Ok(())
    }

    /// I8: sees to it that connections of ours that broke deliver nothing any more. They cannot if
    /// the server process they went to has ended, or closes them when told to.
    pub(super) async fn bury(&mut self, node: &NodeShared) -> Result<(), RedisError> {
        let broken = node.broken();
        let same_server = |one: &&Broken| one.run_id.is_some() && one.run_id == self.info.run_id;
        let mut pipeline = redis::Pipeline::new();
        for id in broken.iter().filter(same_server).filter_map(|one| one.client_id) {
            pipeline.cmd("CLIENT").arg("KILL").arg("ID").arg(id);
        }
        let replies = match pipeline.len() {
            0 => Vec::new(),
            count => self.connection.send_packed_commands(&pipeline, 0, count).await?,
        };
        let are_killed = replies.iter().all(|reply| matches!(reply, Value::Int(_)));
        let are_known = self.info.run_id.is_some()
            && broken.iter().all(|one| one.run_id.is_some() && one.client_id.is_some());
        self.is_doubtful = !(are_killed && are_known);
        node.forget_broken(&broken);
        Ok(())
    }

    /// Writes one pipeline for `orders`. Pipelines are written in the order of these calls (I8).
    pub(super) async fn write(&mut self, pipeline: redis::Pipeline, orders: Vec<Order>) {
        let mut connection = self.connection.clone();
        let mut replies: Replies = Box::pin(async move {
            let count = pipeline.len();
            connection.send_packed_commands(&pipeline, 0, count).await
        });
        // A request enters the connection's queue when it is first polled, and tokio's cooperative
        // budget may refuse that poll: without this, pipelines overtake each other.
        let first = poll_fn(|cx| Poll::Ready(replies.as_mut().poll(cx)));
        let replies = match unconstrained(first).await {
            Poll::Ready(done) => Box::pin(std::future::ready(done)),
            Poll::Pending => replies,
        };
        self.under_way.push_back(Written { replies, orders, at: Instant::now() });
    }

    /// The pipelines that are not answered yet.
    pub(super) fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// When the oldest pipeline that is not answered yet was written.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.under_way.front().map(|written| written.at)
    }

    /// The next thing that happens: the oldest pipeline is answered, keys have changed, or the server
    /// has closed the connection (which RESP3 notices at once, RESP2 with the next pipeline).
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub(super) async fn news(&mut self) -> News {
        poll_fn(|cx| self.poll_news(cx)).await
    }

    fn poll_news(&mut self, cx: &mut Context<'_>) -> Poll<News> {
        if let Some(oldest) = self.under_way.front_mut()
            && let Poll::Ready(replies) = oldest.replies.as_mut().poll(cx)
        {
            let written = self.under_way.pop_front().expect("the front was just polled");
            let Written { orders, at, .. } = written;
            return Poll::Ready(News::Answered(Answered { at, orders, replies }));
        }
        while let Poll::Ready(Some(push)) = self.pushes.poll_recv(cx) {
            match push.kind {
                PushKind::Disconnection => return Poll::Ready(News::Closed),
                PushKind::Invalidate => return Poll::Ready(News::Pushed(invalidated(push.data))),
                _ => {}
            }
        }
        Poll::Pending
    }

    /// The orders that were written and not answered, oldest first.
    pub(super) fn unanswered(&self) -> impl Iterator<Item = &Order> {
        self.under_way.iter().flat_map(|written| &written.orders)
    }

    /// Takes the orders that were written and not answered, oldest first.
    pub(super) fn take_unanswered(&mut self) -> impl Iterator<Item = Order> {
        self.under_way.drain(..).flat_map(|written| written.orders)
    }
}

/// True if the server does not speak RESP3. A refused password is not that.
pub(super) fn refuses_hello(error: &RedisError) -> bool {
    error.kind() == ErrorKind::RESP3NotSupported
        || error.code() == Some("NOPROTO")
        || error.code() == Some("ERR")
}

/// The keys of an invalidation; a null stands for all.
fn invalidated(data: Vec<Value>) -> Pushed {
    match data.into_iter().next() {
        Some(Value::Array(keys)) => {
            let bytes = |key| if let Value::BulkString(bytes) = key { Some(bytes) } else { None };
            Pushed::Keys(keys.into_iter().filter_map(bytes).collect())
        }
        _ => Pushed::All,
    }
}

fn text(reply: &Value) -> Option<String> {
    match reply {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::VerbatimString { text, .. } | Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    }
}

/// True if this answer to `CONFIG GET appendfsync` (a map, or a list with RESP2) is `always`.
fn syncs_always(reply: &Value) -> bool {
    let value = match reply {
        Value::Map(pairs) => pairs.first().map(|(_, value)| value),
        Value::Array(parts) => parts.get(1),
        _ => None,
    };
    value.and_then(text).is_some_and(|value| value == "always")
}

impl ServerInfo {
    fn parse(info: &str) -> Self {
        let field = |name: &str| {
            info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
        };
        let limited = field("maxmemory").is_some_and(|bytes| bytes != "0");
        let policy = field("maxmemory_policy").filter(|policy| *policy != "noeviction");
        Self {
            run_id: field("run_id").map(Arc::from),
            version: field("valkey_version").or(field("redis_version")).map(Arc::from),
            uptime: field("uptime_in_seconds")
                .and_then(|seconds| seconds.parse().ok())
                .map(Duration::from_secs),
            is_durable: field("aof_enabled").is_some_and(|enabled| enabled == "1"),
            is_replica: field("role").is_some_and(|role| role == "slave"),
            evicting: policy.filter(|_| limited).map(Arc::from),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_says_who_the_server_is() {
        let info = "# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\nuptime_in_seconds:7\r\n\r\n# Replication\r\nrole:master\r\n\
                    # Memory\r\nmaxmemory:1000\r\nmaxmemory_policy:allkeys-lru\r\n";
        let parsed = ServerInfo::parse(info);
        assert_eq!(parsed.run_id.as_deref(), Some("abc"));
        assert_eq!(parsed.version.as_deref(), Some("7.0.15"));
        assert_eq!(parsed.evicting.as_deref(), Some("allkeys-lru"));
        assert_eq!(parsed.uptime, Some(Duration::from_secs(7)));
        assert!(!parsed.is_replica && !parsed.is_durable);
        assert!(ServerInfo::parse("aof_enabled:1\r\n").is_durable);
        assert!(ServerInfo::parse("role:slave\r\n").is_replica);
        let unlimited = ServerInfo::parse("maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n");
        assert_eq!(unlimited.evicting, None);
        assert_eq!(ServerInfo::parse(""), ServerInfo::default());
    }

    #[test]
    fn durable_is_who_writes_before_it_answers() {
        for (wire, always) in [
            ("%1\r\n$11\r\nappendfsync\r\n$6\r\nalways\r\n", true),
            ("*2\r\n$11\r\nappendfsync\r\n$6\r\nalways\r\n", true),
            ("*2\r\n$11\r\nappendfsync\r\n$8\r\neverysec\r\n", false),
            ("*0\r\n", false),
            ("-NOPERM no\r\n", false),
        ] {
            let reply = redis::parse_redis_value(wire.as_bytes()).expect("a reply");
            assert_eq!(syncs_always(&reply), always, "{wire:?}");
        }
    }
}
