//! Detection of a URL scheme that does not fit the server: `redis://` to a TLS port, or `rediss://` to a plain one.
//!
//! Without it the reason is lost: a TLS port resets the connection, and Redis waits for the end of a line.

use super::address::TcpOptions;
use super::sockets::tcp;
use futures::future::BoxFuture;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long a server may take to reply to a test.
pub(super) const LIMIT: Duration = Duration::from_millis(250);

/// A complete `ClientHello` of TLS 1.2 with one cipher suite: record header, handshake header, version, random, session
/// id, suites, compression. It has no line feed, so a server that speaks Redis waits for more.
const CLIENT_HELLO: &[u8] = b"\x16\x03\x01\x00\x2d\x01\x00\x00\x29\x03\x03\
    quorlock tests whether it is TLS\x00\x00\x02\xc0\x2f\x01\x00";

fn speaks_tls() -> io::Error {
    io::Error::other("the server speaks TLS: use rediss://")
}

#[cfg(feature = "tls-rustls")]
pub(super) fn speaks_no_tls() -> io::Error {
    io::Error::other("the server does not speak TLS: use redis://")
}

/// True for the first byte of an alert or a handshake message of TLS. No reply of Redis begins with one.
fn is_tls(first: u8) -> bool {
    matches!(first, 21 | 22)
}

/// True for the first byte of a status or an error of Redis.
#[cfg(feature = "tls-rustls")]
fn is_redis(first: u8) -> bool {
    matches!(first, b'+' | b'-')
}

/// The first byte of the server's reply to `request` on a new connection; `None` without one within [`LIMIT`].
async fn first_byte(address: SocketAddr, request: &[u8]) -> Option<u8> {
    let exchange = async {
        let stream = tcp(address, &TcpOptions::default()).await?;
        stream.writable().await?;
        // A new connection has room for it.
        stream.try_write(request)?;
        let mut first = [0];
        loop {
            stream.readable().await?;
            match stream.try_read(&mut first) {
                Ok(length) => return Ok::<_, io::Error>((length > 0).then_some(first[0])),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    };
    timeout(LIMIT, exchange).await.ok()?.ok()?
}

/// Tests whether a server speaks Redis without TLS.
#[cfg(feature = "tls-rustls")]
pub(super) async fn is_plain(address: SocketAddr) -> bool {
    first_byte(address, b"PING\r\n").await.is_some_and(is_redis)
}

/// A connection without TLS. If it ends before the server has sent a byte, the server is tested for TLS.
pub(super) struct PlainStream {
    stream: TcpStream,
    address: SocketAddr,
    has_read: bool,
    /// The end of the connection, and the first byte of the test's reply.
    test: Option<(io::Result<()>, BoxFuture<'static, Option<u8>>)>,
}

impl PlainStream {
    pub(super) fn new(stream: TcpStream, address: SocketAddr) -> Self {
        Self { stream, address, has_read: false, test: None }
    }

    /// Reads until the first byte has come, or the test has ended.
    fn poll_first(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let (mut end, mut test) = match self.test.take() {
            Some(running) => running,
            None => {
                let before = buf.filled().len();
                let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buf));
                if let Some(first) = buf.filled().get(before) {
                    self.has_read = true;
                    return Poll::Ready(if is_tls(*first) { Err(speaks_tls()) } else { read });
                }
                (read, Box::pin(first_byte(self.address, CLIENT_HELLO)) as BoxFuture<'static, _>)
            }
        };
        match test.as_mut().poll(cx) {
            Poll::Ready(first) => {
                self.has_read = true;
                if first.is_some_and(is_tls) {
                    end = Err(speaks_tls());
                }
                Poll::Ready(end)
            }
            Poll::Pending => {
                self.test = Some((end, test));
                Poll::Pending
            }
        }
    }
}

impl AsyncRead for PlainStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.has_read {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        self.poll_first(cx, buf)
    }
}

impl AsyncWrite for PlainStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lengths in its headers are those that it has, and no line ends in it.
    #[test]
    fn client_hello_is_one_complete_record() {
        let [22, 3, 1, 0, record, 1, 0, 0, message, ..] = *CLIENT_HELLO else {
            panic!("{CLIENT_HELLO:?}")
        };
        assert_eq!(usize::from(record), CLIENT_HELLO.len() - 5);
        assert_eq!(usize::from(message), CLIENT_HELLO.len() - 9);
        assert!(!CLIENT_HELLO.contains(&b'\n'));
    }
}
