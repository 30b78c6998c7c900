//! A socket whose bytes can be read before the runtime has noticed them.

use super::Stream;
use socket2::SockRef;
use std::io::{self, IoSlice, Read};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
#[cfg(feature = "tls-rustls")]
use tokio_rustls::client::TlsStream;

/// A tokio socket that can also be read directly. A direct read does not change tokio's readiness state, so tokio may
/// later wake the task for bytes that a direct read has already returned.
pub(super) struct Socket<S> {
    inner: S,
    is_direct: bool,
    /// Whether a direct read has returned bytes since the socket was registered with the runtime.
    has_read_directly: bool,
}

impl<S> Socket<S> {
    pub(super) fn new(inner: S) -> Self {
        Self { inner, is_direct: false, has_read_directly: false }
    }

    #[cfg(test)]
    pub(super) fn system(&self) -> SockRef<'_>
    where
        S: System,
    {
        self.inner.system()
    }
}

/// Access to the operating system's socket, which is nonblocking.
pub(super) trait System: Sized {
    fn system(&self) -> SockRef<'_>;

    /// Registers the socket with the current runtime, under another file descriptor.
    fn registered_again(&self) -> io::Result<Self>;
}

impl System for TcpStream {
    fn system(&self) -> SockRef<'_> {
        SockRef::from(self)
    }

    fn registered_again(&self) -> io::Result<Self> {
        Self::from_std(self.system().try_clone()?.into())
    }
}

#[cfg(unix)]
impl System for UnixStream {
    fn system(&self) -> SockRef<'_> {
        SockRef::from(self)
    }

    fn registered_again(&self) -> io::Result<Self> {
        Self::from_std(self.system().try_clone()?.into())
    }
}

impl<S: AsyncRead + System + Unpin> AsyncRead for Socket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // This read registers the waker, even if a direct read follows.
        let polled = Pin::new(&mut self.inner).poll_read(cx, buffer);
        if polled.is_ready() || !self.is_direct {
            return polled;
        }
        match (&*self.inner.system()).read(buffer.initialize_unfilled()) {
            Ok(count) => {
                buffer.advance(count);
                self.has_read_directly |= count > 0;
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                return Poll::Pending;
            }
            Err(error) => return Poll::Ready(Err(error)),
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Socket<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + AsyncWrite + System + Send + Unpin> Stream for Socket<S> {
    fn read_directly(&mut self, is_direct: bool) {
        self.is_direct = is_direct;
    }

    fn restore_notifications(&mut self) {
        // After a failure, for example because descriptors are exhausted, the call after the next direct read tries
        // again.
        if self.has_read_directly
            && let Ok(inner) = self.inner.registered_again()
        {
            (self.inner, self.has_read_directly) = (inner, false);
        }
    }
}

#[cfg(feature = "tls-rustls")]
impl Stream for TlsStream<Socket<TcpStream>> {
    fn read_directly(&mut self, is_direct: bool) {
        self.get_mut().0.read_directly(is_direct);
    }

    fn restore_notifications(&mut self) {
        self.get_mut().0.restore_notifications();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;
    use std::task::Waker;
    use tokio::io::AsyncReadExt;

    fn read_now(stream: &mut Socket<TcpStream>) -> Option<Vec<u8>> {
        let mut bytes = [0; 8];
        let mut buffer = ReadBuf::new(&mut bytes);
        let mut cx = Context::from_waker(Waker::noop());
        match Pin::new(stream).poll_read(&mut cx, &mut buffer) {
            Poll::Ready(read) => read.map(|()| Some(buffer.filled().to_vec())).expect("it is open"),
            Poll::Pending => None,
        }
    }

    #[tokio::test]
    async fn socket_is_read_directly_before_the_runtime_polls_it() {
        let server = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = server.local_addr().expect("it listens");
        let mut stream = Socket::new(TcpStream::connect(address).await.expect("it listens"));
        let (mut peer, _) = server.accept().expect("a connection");
        assert_eq!(read_now(&mut stream), None);
        peer.write_all(b"+OK").expect("it is open");
        assert_eq!(read_now(&mut stream), None, "the runtime has not polled its sockets");
        stream.read_directly(true);
        assert_eq!(read_now(&mut stream).as_deref(), Some(&b"+OK"[..]));
        assert_eq!(read_now(&mut stream), None);

        // After direct reads, the runtime must still notice new bytes.
        stream.read_directly(false);
        stream.restore_notifications();
        assert!(!stream.has_read_directly, "the socket is registered again");
        let writer = std::thread::spawn(move || peer.write_all(b"-ERR").map(|()| peer));
        let mut read = [0; 4];
        stream.read_exact(&mut read).await.expect("four bytes");
        assert_eq!(&read, b"-ERR");
        drop(writer.join().expect("no panic"));
        stream.read_directly(true);
        assert_eq!(read_now(&mut stream).as_deref(), Some(&b""[..]), "the end");
    }
}
