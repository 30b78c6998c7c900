//! A session with a server: a stream, and what is said over it.

use super::shared::NodeShared;
use crate::transport::Stream;
use crate::wire::{Conversation, Greeted, Greeting, Pushed, Requests};
use redis::{RedisConnectionInfo, RedisError, Value};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How much is read at once.
const CHUNK: usize = 1 << 13;

/// So often it is read in a row before others have their turn: a server that pushes without end holds up
/// nothing.
const MAX_READS: usize = 16;

/// A connection whose server has let us in. Dropping it closes the stream. Each pipeline on it has a `T` with
/// it.
pub(super) struct Session<T> {
    stream: Box<dyn Stream>,
    said: Conversation<T>,
    chunk: Box<[u8]>,
    /// True if the stream has taken bytes that it may not have passed on.
    is_unflushed: bool,
    /// Why nothing can be sent any more. What has come may still be read.
    unsendable: Option<io::Error>,
    /// Why nothing more will come.
    ended: Option<RedisError>,
}

impl<T> Session<T> {
    /// Connects to `node`, and greets it in RESP3 or RESP2. `what` goes with the pipelines for that, and is
    /// dropped.
    ///
    /// # Cancel safety
    /// Dropping the future closes the stream.
    pub(super) async fn open(
        node: &NodeShared,
        resp3: bool,
        what: impl Fn() -> T,
    ) -> Result<Self, RedisError> {
        Self::begin(node.connect().await?, &node.login, resp3, what).await
    }

    /// Greets the server behind `stream`.
    async fn begin(
        stream: Box<dyn Stream>,
        login: &RedisConnectionInfo,
        resp3: bool,
        what: impl Fn() -> T,
    ) -> Result<Self, RedisError> {
        let mut session = Self {
            stream,
            said: Conversation::new(),
            chunk: vec![0; CHUNK].into(),
            is_unflushed: false,
            unsendable: None,
            ended: None,
        };
        for names_user in [true, false] {
            let greeting = Greeting::ask(login, resp3, names_user, session.requests());
            let replies = session.exchange(what()).await?;
            if let Greeted::Welcome = greeting.read(&replies)? {
                break;
            }
        }
        Ok(session)
    }

    /// Where the requests of the next pipeline are added.
    pub(super) fn requests(&mut self) -> &mut Requests {
        self.said.requests()
    }

    /// All requests that were added since the last one are a pipeline, to be sent behind it (I8). Its replies
    /// come with `what`.
    pub(super) fn end_pipeline(&mut self, what: T) {
        self.said.end_pipeline(what);
    }

    /// The same, and waits for the replies. For a time when nothing else is under way.
    ///
    /// # Cancel safety
    /// What was to be sent may have been sent. Use the session no more.
    pub(super) async fn exchange(&mut self, what: T) -> Result<Vec<Value>, RedisError> {
        self.end_pipeline(what);
        let (_, replies) = poll_fn(|cx| self.poll_replies(cx)).await?;
        Ok(replies)
    }

    /// Sends what is to be sent, and reads, until the oldest pipeline is answered; an error if it never will
    /// be, also the next time. What is pushed meanwhile is kept.
    pub(super) fn poll_replies(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(T, Vec<Value>), RedisError>> {
        self.send(cx);
        for _ in 0..MAX_READS {
            match self.said.poll_replies() {
                Ok(Some(answered)) => return Poll::Ready(Ok(answered)),
                Ok(None) => {}
                Err(malformed) => self.ended = Some(malformed.into()),
            }
            if let Some(error) = &self.ended {
                return Poll::Ready(Err(error.clone()));
            }
            ready!(self.poll_read(cx));
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Sends what the stream takes.
    fn send(&mut self, cx: &mut Context<'_>) {
        if self.unsendable.is_none()
            && let Poll::Ready(Err(error)) = self.poll_send(cx)
        {
            self.unsendable = Some(error);
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.said.to_send().is_empty() {
            let sent = ready!(Pin::new(&mut self.stream).poll_write(cx, self.said.to_send()))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.said.handle_sent(sent);
            self.is_unflushed = true;
        }
        if self.is_unflushed {
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            self.is_unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Takes what has come; notes if that was all.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut room = ReadBuf::new(&mut self.chunk);
        let error = match Pin::new(&mut self.stream).poll_read(cx, &mut room) {
            Poll::Ready(Ok(())) if room.filled().is_empty() => {
                io::Error::new(io::ErrorKind::UnexpectedEof, "closed by the server")
            }
            Poll::Ready(Ok(())) => {
                self.said.handle_bytes(room.filled());
                return Poll::Ready(());
            }
            Poll::Ready(Err(error)) => error,
            Poll::Pending => match self.unsendable.take() {
                Some(error) => error,
                None => return Poll::Pending,
            },
        };
        self.ended = Some(error.into());
        Poll::Ready(())
    }

    /// What the server has pushed among the replies that were polled, if it has.
    pub(super) fn poll_pushed(&mut self) -> Option<Pushed> {
        self.said.poll_pushed()
    }

    /// True if [something was pushed](Self::poll_pushed).
    pub(super) fn has_pushed(&self) -> bool {
        self.said.has_pushed()
    }

    /// How many pipelines are not answered.
    pub(super) fn under_way(&self) -> usize {
        self.said.under_way()
    }

    /// What belongs to the pipelines that are not answered, the oldest first.
    pub(super) fn unanswered(&self) -> impl Iterator<Item = &T> {
        self.said.unanswered()
    }

    /// Takes what belongs to the pipelines that are not answered, the oldest first.
    pub(super) fn take_unanswered(&mut self) -> impl Iterator<Item = T> {
        self.said.take_unanswered()
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
