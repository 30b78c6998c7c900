//! A node's task while it has a connection: commands in, one pipeline at a time out, votes back.

use super::backlog::{Backlog, MAX_COMMANDS};
use super::connection::{Answered, Link, News};
use super::queued_command::QueuedCommand;
use super::timer_clock::Timer;
use crate::protocol::{Broken, Liveness, Time};
use crate::wire::{NodeFailure, Pushed};
use futures::future::BoxFuture;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

/// Pipelines under way at once: enough to keep the node busy while replies travel, few enough that
/// commands gather into larger pipelines under load.
const MAX_UNDER_WAY: usize = 4;

/// A connection that is being made.
pub(super) type Establishing = BoxFuture<'static, Result<Link, NodeFailure>>;

/// There is a connection.
pub(super) struct Connected {
    pub(super) link: Link,
    pub(super) liveness: Liveness,
    /// A second connection under way, beside one that is silent.
    pub(super) second: Option<Establishing>,
    pub(super) alarm: Timer,
    /// When it rings.
    pub(super) alarm_due: Time,
    /// Connections of other tasks that broke, and that the server was told to close: it has not answered.
    killing: Vec<Broken<Arc<str>>>,
    /// True if the last event was a push.
    had_push: bool,
}

enum Event {
    Answered(Answered),
    Disconnected(NodeFailure),
    Pushed(Pushed),
    Received,
    Alarm,
    Second(Box<Result<Link, NodeFailure>>),
}

impl From<News> for Event {
    fn from(news: News) -> Self {
        match news {
            News::Answered(answered) => Self::Answered(answered),
            News::Pushed(pushed) => Self::Pushed(pushed),
            News::Closed(why) => Self::Disconnected(why),
        }
    }
}

impl Connected {
    /// Takes over a connection that was set up by `now`.
    pub(super) fn new(link: Link, backlog: &Backlog, now: Time) -> Self {
        let liveness = Liveness::new(backlog.node.timings.answer, now);
        let alarm_due = liveness.next_timeout();
        let alarm = backlog.timer.sleep_until(alarm_due);
        let killing = Vec::new();
        Self { link, liveness, second: None, alarm, alarm_due, killing, had_push: false }
    }

    /// Writes commands and settles replies; ends with another connection that takes the place of this one,
    /// with `None` when all is done, or with why the connection broke.
    pub(super) async fn serve(
        &mut self,
        backlog: &mut Backlog,
    ) -> Result<Option<Link>, NodeFailure> {
        loop {
            self.write(backlog);
            // Once a client was closed and nothing is owed, no answer is of any use to anybody.
            let is_over = backlog.is_over() && (backlog.is_ended || self.has_nothing_unanswered());
            if is_over && backlog.has_nothing_to_write() {
                return Ok(None);
            }
            match self.event(backlog).await {
                Event::Answered(answered) => self.handle_reply(answered, backlog)?,
                Event::Disconnected(why) => return Err(why),
                Event::Pushed(pushed) => backlog.node.pass_on(pushed),
                Event::Received => {}
                Event::Alarm => self.handle_alarm(backlog).await?,
                Event::Second(made) => {
                    self.second = None;
                    // Its set-up was answered while the first one is silent. What the first may still
                    // deliver is ended before anything is written (I8), as with any that breaks.
                    if let Ok(link) = *made {
                        return Ok(Some(link));
                    }
                }
            }
        }
    }

    fn handle_reply(
        &mut self,
        answered: Answered,
        backlog: &mut Backlog,
    ) -> Result<(), NodeFailure> {
        let now = backlog.timer.now();
        if !answered.kills.is_empty() {
            self.link.handle_killed(&answered.kills, &answered.replies, &backlog.node);
            self.killing.retain(|one| !answered.kills.contains(one));
        }
        backlog.settle(answered, now, &mut self.link.can)?;
        if self.liveness.handle_reply(self.link.oldest(), now) {
            self.second = None;
            backlog.handle_recovery(now);
        }
        Ok(())
    }

    /// True if no command waits for its answer: who hangs is not waited for to tell what time it is.
    fn has_nothing_unanswered(&self) -> bool {
        self.link.unanswered().next().is_none()
    }

    /// True if another pipeline may be written.
    fn has_room(&self) -> bool {
        !self.liveness.is_stalled() && self.link.under_way() < MAX_UNDER_WAY
    }

    /// When something has to be done though nothing happens.
    fn due(&self, backlog: &Backlog) -> Time {
        let timeout = self.liveness.next_timeout();
        // While a reply is overdue, or no pipeline has room, nothing owed can be written.
        let repeat = backlog.next_repeat().filter(|_| self.has_room());
        repeat.map_or(timeout, |repeat| repeat.min(timeout))
    }

