//! The stream of a connection: it carries what is said, and knows nothing of it.

use crate::transport::Stream;
use crate::wire::Conversation;
use redis::{RedisError, Value};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How much is read at once.
const CHUNK: usize = 1 << 13;

/// So often it is read in a row before others have their turn: a server that pushes without end holds up
/// nothing.
const MAX_READS: usize = 16;

/// Moves bytes between a stream and the conversation over it. Dropping it closes the stream.
pub(super) struct Pipe {
    stream: Box<dyn Stream>,
    chunk: Box<[u8]>,
    /// Bytes that were read.
    pub(super) received: u64,
    /// True if the stream has taken bytes that it may not have passed on.
    is_unflushed: bool,
    /// Why nothing can be sent any more. What has come may still be read.
    unsendable: Option<io::Error>,
    /// Why nothing more will come.
    ended: Option<RedisError>,
}

impl Pipe {
    pub(super) fn new(stream: Box<dyn Stream>) -> Self {
        let chunk = vec![0; CHUNK].into();
        Self { stream, chunk, received: 0, is_unflushed: false, unsendable: None, ended: None }
    }

    /// True if there is something to read that the runtime may not have noticed yet.
    pub(super) fn has_unread(&self) -> bool {
        self.ended.is_none() && self.stream.has_unread()
    }

    /// Sends what is to be sent, and reads, until the oldest pipeline is answered; an error if it never will
    /// be, also the next time. What is pushed meanwhile is kept.
    pub(super) fn poll_replies<T>(
        &mut self,
        said: &mut Conversation<T>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(T, Vec<Value>), RedisError>> {
        self.send(said, cx);
        for _ in 0..MAX_READS {
            match said.poll_replies() {
                Ok(Some(answered)) => return Poll::Ready(Ok(answered)),
                Ok(None) => {}
                Err(malformed) => self.ended = Some(malformed.into()),
            }
            if let Some(error) = &self.ended {
                return Poll::Ready(Err(error.clone()));
            }
            ready!(self.poll_read(said, cx));
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Sends what the stream takes.
    fn send<T>(&mut self, said: &mut Conversation<T>, cx: &mut Context<'_>) {
        if self.unsendable.is_none()
            && let Poll::Ready(Err(error)) = self.poll_send(said, cx)
        {
            self.unsendable = Some(error);
        }
    }

    fn poll_send<T>(
        &mut self,
        said: &mut Conversation<T>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while !said.to_send().is_empty() {
            let sent = ready!(Pin::new(&mut self.stream).poll_write(cx, said.to_send()))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            said.handle_sent(sent);
            self.is_unflushed = true;
        }
        if self.is_unflushed {
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            self.is_unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Takes what has come; notes if that was all.
    fn poll_read<T>(&mut self, said: &mut Conversation<T>, cx: &mut Context<'_>) -> Poll<()> {
        let mut room = ReadBuf::new(&mut self.chunk);
        let error = match Pin::new(&mut self.stream).poll_read(cx, &mut room) {
            Poll::Ready(Ok(())) if room.filled().is_empty() => {
                io::Error::new(io::ErrorKind::UnexpectedEof, "closed by the server")
            }
            Poll::Ready(Ok(())) => {
                said.handle_bytes(room.filled());
                self.received += room.filled().len() as u64;
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
}
