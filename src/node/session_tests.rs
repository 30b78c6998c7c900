//! Sessions over streams whose other end is in the test's hand.

use super::super::timer_clock::TimerClock;
use super::*;
use crate::protocol::Time;
use crate::wire::Omissions;
use futures::FutureExt;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex,
};
use tokio::time::timeout;

const PING: &str = "*1\r\n$4\r\nPING\r\n";
const PUSH: &[u8] = b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n";

fn fingerprint() -> &'static Fingerprint {
    static FINGERPRINT: LazyLock<Fingerprint> =
        LazyLock::new(|| Fingerprint::new(Vec::new(), 1, Duration::ZERO, b""));
    &FINGERPRINT
}

fn attempt() -> SetUpAttempt {
    SetUpAttempt::new(Omissions::default().plan(Time::default()), TimerClock::new())
}

/// A session, and the server's end of its stream, with a buffer of `room` bytes.
async fn session(room: usize) -> (Session<u8>, DuplexStream) {
    let (ours, mut theirs) = duplex(room);
    let login = RedisConnectionInfo::default();
    let welcome = async {
        let mut heard = String::new();
        while !heard.ends_with(concat!(env!("CARGO_PKG_VERSION"), "\r\n")) {
            heard += &hear(&mut theirs).await;
        }
        theirs.write_all(b"%0\r\n+OK\r\n+OK\r\n+OK\r\n").await.expect("it is open");
    };
    let mut session = Session::new(Box::new(ours));
    let attempt = attempt();
    let begin = session.begin(&login, fingerprint(), &attempt, || 0);
    let (greeted, ()) = tokio::join!(begin, welcome);
    greeted.expect("it was greeted");
    (session, theirs)
}

/// What the server hears next; nothing if the session has ended.
async fn hear(server: &mut DuplexStream) -> String {
    let mut bytes = [0; 4096];
    let heard = timeout(Duration::from_secs(20), server.read(&mut bytes)).await;
    let length = heard.expect("in time").expect("it can be read");
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

fn ping(session: &mut Session<u8>, what: u8) {
    session.requests().command("PING", 0).end();
    session.said.end_pipeline(what);
}

fn now(session: &mut Session<u8>) -> Option<Result<(u8, Vec<Value>), RedisError>> {
    let Session { pipe, said } = session;
    poll_fn(|cx| pipe.poll_replies(said, cx)).now_or_never()
}

#[tokio::test]
async fn a_session_that_is_dropped_closes_its_stream_whatever_is_under_way() {
    let (mut session, mut server) = session(4096).await;
    ping(&mut session, 1);
    assert!(now(&mut session).is_none());
    assert_eq!(hear(&mut server).await, PING);
    assert_eq!(
        (session.said.in_flight(), session.said.unanswered().collect::<Vec<_>>()),
        (1, vec![&1])
    );
    drop(session);
    assert_eq!(hear(&mut server).await, "");
}

#[tokio::test]
async fn what_the_stream_does_not_take_at_once_is_sent_later() {
    let (mut session, mut server) = session(5).await;
    (1..=3).for_each(|what| ping(&mut session, what));
    let serve = async {
        let mut heard = String::new();
        while heard != PING.repeat(3) {
            heard += &hear(&mut server).await;
        }
        server.write_all(&b"+OK\r\n".repeat(3)).await.expect("it is open");
    };
    let asks = async {
        for what in 1..=3 {
            let Session { pipe, said } = &mut session;
            let (answered, _) = poll_fn(|cx| pipe.poll_replies(said, cx)).await.expect("an answer");
            assert_eq!(answered, what);
        }
    };
    let all = async { tokio::join!(asks, serve) };
    timeout(Duration::from_secs(20), all).await.expect("in time");
}

#[tokio::test]
async fn what_has_come_is_read_before_the_end_is_told() {
    let (mut session, mut server) = session(4096).await;
    (1..=2).for_each(|what| ping(&mut session, what));
    assert!(now(&mut session).is_none());
    server.write_all(&[PUSH, b"+OK\r\n", PUSH].concat()).await.expect("it is open");
    drop(server);
    // This cannot be sent any more.
    ping(&mut session, 3);
    let (first, _) = now(&mut session).expect("it has come").expect("an answer");
    assert_eq!(first, 1);
    for _ in 0..2 {
        let error = now(&mut session).expect("it has come").expect_err("the end");
        assert!(error.is_connection_dropped(), "{error}");
    }
    assert!(session.said.has_invalidations());
    assert_eq!(session.said.poll_invalidations().map(|pushed| pushed.keys.len()), Some(2));
    assert_eq!(session.said.take_unanswered().collect::<Vec<_>>(), [2, 3]);
}

#[tokio::test]
async fn what_is_no_reply_ends_the_session() {
    for said in ["HTTP/1.1 400 Bad Request\r\n", "+OK\r\n+OK\r\n"] {
        let (mut session, mut server) = session(4096).await;
        ping(&mut session, 1);
        assert!(now(&mut session).is_none());
        server.write_all(said.as_bytes()).await.expect("it is open");
        let told = [now(&mut session), now(&mut session)].map(|told| told.expect("it has come"));
        let error = told.into_iter().find_map(Result::err).expect("no reply");
        assert_eq!(error.kind(), redis::ErrorKind::Parse);
        assert!(!error.is_connection_dropped(), "the server is there");
    }
}

/// A server that pushes without end, and takes all. So often it was read.
#[derive(Default)]
struct Endless(usize);

impl AsyncRead for Endless {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.0 += 1;
        assert!(self.0 < 1_000, "it is read without end");
        room.put_slice(PUSH);
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
fn a_server_that_pushes_without_end_is_not_read_without_end() {
    let login = RedisConnectionInfo::default();
    let mut session = Session::new(Box::new(Endless::default()));
    let attempt = attempt();
    let begin = session.begin(&login, fingerprint(), &attempt, || 0);
    assert!(begin.now_or_never().is_none(), "it is asked again, and others have their turn");
}
