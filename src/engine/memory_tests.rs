//! A test client with one in-memory node, on a clock that the test advances.

use super::calls::Call;
use super::io::OpenConnection;
use super::requests_tests::engine_in;
use super::shared::Engine;
use super::slot::CallId;
use crate::coordinator::{AcquireRequest, Completion, ConnectionId, Coordinator};
use crate::node::Environment;
use crate::observe::NodeState;
use crate::protocol::{NodeId, RetryPolicy, Time, Ttl};
use crate::random::Random;
use crate::sync::{ProcessBound, lock};
use crate::time::{Clock, OnAlarm, SourceAlarm, TimeSource};
use crate::transport::Stream;
use crate::wire::Keys;
use quorlock_test::internals::{Config, ConnId, Output, Server};
use redis::RedisConnectionInfo;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Wall-clock time at the origin of the clock, in microseconds.
const WALL_US: u64 = 1_700_000_000_000_000;

#[derive(Clone, Default)]
struct ManualClock(Arc<AtomicU64>);

struct NoAlarm;

impl SourceAlarm for NoAlarm {
    fn reschedule_earlier(&self, _: Time) {}
}

impl TimeSource for ManualClock {
    fn now(&self) -> Time {
        Time::from_nanos(self.0.load(Ordering::SeqCst))
    }

    fn wall_us(&self) -> u64 {
        WALL_US + self.0.load(Ordering::SeqCst) / 1_000
    }

    fn set_alarm(&self, _: Time, _: Weak<dyn OnAlarm>) -> Box<dyn SourceAlarm> {
        Box::new(NoAlarm)
    }

    fn is_simulated(&self) -> bool {
        true
    }
}

struct Node {
    server: Server,
    unread: BTreeMap<ConnId, Unread>,
}

/// Bytes that the node has sent and the client has not read yet.
#[derive(Default)]
struct Unread {
    bytes: VecDeque<u8>,
    /// Whether the node has closed the connection after these bytes.
    is_closed: bool,
    reader: Option<Waker>,
}

struct NodeStream {
    node: Arc<Mutex<Node>>,
    connection: ConnId,
    clock: ManualClock,
}

impl Stream for NodeStream {}

