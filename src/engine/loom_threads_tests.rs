//! An engine with one node in memory, and the threads of its loom tests.

use super::calls::Call;
use super::io::OpenConnection;
use super::requests_tests::engine_in;
use super::shared::Engine;
use super::slot::CallId;
use crate::coordinator::{AcquireRequest, ConnectionId};
use crate::node::Environment;
use crate::observe::Tag;
use crate::protocol::{RetryPolicy, Time, Ttl};
use crate::random::Random;
use crate::sync::lock;
use crate::time::{Clock, Ring, SourceAlarm, TimeSource};
use crate::transport::Stream;
use crate::wire::Keys;
use loom::model::Builder;
use loom::sync::Notify;
use quorlock_test::internals::{Config, ConnId, Output, Server};
use redis::RedisConnectionInfo;
use std::collections::VecDeque;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::{Handle, Runtime};

/// The wall clock at the origin of the clock, in microseconds.
const WALL_US: u64 = 1_700_000_000_000_000;

/// Runs `test` with each order of the threads' steps that preempts a thread at most this often.
pub(super) fn check(preemptions: usize, test: impl Fn() + Send + Sync + 'static) {
    let mut model = Builder::new();
    model.preemption_bound = Some(preemptions);
    model.max_branches = 20_000;
    model.check(test);
}

#[derive(Default)]
struct Thread(Notify);

impl Wake for Thread {
    fn wake(self: Arc<Self>) {
        self.0.notify();
    }
}

/// Runs `future` on this thread, which sleeps until it is woken. loom reports a thread that sleeps indefinitely.
pub(super) fn block_on<F: Future>(future: F) -> F::Output {
    let thread = Arc::<Thread>::default();
    let waker = Waker::from(thread.clone());
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread.0.wait();
    }
}

/// A clock that stands until the test moves it.
#[derive(Clone, Default)]
struct StandingClock(Arc<AtomicU64>);

struct NoAlarm;

impl SourceAlarm for NoAlarm {
    fn hasten(&self, _: Time) {}
}

impl TimeSource for StandingClock {
    fn now(&self) -> Time {
        Time::from_nanos(self.0.load(Ordering::SeqCst))
    }

    fn wall_us(&self) -> u64 {
        WALL_US + self.0.load(Ordering::SeqCst) / 1_000
    }

    fn set_alarm(&self, _: Time, _: Weak<dyn Ring>) -> Box<dyn SourceAlarm> {
        Box::new(NoAlarm)
    }

    fn is_world(&self) -> bool {
        true
    }
}

/// A server with one connection. It replies at once.
struct Node {
    server: Server,
    connection: ConnId,
    replies: VecDeque<u8>,
    reader: Option<Waker>,
}

struct NodeStream {
    node: Arc<Mutex<Node>>,
    clock: StandingClock,
}

impl Stream for NodeStream {}

impl AsyncRead for NodeStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut node = lock(&self.node);
        if node.replies.is_empty() {
            node.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let count = buffer.remaining().min(node.replies.len());
        let bytes: Vec<_> = node.replies.drain(..count).collect();
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
        let connection = node.connection;
        for output in node.server.receive(connection, bytes, self.clock.wall_us()) {
            let Output::Bytes(_, bytes) = output else { unreachable!("the server closes nothing") };
            node.replies.extend(bytes);
        }
        let reader = if node.replies.is_empty() { None } else { node.reader.take() };
        drop(node);
        if let Some(reader) = reader {
            reader.wake();
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// An engine that is connected to its node.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) engine: Arc<Engine>,
    node: Arc<Mutex<Node>>,
    clock: StandingClock,
}

impl Client {
    pub(super) fn new() -> Self {
        let clock = StandingClock::default();
        clock.0.store(1_000_000_000, Ordering::SeqCst);
        let environment = Environment {
            clock: Clock::Other(Arc::new(clock.clone())),
            random: Random::seeded(1),
            ..Environment::default()
        };
        let engine = engine_in(environment);
        let mut server = Server::new(Config::default(), clock.wall_us());
        let connection = server.connect();
        let (replies, reader) = (VecDeque::new(), None);
        let node = Arc::new(Mutex::new(Node { server, connection, replies, reader }));
        let client = Self { engine, node, clock };
        let id = client.engine.with(|it, now| it.poll_connect(now)).flatten();
        client.connect(id.expect("a connection to open"));
        client
    }

    fn connect(&self, id: ConnectionId) {
        let stream = NodeStream { node: self.node.clone(), clock: self.clock.clone() };
        let mut io = lock(&self.engine.io);
        io.open.push(OpenConnection::new(id, Box::new(stream)));
        io.opened.push((id, Ok(RedisConnectionInfo::default())));
        drop(io);
        self.run();
        assert_eq!(self.engine.with(|it, now| it.is_ready(now)), Some(true));
    }

    /// Takes turns until there is nothing to read or write.
    pub(super) fn run(&self) {
        for _ in 0..8 {
            self.turn();
        }
    }

    pub(super) fn turn(&self) {
        self.engine.take_turn(&mut Context::from_waker(Waker::noop()), None);
    }

    /// Handles timeouts that are due, as the alarm does.
    pub(super) fn ring(&self) {
        self.engine.clone().ring(self.clock.now());
    }

    /// Runs the client's task on this thread until the client is closed or the task is replaced. Returns false if there
    /// is a task already.
    pub(super) fn serve(&self) -> bool {
        let task = self.engine.next_task(runtime()).unwrap_or_default();
        let Some(task) = task else { return false };
        block_on(std::future::poll_fn(|cx| task.poll(cx)));
        true
    }

    pub(super) fn advance(&self, by: Duration) {
        self.clock.0.fetch_add(u64::try_from(by.as_nanos()).expect("short"), Ordering::SeqCst);
    }

    /// Submits an acquire that waits for the lock.
    pub(super) fn acquire(&self) -> Call {
        let request = AcquireRequest {
            keys: Keys::one(b"k".as_slice().into()),
            ttl: Ttl::covering(Duration::from_secs(10)),
            metadata: None,
            adopts: None,
            counters: None,
            schedule: RetryPolicy::default().schedule(),
            has_one_attempt: false,
            max_hold: None,
            at_least: Duration::ZERO,
            deadline: Some(self.clock.now().after(Duration::from_secs(60))),
            gives_up_early: false,
            tag: Tag::default(),
        };
        self.engine.call(move |it, now| Some(CallId::Acquire(it.handle_acquire(request, now))))
    }

    /// True if the lock's key exists.
    pub(super) fn is_locked(&self) -> bool {
        lock(&self.node).server.keys(self.clock.wall_us()).any(|(key, _)| key == b"k")
    }
}

/// A runtime that runs no tasks.
pub(super) fn runtime() -> Handle {
    static RUNTIME: LazyLock<Runtime> =
        LazyLock::new(|| tokio::runtime::Builder::new_current_thread().build().expect("a runtime"));
    RUNTIME.handle().clone()
}
