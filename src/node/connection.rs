//! One connection to a node, set up and probed.

use super::handshake::greet;
use super::queued_command::QueuedCommand;
use super::session::Session;
use super::set_up::set_up;
use super::shared::NodeShared;
use crate::protocol::{Broken, Reading, Time};
use crate::wire::{Abilities, NodeFailure, Pushed, Requests, ServerInfo, SetUp, ask_time};
use redis::{RedisError, Value};
use std::sync::Arc;
use std::task::{Context, Poll};

/// What a pipeline is about.
pub(super) struct Written {
    /// When it was written.
    at: Time,
    commands: Vec<QueuedCommand>,
    /// When, by our clock, if the node is asked for its time behind them.
    sealed: Option<Time>,
    /// The connections that it kills; then there is nothing else in it.
    kills: Vec<Stale>,
}

impl Written {
    /// Nothing that is heard of again.
    fn of_set_up() -> Self {
        let at = Time::from_nanos(0);
        Self { at, commands: Vec::new(), sealed: None, kills: Vec::new() }
    }
}

/// A connection of ours that broke.
type Stale = Broken<Arc<str>>;

/// A connection whose set-up was answered, and the pipelines under way on it.
pub(super) struct Link {
    session: Session<Written>,
    pub(super) client_id: Option<i64>,
    pub(super) info: ServerInfo,
    /// What its clock showed in the set-up, if it may be asked.
    pub(super) reading: Option<Reading>,
    pub(super) can: Abilities,
}

/// The answers to one pipeline, with what was asked.
pub(super) struct Answered {
    /// When it was written.
    pub(super) at: Time,
    pub(super) commands: Vec<QueuedCommand>,
    /// When it was written by our clock, if the last reply is that to a `TIME`.
    pub(super) sealed: Option<Time>,
    /// The connections that were to be killed by it.
    pub(super) kills: Vec<Stale>,
    pub(super) replies: Vec<Value>,
}

/// What happens on a connection.
pub(super) enum News {
    Answered(Answered),
    Pushed(Pushed),
    Closed(NodeFailure),
}

impl Link {
    /// Connects and sets up: `HELLO 3` (or RESP2 where the server refuses it), the scripts, the
    /// connection's id, and what the server says of itself.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection; nothing but the set-up was sent on it.
    pub(super) async fn establish(node: &NodeShared) -> Result<Self, NodeFailure> {
        let connecting = async {
            let mut link = greet(&node.handshake, |resp3| Self::open(node, resp3)).await?;
            link.kill_stale(node).await?;
            Ok(link)
        };
        let link = match node.timer.timeout(node.timings.connect, connecting).await {
            Some(Ok(link)) => link,
            Some(Err(error)) => return Err(NodeFailure::unreachable(&error)),
            None => return Err(NodeFailure::Unreachable("timeout while connecting".into())),
        };
        if link.info.is_replica {
            return Err(NodeFailure::Replica);
        }
        if let Some(run_id) = &link.info.run_id {
            node.siblings.enter(node.id, run_id)?;
        }
        Ok(link)
    }

    async fn open(node: &NodeShared, resp3: bool) -> Result<Self, RedisError> {
        let mut session = Session::open(node, resp3, Written::of_set_up).await?;
        let (SetUp { client_id, info, can, .. }, reading) =
            set_up(&mut session, Written::of_set_up(), resp3, &node.environment.clock).await?;
        Ok(Self { session, client_id, info, reading, can })
    }

    /// I8: sees to it that connections of ours that broke deliver nothing any more, before anything else
    /// is written here. They cannot if the server process they went to has ended, or closes them when told
    /// to.
    async fn kill_stale(&mut self, node: &NodeShared) -> Result<(), RedisError> {
        let broken = node.handover.broken();
        if broken.is_empty() {
            return Ok(());
        }
        self.ask_to_kill(&broken);
        let replies = self.session.exchange(Written::of_set_up()).await?;
        self.handle_killed(&broken, &replies, node);
        Ok(())
    }

