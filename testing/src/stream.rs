//! Streams from clients to in-process and simulated nodes.

use quorlock::test_util::Stream;
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// State of a connection from the client's point of view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The connection is being established.
    Connecting,
    /// The connection is established.
    Open,
    /// The peer has closed its end.
    Ended,
    /// The connection was reset.
    Broken,
    /// The connection was refused.
    Refused,
    /// The client has closed the connection.
    Dropped,
}

/// The client's end of a connection: its state, its receive buffer, and the task that waits for it.
#[derive(Debug)]
pub struct StreamEnd {
    /// State of the connection.
    pub phase: Phase,
    /// Received bytes that the client has not read yet.
    pub inbox: VecDeque<u8>,
    /// Waker of the task that waits for the connection to be established, or for bytes.
    pub reader: Option<Waker>,
}

/// Transports bytes between clients and nodes. Each connection is identified by a number.
pub trait Carrier: Send + Sync + 'static {
    /// Calls `act` with the client's end of a connection, and returns its result. Returns `None` if
    /// the connection does not exist.
    fn with_end<T>(&self, connection: usize, act: impl FnOnce(&mut StreamEnd) -> T) -> Option<T>;

    /// Sends all of `bytes` from the client to the node.
    fn write(&self, connection: usize, bytes: &[u8]);

    /// Closes the connection on behalf of the client.
    fn close(&self, connection: usize);
}

/// A stream to a node over a [`Carrier`]. Dropping the stream closes the connection.
pub struct Wire<C: Carrier> {
    carrier: Arc<C>,
    connection: usize,
}

/// Result of a poll, and the waker that the poll replaced. The caller must release the carrier's
/// lock before it drops this waker, because dropping a waker can run arbitrary code.
type PollResult = (Poll<io::Result<()>>, Option<Waker>);

impl StreamEnd {
    /// Creates the client's end of a connection in the given phase, with an empty receive buffer.
    pub fn new(phase: Phase) -> Self {
        Self { phase, inbox: VecDeque::new(), reader: None }
    }

    fn poll_open(&mut self, cx: &Context<'_>) -> PollResult {
        match self.phase {
            Phase::Connecting => self.wait(cx),
            Phase::Open | Phase::Ended => (Poll::Ready(Ok(())), None),
            _ => (Poll::Ready(Err(io::ErrorKind::ConnectionRefused.into())), None),
        }
    }

    fn poll_read(&mut self, cx: &Context<'_>, to: &mut ReadBuf<'_>) -> PollResult {
        if !self.inbox.is_empty() {
            let (first, _) = self.inbox.as_slices();
            let count = first.len().min(to.remaining());
            to.put_slice(&first[..count]);
            self.inbox.drain(..count);
            return (Poll::Ready(Ok(())), None);
        }
        match self.phase {
            Phase::Ended => (Poll::Ready(Ok(())), None),
            Phase::Connecting | Phase::Open => self.wait(cx),
            _ => (Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())), None),
        }
    }

    fn wait(&mut self, cx: &Context<'_>) -> PollResult {
        (Poll::Pending, self.reader.replace(cx.waker().clone()))
    }
}

impl<C: Carrier> Wire<C> {
    /// Creates the client's stream for `connection`.
    pub fn new(carrier: Arc<C>, connection: usize) -> Self {
        Self { carrier, connection }
    }

    /// Polls for the connection to be established. Fails with `ConnectionRefused` if the connection
    /// is refused or broken.
    pub fn poll_open(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let (polled, _replaced) = self.with(|end| end.poll_open(cx))?;
        polled
    }

    fn with<T>(&self, act: impl FnOnce(&mut StreamEnd) -> T) -> io::Result<T> {
        let done = self.carrier.with_end(self.connection, act);
        done.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl<C: Carrier> AsyncRead for Wire<C> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (polled, _replaced) = self.with(|end| end.poll_read(cx, to))?;
        polled
    }
}

impl<C: Carrier> Stream for Wire<C> {}

impl<C: Carrier> AsyncWrite for Wire<C> {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if !matches!(self.with(|end| end.phase)?, Phase::Open | Phase::Ended) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        self.carrier.write(self.connection, bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl<C: Carrier> Drop for Wire<C> {
    fn drop(&mut self) {
        self.carrier.close(self.connection);
    }
}
