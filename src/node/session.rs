//! A session with a server: a stream, and what is said over it, one exchange at a time.

use super::pipe::Pipe;
use super::set_up_attempt::SetUpAttempt;
use super::shared::NodeShared;
use crate::transport::Stream;
use crate::wire::{Conversation, Fingerprint, Greeted, Greeting, Requests, SetUpScope};
use redis::{RedisConnectionInfo, RedisError, Value};
use std::future::poll_fn;
use std::io;
use std::sync::Arc;

/// A connection whose server has let us in. Dropping it closes the stream. Each pipeline on it has a `T` with
/// it.
pub(super) struct Session<T> {
    pub(super) pipe: Pipe,
    pub(super) said: Conversation<T>,
    pub(super) attempt: Arc<SetUpAttempt>,
}

impl<T> Session<T> {
    /// Connects to `node`, and greets it by `login`, in RESP3 or RESP2. `what` goes with the pipelines for that, and is
    /// dropped. `attempt` receives whether the pipeline under way is answered in part.
    ///
    /// # Cancel safety
    /// Dropping the future closes the stream.
    pub(super) async fn open(
        node: &NodeShared,
        login: &RedisConnectionInfo,
        resp3: bool,
        attempt: &Arc<SetUpAttempt>,
        what: impl Fn() -> T,
    ) -> Result<Self, RedisError> {
        let is_full = attempt.scope == SetUpScope::Full;
        let fingerprint = is_full.then(|| node.login.fingerprint());
        let mut session = Self::new(node.connect().await?, attempt.clone());
        match session.begin(login, fingerprint, resp3, what).await {
            Ok(()) => Ok(session),
            Err(error) if error.is_connection_dropped() && session.said.last_error().is_none() => {
                Err(io::Error::new(io::ErrorKind::UnexpectedEof, node.closed_without_reply())
                    .into())
            }
            Err(error) => Err(error),
        }
    }

    fn new(stream: Box<dyn Stream>, attempt: Arc<SetUpAttempt>) -> Self {
        Self { pipe: Pipe::new(stream), said: Conversation::new(), attempt }
    }

    /// Greets the server.
    async fn begin(
        &mut self,
        login: &RedisConnectionInfo,
        fingerprint: Option<&Fingerprint>,
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
        let Self { pipe, said, attempt } = self;
        said.end_pipeline(what);
        let answered = poll_fn(|cx| {
            let polled = pipe.poll_replies(said, cx);
            attempt.note_partly_answered(said.is_partly_answered());
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