impl AsyncRead for NodeStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut node = lock(&self.node);
        let unread = node.unread.entry(self.connection).or_default();
        if unread.bytes.is_empty() && !unread.is_closed {
            unread.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let count = buffer.remaining().min(unread.bytes.len());
        let bytes: Vec<_> = unread.bytes.drain(..count).collect();
        buffer.put_slice(&bytes);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for NodeStream {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut node = lock(&self.node);
        let mut readers = Vec::new();
        for output in node.server.receive(self.connection, bytes, self.clock.wall_us()) {
            let Output::Bytes(connection, bytes) = output else { continue };
            let unread = node.unread.entry(connection).or_default();
            unread.bytes.extend(bytes);
            readers.extend(unread.reader.take());
        }
        drop(node);
        readers.into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[derive(Clone)]
pub(crate) struct MemoryClient {
    pub(crate) engine: Arc<Engine>,
    node: Arc<Mutex<Node>>,
    clock: ManualClock,
}

impl MemoryClient {
    pub(crate) fn new() -> Self {
        let clock = ManualClock::default();
        clock.0.store(1_000_000_000, Ordering::SeqCst);
        let server = Server::new(Config::default(), clock.wall_us());
        Self::connected(Arc::new(Mutex::new(Node { server, unread: BTreeMap::new() })), clock)
    }

    pub(crate) fn another(&self) -> Self {
        Self::connected(self.node.clone(), self.clock.clone())
    }

    fn connected(node: Arc<Mutex<Node>>, clock: ManualClock) -> Self {
        let environment = Environment {
            clock: Clock::Other(Arc::new(clock.clone())),
            random: Random::seeded(1),
            ..Environment::default()
        };
        let engine = engine_in(environment);
        let client = Self { engine, node, clock };
        let id = client.engine.with(Coordinator::poll_connect).flatten();
        client.connect(id.expect("a connection to open"));
        client
    }

    fn open_stream(&self) -> ProcessBound<Box<dyn Stream>> {
        let connection = lock(&self.node).server.connect();
        let (node, clock) = (self.node.clone(), self.clock.clone());
        ProcessBound::new(Box::new(NodeStream { node, connection, clock }))
    }

    fn connect(&self, id: ConnectionId) {
        let stream = self.open_stream();
        let mut io = lock(&self.engine.io);
        io.open.push(OpenConnection::new(id, stream));
        io.opened.push((id, Ok(RedisConnectionInfo::default())));
        drop(io);
        self.run();
        assert_eq!(self.engine.with(|it, now| it.is_ready(now)), Some(true));
    }

    /// Exchanges all bytes with the node.
    pub(crate) fn run(&self) {
        for _ in 0..8 {
            self.turn();
        }
    }

    pub(crate) fn turn(&self) {
        self.engine.take_turn(&mut Context::from_waker(Waker::noop()), None);
    }

    pub(crate) fn fire_alarm(&self) {
        self.engine.clone().on_alarm(self.clock.now());
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.clock.0.fetch_add(u64::try_from(by.as_nanos()).expect("short"), Ordering::SeqCst);
    }

    pub(crate) fn acquire(&self) -> Call {
        let keys = Keys::one(b"k".as_slice().into());
        let request = AcquireRequest {
            schedule: RetryPolicy::default().schedule(),
            has_one_attempt: false,
            deadline: Some(self.clock.now().after(Duration::from_secs(60))),
            ..AcquireRequest::once(keys, Ttl::covering(Duration::from_secs(10)))
        };
        self.engine.call(move |it, now| Some(CallId::Acquire(it.handle_acquire(request, now))))
    }

    /// Closes the connections at the node's end, after the bytes that the node has already sent.
    fn close_by_node(&self) {
        let mut node = lock(&self.node);
        node.unread.values_mut().for_each(|unread| unread.is_closed = true);
    }

    pub(crate) fn is_locked(&self) -> bool {
        lock(&self.node).server.keys(self.clock.wall_us()).any(|(key, _)| key == b"k")
    }
}

#[test]
fn stream_that_is_opened_after_the_end_of_the_task_is_closed() {
    let client = MemoryClient::new();
    let engine = &client.engine;
    let id = lock(&engine.io).open[0].id;
    for is_served in [true, false] {
        engine.is_served.store(is_served, Ordering::SeqCst);
        let opened = (id, Ok((client.open_stream(), RedisConnectionInfo::default())));
        lock(&engine.opened).push(opened);
        engine.close_unused();
        assert_eq!(lock(&engine.opened).len(), usize::from(is_served));
    }
}

#[test]
fn node_does_not_stall_while_another_thread_has_its_connection() {
    let client = MemoryClient::new();
    let mut call = client.acquire();
    // Writes the command. The reply is not read yet.
    client.turn();
    client.advance(Duration::from_millis(1_011));
    let node = || client.engine.with(|it, _| it.node_state(NodeId::new(0)));
    let io = lock(&client.engine.io);
    client.fire_alarm();
    client.fire_alarm();
    assert_eq!(node(), Some(NodeState::Up));
    drop(io);
    client.fire_alarm();
    assert_eq!(node(), Some(NodeState::Up));
    assert!(Pin::new(&mut call).poll(&mut Context::from_waker(Waker::noop())).is_ready());
}

#[test]
fn last_bytes_before_the_end_of_a_connection_are_handled() {
    let client = MemoryClient::new();
    let mut call = client.acquire();
    // Writes the command. The reply is not read yet.
    client.turn();
    client.close_by_node();
    client.turn();
    let polled = Pin::new(&mut call).poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Ready(Ok(Some(Completion::Acquired { .. })))));
    assert!(lock(&client.engine.io).open.is_empty());
}
