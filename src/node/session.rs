//! A session with a server: a stream, and what is said over it, one exchange at a time.

use super::pipe::Pipe;
use super::set_up_attempt::SetUpAttempt;
use super::shared::NodeShared;
use crate::transport::Stream;
use crate::wire::{Conversation, Fingerprint, Greeting, Requests, SetUpParts, omitted_reply};
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
    /// Connects to `node` and logs in. `what` goes with the pipelines for that, and is dropped.
    ///
    /// # Cancel safety
    /// Dropping the future closes the stream.
    pub(super) async fn open(
        node: &NodeShared,
        login: &RedisConnectionInfo,
        attempt: &SetUpAttempt,
        what: impl Fn() -> T,
    ) -> Result<Self, RedisError> {
        let fingerprint = node.login.fingerprint();
        let mut session = Self::new(node.connect().await?);
        match session.begin(login, fingerprint, attempt, what).await {
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
        attempt: &SetUpAttempt,
        what: impl Fn() -> T,
    ) -> Result<(), RedisError> {
        let mut parts = SetUpParts::default();
        let greeting = Greeting::ask(login, fingerprint, &mut parts);
        greeting.read(&self.exchange_parts(&parts, attempt, what).await?)
    }

    /// Where the requests of the next pipeline are added.
    pub(super) fn requests(&mut self) -> &mut Requests {
        self.said.requests()
    }

    /// Sends the commands of `parts` as the plan of `attempt` says, and waits for the replies. An omitted command has an
    /// error reply.
    ///
    /// # Cancel safety
    /// Dropping the future can leave commands sent and replies unread. Close the session.
    pub(super) async fn exchange_parts(
        &mut self,
        parts: &SetUpParts,
        attempt: &SetUpAttempt,
        what: impl Fn() -> T,
    ) -> Result<Vec<Value>, RedisError> {
        let (omitted, one_by_one) = (attempt.plan.omitted, attempt.plan.is_one_by_one());
        let mut all = Vec::new();
        for parts in parts.exchanges(one_by_one) {
            let is_omitted = |optional| omitted.contains(optional);
            for part in parts.iter().filter(|part| !part.optional.is_some_and(is_omitted)) {
                self.requests().append(&part.requests);
            }
            attempt.begin(parts[0].optional.filter(|_| one_by_one));
            let mut replies = self.exchange_observed(what(), Some(attempt)).await?.into_iter();
            attempt.handle_answered();
            for part in parts {
                let count = part.requests.len();
                if part.optional.is_some_and(is_omitted) {
                    all.resize(all.len() + count, omitted_reply()?);
                } else {
                    all.extend(replies.by_ref().take(count));
                }
            }
        }
        Ok(all)
    }

    /// All requests that were added are a pipeline. Waits for the replies to it. An error names the error reply that
    /// the server sent before it closed the connection.
    ///
    /// # Cancel safety
    /// What was to be sent may have been sent. Use the session no more.
    pub(super) async fn exchange(&mut self, what: T) -> Result<Vec<Value>, RedisError> {
        self.exchange_observed(what, None).await
    }

    async fn exchange_observed(
        &mut self,
        what: T,
        attempt: Option<&SetUpAttempt>,
    ) -> Result<Vec<Value>, RedisError> {
        let Self { pipe, said } = self;
        said.end_pipeline(what);
        let answered = poll_fn(|cx| {
            let polled = pipe.poll_replies(said, cx);
            if let Some(attempt) = attempt {
                attempt.handle_polled(pipe, said);
            }
            polled
        });
        match answered.await {
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