    /// Adds what kills those of `broken` that the server knows; if it knows none, what it can only answer if it
    /// lives. That it is another run than theirs says that theirs has ended only then:
    /// 1. A connection to run 1 is set up, and its task is held up. 2. The server is restarted, twice. 3. A
    ///    connection to run 3 breaks with a `SET` unanswered. 4. The task goes on, and takes run 3 for an earlier one.
    fn ask_to_kill(&mut self, broken: &[Stale]) {
        let requests = self.session.requests();
        for id in broken.iter().filter_map(|one| one.to_kill(self.info.run_id.as_ref())) {
            requests.command("CLIENT", 3).args(["KILL", "ID", &id.to_string()]).end();
        }
        if requests.len() == 0 {
            ask_time(requests);
        }
    }

    /// The server was told to close the connections `broken`, as far as it knows them.
    pub(super) fn handle_killed(&self, broken: &[Stale], replies: &[Value], node: &NodeShared) {
        let run = self.info.run_id.as_ref();
        // Where it was told to close none, whatever it answers says that it lives: it may refuse to tell the time.
        let are_told = broken.iter().any(|one| one.to_kill(run).is_some());
        let is_refused = replies.iter().any(|reply| matches!(reply, Value::ServerError(_)));
        let are_killed = !(are_told && is_refused);
        node.handover.handle_killed(broken, run, are_killed, node.timer.now());
    }

    /// Writes what kills those of `broken` that the server knows, at `at`. What is written after it runs after
    /// it. They are [seen to](Self::handle_killed) when it is answered.
    pub(super) fn write_kills(&mut self, broken: &[Stale], at: Time) {
        self.ask_to_kill(broken);
        let written = Written { at, kills: broken.to_vec(), ..Written::of_set_up() };
        self.session.end_pipeline(written);
    }

    /// Where commands are added that are to be [written](Self::write).
    pub(super) fn requests(&mut self) -> &mut Requests {
        self.session.requests()
    }

    /// Writes one pipeline, at `at`: what was added for `commands`, with a `TIME` at its end if it is
    /// `sealed`, which tells the time that it is written at. Pipelines are written in the order of these calls
    /// (I8).
    pub(super) fn write(&mut self, commands: Vec<QueuedCommand>, sealed: Option<Time>, at: Time) {
        if sealed.is_some() {
            ask_time(self.session.requests());
        }
        self.session.end_pipeline(Written { at, commands, sealed, kills: Vec::new() });
    }

    /// How many pipelines are not answered yet.
    pub(super) fn under_way(&self) -> usize {
        self.session.under_way()
    }

    /// When the oldest pipeline that is not answered yet was written.
    pub(super) fn oldest(&self) -> Option<Time> {
        self.session.unanswered().next().map(|written| written.at)
    }

    /// The next thing that happens: the oldest pipeline is answered, keys have changed (if `with_pushes`), or
    /// the connection has broken. That is told last.
    pub(super) fn poll_news(&mut self, with_pushes: bool, cx: &mut Context<'_>) -> Poll<News> {
        let end = match self.session.poll_replies(cx) {
            Poll::Ready(Ok((written, replies))) => {
                let Written { at, commands, sealed, kills } = written;
                return Poll::Ready(News::Answered(Answered {
                    at,
                    commands,
                    sealed,
                    kills,
                    replies,
                }));
            }
            Poll::Ready(Err(error)) => Poll::Ready(News::Closed(NodeFailure::disconnected(&error))),
            Poll::Pending => Poll::Pending,
        };
        if !self.session.has_pushed() {
            return end;
        }
        if with_pushes { self.poll_pushed() } else { Poll::Pending }
    }

    /// What was pushed before the last [news](Self::poll_news), if that is still to be told.
    pub(super) fn poll_pushed(&mut self) -> Poll<News> {
        self.session.poll_pushed().map_or(Poll::Pending, |pushed| Poll::Ready(News::Pushed(pushed)))
    }

    /// The commands that were written and not answered, oldest first.
    pub(super) fn unanswered(&self) -> impl Iterator<Item = &QueuedCommand> {
        self.session.unanswered().flat_map(|written| &written.commands)
    }

    /// Takes the commands that were written and not answered, oldest first.
    pub(super) fn take_unanswered(&mut self) -> impl Iterator<Item = QueuedCommand> {
        self.session.take_unanswered().flat_map(|written| written.commands)
    }
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