    async fn event(&mut self, backlog: &mut Backlog) -> Event {
        let due = self.due(backlog);
        let has_room = self.has_room();
        // While the node is stalled, commands are answered here without being written.
        let may_receive = !backlog.is_closed && (self.liveness.is_stalled() || has_room);
        let Self { link, second, alarm, alarm_due, had_push, .. } = self;
        // An alarm that rings early is cheaper than one that is set anew for each pipeline.
        if due < *alarm_due || backlog.timer.is_over(alarm) {
            backlog.timer.reset(alarm, due);
            *alarm_due = due;
        }
        let Backlog { node, mailbox, inbox, bell, is_closed, is_ended, .. } = backlog;
        let event = poll_fn(|cx| {
            // After a push it is the turn of everything else: a server that pushes without end holds up
            // nothing.
            if let Poll::Ready(news) = link.poll_news(!*had_push, cx) {
                return Poll::Ready(news.into());
            }
            if may_receive
                && let Poll::Ready(received) = mailbox.poll_recv_many(cx, inbox, MAX_COMMANDS)
            {
                *is_closed = received == 0;
                return Poll::Ready(Event::Received);
            }
            if Pin::new(&mut *alarm).poll(cx).is_ready() {
                return Poll::Ready(Event::Alarm);
            }
            // Where nothing can be written, nothing is taken; that the client was closed is heard all the same.
            let told = if has_room {
                node.handover.poll_left(bell, *is_ended, cx)
            } else {
                node.handover.poll_end(bell, *is_ended, cx)
            };
            if told.is_ready() {
                return Poll::Ready(Event::Received);
            }
            if let Poll::Ready(news) = link.poll_pushed() {
                return Poll::Ready(news.into());
            }
            let made = second.as_mut().map_or(Poll::Pending, |making| making.as_mut().poll(cx));
            made.map(|made| Event::Second(Box::new(made)))
        })
        .await;
        *had_push = matches!(event, Event::Pushed(_));
        event
    }

    /// Writes one pipeline of what is owed and what has come in; answers what cannot be written.
    fn write(&mut self, backlog: &mut Backlog) {
        if self.liveness.is_stalled() {
            let silence = self.liveness.silence(backlog.timer.now());
            backlog.refuse(&NodeFailure::Stalled(silence));
        }
        if !self.has_room() {
            return;
        }
        let left = self.take_left(backlog);
        let mut commands = backlog.take_owed();
        if commands.is_empty() && backlog.inbox.is_empty() && left.is_empty() {
            return;
        }
        commands.extend(left);
        commands.append(&mut backlog.inbox);
        let now = backlog.node.now();
        let mut written = Vec::with_capacity(commands.len());
        let (id, can) = (backlog.node.id, self.link.can);
        for mut command in commands {
            if command.is_void(id, now) || !command.write(id, now, can, self.link.requests()) {
                command.answer_void(id);
            } else {
                written.push(command);
            }
        }
        if !written.is_empty() {
            // Replies are told apart by their order alone: the seal shows that it is kept.
            let is_sealed = written.iter().any(QueuedCommand::is_to_grant);
            let sealed = is_sealed.then_some(now);
            let at = backlog.timer.now();
            self.link.write(written, sealed, at);
            self.liveness.handle_written(at);
        }
    }

    /// Takes what other tasks have left. What connections of theirs that broke may still deliver must not
    /// come after it (I8): the server is told to close them first, in the order of this connection.
    ///
    /// The answer is not waited for here, but read in its turn, as any:
    /// 1. A connection of another task breaks, and this node hangs.
    /// 2. Its task waits for the answer to the `CLIENT KILL`, reads nothing meanwhile, and its alarm is late.
    /// 3. A late alarm says that this process was held up, and the silence of the node is forgiven: for some
    ///    node timeouts more, it is sent what it does not answer.
    fn take_left(&mut self, backlog: &Backlog) -> Vec<QueuedCommand> {
        let handover = &backlog.node.handover;
        loop {
            if let Some(left) = handover.take(MAX_COMMANDS, &self.killing) {
                return left;
            }
            self.kill_stale(handover.broken(), backlog);
        }
    }

    /// Tells the server to close those of `broken` that it was not told to close yet.
    fn kill_stale(&mut self, mut broken: Vec<Broken<Arc<str>>>, backlog: &Backlog) {
        broken.retain(|one| !self.killing.contains(one));
        let at = backlog.timer.now();
        self.link.write_kills(&broken, at);
        self.killing.extend(broken);
        self.liveness.handle_written(at);
    }
}
