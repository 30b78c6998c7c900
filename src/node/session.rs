//! A session with a server: a stream, and what is said over it, one exchange at a time.

use super::pipe::Pipe;
use super::shared::NodeShared;
use crate::transport::Stream;
use crate::wire::{Conversation, Fingerprint, Greeted, Greeting, Requests};
use redis::{RedisConnectionInfo, RedisError, Value};
use std::future::poll_fn;
use std::io;

/// A connection whose server has let us in. Dropping it closes the stream. Each pipeline on it has a `T` with
/// it.
pub(super) struct Session<T> {
    pub(super) pipe: Pipe,
    pub(super) said: Conversation<T>,
}

impl<T> Session<T> {
    /// Connects to `node`, and greets it by `login`, in RESP3 or RESP2. `what` goes with the pipelines for that, and is
    /// dropped.
    ///
    /// # Cancel safety
    /// Dropping the future closes the stream.
    pub(super) async fn open(
        node: &NodeShared,
        login: &RedisConnectionInfo,
        resp3: bool,
        what: impl Fn() -> T,
    ) -> Result<Self, RedisError> {
        let fingerprint = node.login.fingerprint();
        let mut session = Self::new(node.connect().await?);
        match session.begin(login, fingerprint, resp3, what).await {
            Ok(()) => Ok(session),
            Err(error) if error.is_connection_dropped() && session.said.last_error().is_none() => {
                Err(io::Error::new(io::ErrorKind::UnexpectedEof, node.closed_without_reply())
                    .into())
            }
            Err(error) => Err(error),
        }
    }

    fn new(stream: Box<dyn Stream>) -> Self {
        Self { pipe: Pipe::new(stream), said: Conversation::new() }
    }

    /// Greets the server.
    async fn begin(
        &mut self,
        login: &RedisConnectionInfo,
        fingerprint: &Fingerprint,
        resp3: bool,
        what: impl Fn() -> T,
    ) -> Result<(), RedisError> {
        for names_user in [true, false] {
            let requests = self.requests();
            let greeting = Greeting::ask(login, fingerprint, resp3, names_user, requests);
            let replies = self.exchange(what()).await?;
            if let Greeted::Welcome = greeting.read(&replies)? {
                break;
            }
        }
        Ok(())
    }

    /// Where the requests of the next pipeline are added.
    pub(super) fn requests(&mut self) -> &mut Requests {
        self.said.requests()
    }

    /// All requests that were added are a pipeline. Waits for the replies to it. An error names the error reply that
    /// the server sent before it closed the connection.
    ///
    /// # Cancel safety
    /// What was to be sent may have been sent. Use the session no more.
    pub(super) async fn exchange(&mut self, what: T) -> Result<Vec<Value>, RedisError> {
        let Self { pipe, said } = self;
        said.end_pipeline(what);
        match poll_fn(|cx| pipe.poll_replies(said, cx)).await {
            Ok((_, replies)) => Ok(replies),
            Err(error) => Err(match said.last_error() {
                Some(why) => {
                    let closed = format!("closed by the server: {why}");
                    io::Error::new(io::ErrorKind::UnexpectedEof, closed).into()
                }
                None => error,
            }),
        }
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
