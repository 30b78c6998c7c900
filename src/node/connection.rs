//! One connection to a node, set up and probed.

use super::handshake::greet;
use super::pushes::{PushQueue, Pushed};
use super::queued_command::QueuedCommand;
use super::session::Session;
use super::set_up::set_up;
use super::shared::NodeShared;
use super::timer_clock::TimerClock;
use crate::protocol::{Broken, Reading, Time};
use crate::wire::{NodeFailure, ServerInfo, SetUp, ask_time};
use futures::future::BoxFuture;
use redis::{RedisError, Value};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::task::coop::unconstrained;

type Replies = BoxFuture<'static, Result<Vec<Value>, RedisError>>;

/// A pipeline that was written and not yet answered.
struct Written {
    replies: Replies,
    commands: Vec<QueuedCommand>,
    /// When, by our clock, if the node is asked for its time behind them.
    sealed: Option<Time>,
    /// The connections that it kills; then there is nothing else in it.
    kills: Vec<Stale>,
    at: Time,
}

/// A connection of ours that broke.
type Stale = Broken<Arc<str>>;

/// A connection whose set-up was answered, and the pipelines under way on it.
pub(super) struct Link {
    session: Session,
    pub(super) pushes: Arc<PushQueue>,
    pub(super) client_id: Option<i64>,
    pub(super) info: ServerInfo,
    /// What its clock showed in the set-up, if it may be asked.
    pub(super) reading: Option<Reading>,
    /// True if the server tells when keys that we asked about change.
    pub(super) tracks: bool,
    under_way: VecDeque<Written>,
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
    pub(super) replies: Result<Vec<Value>, RedisError>,
}

/// What happens on a connection.
pub(super) enum News {
    Answered(Answered),
    Pushed(Pushed),
    Closed,
}

impl News {
    pub(super) fn of(pushed: Option<Pushed>) -> Self {
        pushed.map_or(Self::Closed, Self::Pushed)
    }
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
        let pushes = Arc::<PushQueue>::default();
        let mut session = Session::open(node, resp3, resp3.then(|| pushes.clone())).await?;
        let (SetUp { client_id, info, tracks, .. }, reading) =
            set_up(&mut session.connection, resp3, &node.environment.clock).await?;
        let under_way = VecDeque::new();
        Ok(Self { session, pushes, client_id, info, reading, tracks, under_way })
    }

    /// I8: sees to it that connections of ours that broke deliver nothing any more, before anything else
    /// is written here. They cannot if the server process they went to has ended, or closes them when told
    /// to.
    async fn kill_stale(&mut self, node: &NodeShared) -> Result<(), RedisError> {
        let broken = node.handover.broken();
        let pipeline = self.killing(&broken);
        let replies = match pipeline.len() {
            0 => Vec::new(),
            count => self.session.connection.send_packed_commands(&pipeline, 0, count).await?,
        };
        self.handle_killed(&broken, &replies, node);
        Ok(())
    }

    /// What kills those of `broken` that the server knows.
    pub(super) fn killing(&self, broken: &[Stale]) -> redis::Pipeline {
        let mut pipeline = redis::Pipeline::new();
        for id in broken.iter().filter_map(|one| one.to_kill(self.info.run_id.as_ref())) {
            pipeline.cmd("CLIENT").arg("KILL").arg("ID").arg(id);
        }
        pipeline
    }

    /// The server was told to close the connections `broken`, as far as it knows them.
    pub(super) fn handle_killed(&self, broken: &[Stale], replies: &[Value], node: &NodeShared) {
        let are_killed = replies.iter().all(|reply| matches!(reply, Value::Int(_)));
        let run = self.info.run_id.as_ref();
        node.handover.handle_killed(broken, run, are_killed, node.timer.now());
    }

    /// Writes what kills `broken`; returns when that was. What is written after it runs after it.
    pub(super) async fn write_kills(
        &mut self,
        pipeline: redis::Pipeline,
        broken: Vec<Stale>,
        timer: &TimerClock,
    ) -> Time {
        self.write_pipeline(pipeline, (Vec::new(), None, broken), timer).await
    }

    /// Writes one pipeline for `commands`; with a `TIME` at its end if it is `sealed`, which tells the time
    /// that it is written at. Pipelines are written in the order of these calls (I8). Returns when that was.
    pub(super) async fn write(
        &mut self,
        mut pipeline: redis::Pipeline,
        commands: Vec<QueuedCommand>,
        sealed: Option<Time>,
        timer: &TimerClock,
    ) -> Time {
        if sealed.is_some() {
            ask_time(&mut pipeline);
        }
        self.write_pipeline(pipeline, (commands, sealed, Vec::new()), timer).await
    }

    async fn write_pipeline(
        &mut self,
        pipeline: redis::Pipeline,
        (commands, sealed, kills): (Vec<QueuedCommand>, Option<Time>, Vec<Stale>),
        timer: &TimerClock,
    ) -> Time {
        let mut connection = self.session.connection.clone();
        let mut replies: Replies = Box::pin(async move {
            let count = pipeline.len();
            connection.send_packed_commands(&pipeline, 0, count).await
        });
        // A request enters the connection's queue when it is first polled, and tokio's cooperative
        // budget may refuse that poll: without this, pipelines overtake each other.
        let first = poll_fn(|cx| Poll::Ready(replies.as_mut().poll(cx)));
        let replies = match unconstrained(first).await {
            Poll::Ready(done) => Box::pin(std::future::ready(done)),
            Poll::Pending => replies,
        };
        let at = timer.now();
        self.under_way.push_back(Written { replies, commands, sealed, kills, at });
        at
    }

    /// The pipelines that are not answered yet.
    pub(super) fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// When the oldest pipeline that is not answered yet was written.
    pub(super) fn oldest(&self) -> Option<Time> {
        self.under_way.front().map(|written| written.at)
    }

    /// The next thing that happens: the oldest pipeline is answered, keys have changed (if `with_pushes`),
    /// or the server has closed the connection (which RESP3 notices at once, RESP2 with the next
    /// pipeline).
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub(super) async fn news(&mut self, with_pushes: bool) -> News {
        poll_fn(|cx| self.poll_news(with_pushes, cx)).await
    }

    fn poll_news(&mut self, with_pushes: bool, cx: &mut Context<'_>) -> Poll<News> {
        if let Some(oldest) = self.under_way.front_mut()
            && let Poll::Ready(replies) = oldest.replies.as_mut().poll(cx)
        {
            let written = self.under_way.pop_front().expect("the front was just polled");
            let Written { commands, at, sealed, kills, .. } = written;
            return Poll::Ready(News::Answered(Answered { at, commands, sealed, kills, replies }));
        }
        if with_pushes { self.pushes.poll(cx).map(News::of) } else { Poll::Pending }
    }

    /// The commands that were written and not answered, oldest first.
    pub(super) fn unanswered(&self) -> impl Iterator<Item = &QueuedCommand> {
        self.under_way.iter().flat_map(|written| &written.commands)
    }

    /// Takes the commands that were written and not answered, oldest first.
    pub(super) fn take_unanswered(&mut self) -> impl Iterator<Item = QueuedCommand> {
        self.under_way.drain(..).flat_map(|written| written.commands)
    }
}
