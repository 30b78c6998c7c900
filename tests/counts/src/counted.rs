//! A world like the machine's, in which reads, writes and looks at clocks are counted.

use futures::FutureExt;
use futures::future::BoxFuture;
use quorlock_test::internals::OpenGate;
use quorlock_test::{Alarm, Bell, Gate, Stream, World};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

/// What a client has asked of its world.
#[derive(Default)]
pub(crate) struct Calls {
    streams: AtomicUsize,
    clocks: AtomicUsize,
}

impl Calls {
    /// How many calls of the system were made for streams.
    pub(crate) fn of_streams(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }

    /// How often a clock was read, whichever.
    pub(crate) fn of_clocks(&self) -> usize {
        self.clocks.load(Ordering::Relaxed)
    }

    fn add_stream(&self) {
        self.streams.fetch_add(1, Ordering::Relaxed);
    }

    fn add_clock(&self) {
        self.clocks.fetch_add(1, Ordering::Relaxed);
    }
}

/// The machine's clocks, its sockets, and alarms on one runtime.
pub(crate) struct Counted {
    handle: Handle,
    calls: Arc<Calls>,
    origin: Instant,
}

impl Counted {
    pub(crate) fn new(handle: Handle, calls: Arc<Calls>) -> Self {
        Self { handle, calls, origin: Instant::now() }
    }
}

impl World for Counted {
    fn now(&self) -> Duration {
        self.calls.add_clock();
        self.origin.elapsed()
    }

    fn wall_clock(&self) -> Duration {
        self.calls.add_clock();
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
    }

    fn set_alarm(&self, at: Duration, bell: Bell) -> Box<dyn Alarm> {
        let origin = self.origin;
        let rings = async move {
            let mut next = Some(at);
            while let Some(at) = next {
                tokio::time::sleep_until((origin + at).into()).await;
                next = bell.ring(origin.elapsed());
            }
        };
        Box::new(Set(self.handle.spawn(rings).abort_handle()))
    }

    fn connect(&self, node: &str) -> BoxFuture<'static, io::Result<Box<dyn Stream>>> {
        let address = node.trim_start_matches("redis://").to_owned();
        let calls = self.calls.clone();
        async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let stream: Box<dyn Stream> = Box::new(Socket { stream, calls });
            Ok(stream)
        }
        .boxed()
    }

    fn gate(&self) -> Box<dyn Gate> {
        Box::new(OpenGate)
    }
}

/// An alarm that rings when it was set for, and is never hastened: what is counted does not end early.
struct Set(AbortHandle);

impl Alarm for Set {
    fn hasten(&self, _: Duration) {}
}

impl Drop for Set {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A socket, each of whose reads and writes is a call of the system.
struct Socket {
    stream: TcpStream,
    calls: Arc<Calls>,
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, room);
        if read.is_ready() {
            self.calls.add_stream();
        }
        read
    }
}

impl Stream for Socket {}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if written.is_ready() {
            self.calls.add_stream();
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
