//! A client's end of a stream whose other end a test plays.

use crate::transport::Stream;
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How a client sees its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It is being made.
    Connecting,
    /// It is there.
    Open,
    /// The peer sends no more.
    Ended,
    /// It was, and is no more.
    Broken,
    /// Nobody has taken it.
    Refused,
    /// The client has let go of it.
    Dropped,
}

/// What has come on a connection and was not read yet, and who waits for more.
#[derive(Debug)]
pub struct StreamEnd {
    /// How it stands.
    pub phase: Phase,
    /// Bytes that the client has not read yet.
    pub inbox: VecDeque<u8>,
    /// The task that waits.
    pub reader: Option<Waker>,
}

/// What carries bytes between clients and nodes. Connections have numbers.
pub trait Carrier: Send + Sync + 'static {
    /// Does something with the client's end of a connection, if there is one.
    fn with_end<T>(&self, connection: usize, act: impl FnOnce(&mut StreamEnd) -> T) -> Option<T>;

    /// The client writes: all is taken.
    fn write(&self, connection: usize, bytes: &[u8]);

    /// The client lets go of the connection.
    fn let_go(&self, connection: usize);
}

/// A stream to a node. Dropping it closes it.
pub struct Wire<C: Carrier> {
    carrier: Arc<C>,
    connection: usize,
}

/// What a look gives, and the waker that it has replaced: dropping that may run anything, and so it is dropped
/// where no lock is held.
type Look = (Poll<io::Result<()>>, Option<Waker>);

impl StreamEnd {
    /// An end in this phase.
    pub fn new(phase: Phase) -> Self {
        Self { phase, inbox: VecDeque::new(), reader: None }
    }

    fn poll_open(&mut self, cx: &Context<'_>) -> Look {
        match self.phase {
            Phase::Connecting => self.wait(cx),
            Phase::Open | Phase::Ended => (Poll::Ready(Ok(())), None),
            _ => (Poll::Ready(Err(io::ErrorKind::ConnectionRefused.into())), None),
        }
    }

    fn poll_read(&mut self, cx: &Context<'_>, to: &mut ReadBuf<'_>) -> Look {
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

    fn wait(&mut self, cx: &Context<'_>) -> Look {
        (Poll::Pending, self.reader.replace(cx.waker().clone()))
    }
}

impl<C: Carrier> Wire<C> {
    /// The client's end of `connection`.
    pub fn new(carrier: Arc<C>, connection: usize) -> Self {
        Self { carrier, connection }
    }

    /// Whether the connection was made.
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
        self.carrier.let_go(self.connection);
    }
}
