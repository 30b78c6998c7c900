//! Detection of a URL scheme that does not fit the server: `redis://` to a TLS port, or `rediss://` to a plain one.
//!
//! Without it the reason is lost: a TLS port resets the connection, and Redis waits for the end of a line.

use super::address::TcpOptions;
use super::sockets::tcp;
use crate::sync::lock;
use futures::future::BoxFuture;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long a server may take to reply to a test.
pub(super) const LIMIT: Duration = Duration::from_millis(250);

/// Connections to one address that end without a byte, for each test: a proxy whose server is down must not get twice as
/// many connections.
const SELDOM: u32 = 8;

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

/// Servers that have ended a connection, or left a handshake unanswered, without a byte.
#[derive(Default)]
pub(super) struct Suspects(Mutex<HashMap<SocketAddr, Suspect>>);

#[derive(Default)]
struct Suspect {
    /// The connections without a byte.
    silent: u32,
    /// The last test's result: true if the scheme does not fit.
    is_other: bool,
}

impl Suspects {
    /// After a connection without TLS that ended without a byte: true if the server speaks TLS.
    async fn speaks_tls(self: Arc<Self>, address: SocketAddr) -> bool {
        self.test(address, CLIENT_HELLO, is_tls).await
    }

    /// After a TLS handshake without an answer: true if the server speaks Redis without TLS.
    #[cfg(feature = "tls-rustls")]
    pub(super) async fn speaks_plain(&self, address: SocketAddr) -> bool {
        self.test(address, b"PING\r\n", is_redis).await
    }

    async fn test(&self, address: SocketAddr, request: &[u8], is_other: fn(u8) -> bool) -> bool {
        if let Some(known) = self.known(address) {
            return known;
        }
        let is_other = first_byte(address, request).await.is_some_and(is_other);
        lock(&self.0).entry(address).or_default().is_other = is_other;
        is_other
    }

    /// Counts a connection without a byte; the last result, unless another test is due.
    fn known(&self, address: SocketAddr) -> Option<bool> {
        let mut suspects = lock(&self.0);
        let suspect = suspects.entry(address).or_default();
        let is_due = suspect.silent.is_multiple_of(SELDOM);
        suspect.silent = suspect.silent.wrapping_add(1);
        if is_due { None } else { Some(suspect.is_other) }
    }

    /// The server has sent a byte.
    pub(super) fn clear(&self, address: SocketAddr) {
        lock(&self.0).remove(&address);
    }
}

/// A connection without TLS. If it ends before the server has sent a byte, the server is tested for TLS.
pub(super) struct PlainStream {
    stream: TcpStream,
    address: SocketAddr,
    suspects: Arc<Suspects>,
    has_read: bool,
    /// The end of the connection, and the test that is running.
    test: Option<(io::Result<()>, BoxFuture<'static, bool>)>,
}

impl PlainStream {
    pub(super) fn new(stream: TcpStream, address: SocketAddr, suspects: Arc<Suspects>) -> Self {
        Self { stream, address, suspects, has_read: false, test: None }
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
                    self.suspects.clear(self.address);
                    return Poll::Ready(if is_tls(*first) { Err(speaks_tls()) } else { read });
                }
                (read, Box::pin(self.suspects.clone().speaks_tls(self.address)) as BoxFuture<'_, _>)
            }
        };
        match test.as_mut().poll(cx) {
            Poll::Ready(is_tls) => {
                self.has_read = true;
                if is_tls {
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

    #[test]
    fn one_of_eight_silent_connections_is_tested() {
        let (suspects, [server, other]) =
            (Suspects::default(), [1, 2].map(|port| ([127, 0, 0, 1], port).into()));
        let tested = |address| (0..17).filter(|_| suspects.known(address).is_none()).count();
        assert_eq!((tested(server), tested(other)), (3, 3));
        suspects.clear(server);
        assert_eq!((suspects.known(server), suspects.known(other)), (None, Some(false)));
    }

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
