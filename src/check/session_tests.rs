use super::*;
use futures::FutureExt;
use std::pin::pin;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::timeout;

const PING: &str = "*1\r\n$4\r\nPING\r\n";
const PUSH: &[u8] = b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n";

/// Returns a session and the server's end of its stream. The stream buffers `room` bytes.
async fn session(room: usize) -> (Session, DuplexStream) {
    let (stream, mut server) = duplex(room);
    let login = RedisConnectionInfo::default();
    let replies = async {
        let mut received = String::new();
        while !received.ends_with(concat!(env!("CARGO_PKG_VERSION"), "\r\n")) {
            received += &receive(&mut server).await;
        }
        server.write_all(b"%0\r\n+OK\r\n+OK\r\n+OK\r\n").await.expect("an open stream");
    };
    let mut session = Session::new(Box::new(stream));
    let greeting = session.greet(&login);
    let (greeted, ()) = tokio::join!(greeting, replies);
    greeted.expect("a greeting");
    (session, server)
}

/// Returns the next bytes that the server receives, or an empty string at the end of the stream.
async fn receive(server: &mut DuplexStream) -> String {
    let mut bytes = [0; 4096];
    let received = timeout(Duration::from_secs(20), server.read(&mut bytes)).await;
    let length = received.expect("in time").expect("readable");
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

fn ping(session: &mut Session) {
    session.requests().command("PING", 0).end();
}

#[tokio::test]
async fn dropped_session_closes_its_stream() {
    let (mut session, mut server) = session(4096).await;
    ping(&mut session);
    assert!(session.exchange().now_or_never().is_none());
    assert_eq!(receive(&mut server).await, PING);
    drop(session);
    assert_eq!(receive(&mut server).await, "");
}

#[tokio::test]
async fn requests_that_exceed_the_send_buffer_are_sent_later() {
    let (mut session, mut server) = session(5).await;
    (0..3).for_each(|_| ping(&mut session));
    let serve = async {
        let mut received = String::new();
        while received != PING.repeat(3) {
            received += &receive(&mut server).await;
        }
        server.write_all(&b"+OK\r\n".repeat(3)).await.expect("an open stream");
    };
    let both = async { tokio::join!(session.exchange(), serve) };
    let (replies, ()) = timeout(Duration::from_secs(20), both).await.expect("in time");
    assert_eq!(replies.expect("replies").len(), 3);
}

#[tokio::test]
async fn replies_are_read_before_the_end_of_the_stream() {
    let (mut session, mut server) = session(4096).await;
    ping(&mut session);
    {
        let mut exchange = pin!(session.exchange());
        assert!(exchange.as_mut().now_or_never().is_none());
        server.write_all(&[PUSH, b"+OK\r\n", PUSH].concat()).await.expect("an open stream");
        drop(server);
        let replies = exchange.now_or_never().expect("received");
        assert_eq!(replies.expect("a reply").len(), 1);
    }
    ping(&mut session);
    let error = session.exchange().now_or_never().expect("received").expect_err("the end");
    assert!(error.is_connection_dropped(), "{error}");
}

#[tokio::test]
async fn malformed_bytes_end_the_exchange() {
    let (mut session, mut server) = session(4096).await;
    ping(&mut session);
    server.write_all(b"HTTP/1.1 400 Bad Request\r\n").await.expect("an open stream");
    let error = session.exchange().now_or_never().expect("received").expect_err("no reply");
    assert_eq!(error.kind(), redis::ErrorKind::Parse);
    assert!(!error.is_connection_dropped(), "the server is there");
}

#[derive(Default)]
struct Endless(usize);

impl AsyncRead for Endless {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.0 += 1;
        assert!(self.0 < 1_000, "reads without end");
        buffer.put_slice(PUSH);
        Poll::Ready(Ok(()))
    }
}

impl Stream for Endless {}

impl AsyncWrite for Endless {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[test]
fn endless_pushes_do_not_keep_a_thread() {
    let login = RedisConnectionInfo::default();
    let mut session = Session::new(Box::new(Endless::default()));
    let greeting = session.greet(&login);
    assert!(greeting.now_or_never().is_none());
}
