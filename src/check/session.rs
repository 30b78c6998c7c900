//! The connection of a check, which sends one pipeline at a time and waits for its replies.

use crate::node::Node;
use crate::transport::Stream;
use crate::wire::{Conversation, Greeting, Requests};
use redis::{RedisConnectionInfo, RedisError, Value};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::yield_now;

const CHUNK: usize = 8 << 10;

/// The maximum number of reads before the session yields to other tasks. Without this limit, a server that sends an
/// endless stream of pushes would block the other tasks.
const MAX_READS: usize = 16;

/// A connection to a server that has accepted the login. Dropping the session closes the stream.
pub(super) struct Session {
    stream: Box<dyn Stream>,
    conversation: Conversation<()>,
}

impl Session {
    /// Connects to `node` and logs in.
    ///
    /// # Cancel safety
    /// Dropping the future closes the stream.
    pub(super) async fn open(node: &Node, login: &RedisConnectionInfo) -> Result<Self, RedisError> {
        let mut session = Self::new(node.connect().await?);
        match session.greet(login).await {
            Ok(()) => Ok(session),
            Err(error)
                if error.is_connection_dropped() && session.conversation.last_error().is_none() =>
            {
                let (hint, _) = node.hints();
                Err(closed(format!("closed by the server without a reply to HELLO 3{hint}")))
            }
            Err(error) => Err(error),
        }
    }

    fn new(stream: Box<dyn Stream>) -> Self {
        Self { stream, conversation: Conversation::new() }
    }

    async fn greet(&mut self, login: &RedisConnectionInfo) -> Result<(), RedisError> {
        let greeting = Greeting::ask(login, self.requests());
        greeting.read(&self.exchange().await?)
    }

    pub(super) fn requests(&mut self) -> &mut Requests {
        self.conversation.requests()
    }

    /// Sends the requests as one pipeline, and waits for the replies. If the server closes the connection after an
    /// error reply, the returned error contains this reply.
    ///
    /// # Cancel safety
    /// If the future is dropped, replies to sent requests may still be unread. The session must then be dropped, too.
    pub(super) async fn exchange(&mut self) -> Result<Vec<Value>, RedisError> {
        self.conversation.end_pipeline(());
        let replies = self.replies().await;
        replies.map_err(|error| match self.conversation.last_error() {
            Some(why) => closed(format!("closed by the server: {why}")),
            None => error,
        })
    }

    async fn replies(&mut self) -> Result<Vec<Value>, RedisError> {
        let mut bytes = vec![0; CHUNK];
        loop {
            for _ in 0..MAX_READS {
                if let Some(((), replies)) = self.conversation.poll_replies()? {
                    return Ok(replies);
                }
                let mut read = ReadBuf::new(&mut bytes);
                let reading = poll_fn(|cx| {
                    self.poll_send(cx);
                    Pin::new(&mut self.stream).poll_read(cx, &mut read)
                });
                reading.await?;
                if read.filled().is_empty() {
                    return Err(closed("closed by the server".to_owned()));
                }
                self.conversation.handle_bytes(read.filled());
            }
            yield_now().await;
        }
    }

    /// Sends as many bytes as the stream accepts. Ignores write errors, so that the caller reads the replies that
    /// arrived before the connection broke.
    fn poll_send(&mut self, cx: &mut Context<'_>) {
        let Self { stream, conversation } = self;
        while !conversation.to_send().is_empty()
            && let Poll::Ready(Ok(sent @ 1..)) =
                Pin::new(&mut *stream).poll_write(cx, conversation.to_send())
        {
            conversation.handle_sent(sent);
        }
        let _ = Pin::new(stream).poll_flush(cx);
    }
}

fn closed(why: String) -> RedisError {
    io::Error::new(io::ErrorKind::UnexpectedEof, why).into()
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
