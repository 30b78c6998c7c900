//! The client's end of a connection.

use crate::network::ClientEnd;
use crate::shared::Shared;
use futures::future::BoxFuture;
use quorlock::test_util::Stream;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream to a node. Dropping it closes it.
struct Wire {
    shared: Arc<Shared>,
    connection: usize,
}

/// Connects `process` to `node`.
pub(crate) fn connect(
    shared: Arc<Shared>,
    process: usize,
    node: usize,
) -> BoxFuture<'static, io::Result<Box<dyn Stream>>> {
    Box::pin(async move {
        let connection = shared.lock().open(process, node);
        let wire = Wire { shared, connection };
        poll_fn(|cx| wire.poll_open(cx)).await?;
        let stream: Box<dyn Stream> = Box::new(wire);
        Ok(stream)
    })
}

impl Wire {
    fn poll_open(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let mut core = self.shared.lock();
        let it = &mut core.connections[self.connection];
        match it.client {
            ClientEnd::Connecting => {
                let before = it.reader.replace(cx.waker().clone());
                drop(core);
                drop(before);
                Poll::Pending
            }
            ClientEnd::Open | ClientEnd::Ended => Poll::Ready(Ok(())),
            _ => Poll::Ready(Err(io::ErrorKind::ConnectionRefused.into())),
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut core = self.shared.lock();
        let it = &mut core.connections[self.connection];
        if !it.inbox.is_empty() {
            let (first, _) = it.inbox.as_slices();
            let count = first.len().min(to.remaining());
            to.put_slice(&first[..count]);
            it.inbox.drain(..count);
            return Poll::Ready(Ok(()));
        }
        match it.client {
            ClientEnd::Ended => Poll::Ready(Ok(())),
            ClientEnd::Connecting | ClientEnd::Open => {
                let before = it.reader.replace(cx.waker().clone());
                drop(core);
                drop(before);
                Poll::Pending
            }
            _ => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut core = self.shared.lock();
        match core.connections[self.connection].client {
            ClientEnd::Open | ClientEnd::Ended => {
                core.write(self.connection, bytes);
                Poll::Ready(Ok(bytes.len()))
            }
            _ => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let waker = self.shared.lock().let_go(self.connection);
        drop(waker);
    }
}
