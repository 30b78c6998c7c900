//! A [`World`] with real clocks and sockets. It counts socket reads, socket writes and clock reads.

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

#[derive(Default)]
pub(crate) struct Calls {
    streams: AtomicUsize,
    clocks: AtomicUsize,
}

impl Calls {
    pub(crate) fn stream_calls(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }

    pub(crate) fn clock_reads(&self) -> usize {
        self.clocks.load(Ordering::Relaxed)
    }

    fn count_stream_call(&self) {
        self.streams.fetch_add(1, Ordering::Relaxed);
    }

    fn count_clock_read(&self) {
        self.clocks.fetch_add(1, Ordering::Relaxed);
    }
}

/// Uses the operating system's clocks and sockets, and counts their use. Each alarm is a task on `handle`.
pub(crate) struct CountingWorld {
    handle: Handle,
    calls: Arc<Calls>,
    origin: Instant,
}

impl CountingWorld {
    pub(crate) fn new(handle: Handle, calls: Arc<Calls>) -> Self {
        Self { handle, calls, origin: Instant::now() }
    }
}

impl World for CountingWorld {
    fn now(&self) -> Duration {
        self.calls.count_clock_read();
        self.origin.elapsed()
    }

    fn wall_clock(&self) -> Duration {
        self.calls.count_clock_read();
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
    }

    fn set_alarm(&self, at: Duration, bell: Bell) -> Box<dyn Alarm> {
        let origin = self.origin;
        let ringing = async move {
            let mut next = Some(at);
            while let Some(at) = next {
                tokio::time::sleep_until((origin + at).into()).await;
                next = bell.ring(origin.elapsed());
            }
        };
        Box::new(CountedAlarm(self.handle.spawn(ringing).abort_handle()))
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

/// An alarm whose `hasten` has no effect, because the measured work never shortens a deadline.
struct CountedAlarm(AbortHandle);

impl Alarm for CountedAlarm {
    fn hasten(&self, _: Duration) {}
}

impl Drop for CountedAlarm {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Counts each completed read or write, because each one is a system call.
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
            self.calls.count_stream_call();
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
            self.calls.count_stream_call();
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
