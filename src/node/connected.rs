//! A node's task while it has a connection: it moves bytes and commands, sets the alarm, and does what it is
//! told to.

use super::backlog::{Backlog, MAX_COMMANDS};
use super::connection::Link;
use super::inlet::Inlet;
use super::line::{Answered, Chore, Line};
use super::pipe::Pipe;
use super::shared::NodeShared;
use super::shield::shield;
use super::timer_clock::Timer;
use crate::protocol::{Reconnect, Time};
use crate::wire::{Invalidations, NodeFailure};
use futures::future::BoxFuture;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::task::yield_now;

/// A connection that is being made.
type Establishing = BoxFuture<'static, Result<Link, NodeFailure>>;

/// Maximum time to wait for unread bytes before a write. Usually the runtime notices them within microseconds; a busy machine
/// can delay its threads.
const READ_FIRST: Duration = Duration::from_millis(100);

/// There is a connection.
pub(super) struct Connected {
    pub(super) line: Line,
    pipe: Pipe,
    /// A second connection under way, beside one that is silent.
    second: Option<Establishing>,
    alarm: Timer,
    /// When it rings.
    alarm_due: Time,
    /// True if the last event was a push.
    had_push: bool,
}

enum Event {
    Answered(Answered),
    Disconnected(NodeFailure),
    Invalidations(Invalidations),
    Received,
    Alarm,
    Second(Box<Result<Link, NodeFailure>>),
}

impl Connected {
    /// Takes over a connection that was set up.
    pub(super) fn new(set_up: Link, backlog: &Backlog) -> Self {
        let Link { pipe, said, peer } = set_up;
        let (timings, now) = (backlog.node.timings, backlog.node.moment());
        let line = Line::new(said, peer, timings.answer, now);
        // What is owed is written before anybody waits for the alarm.
        let alarm_due = line.next_timeout(None);
        let alarm = backlog.node.timer.sleep_until(alarm_due);
        Self { line, pipe, second: None, alarm, alarm_due, had_push: false }
    }

    /// Writes commands and settles replies; ends with another connection that takes the place of this one,
    /// with `None` when all is done, or with why the connection broke.
    pub(super) async fn serve(
        &mut self,
        backlog: &mut Backlog,
        inlet: &mut Inlet,
        reconnect: &Reconnect,
    ) -> Result<Option<Link>, NodeFailure> {
        loop {
            let mut now = backlog.node.moment();
            if self.line.is_quiet(now) && !backlog.has_nothing_to_write() {
                if let Some(event) = self.read_first(&backlog.node).await {
                    self.handle(event, backlog, inlet, reconnect).await?;
                    continue;
                }
                now = backlog.node.moment();
            }
            self.line.write(backlog, now);
            // Once a client was closed and nothing is owed, no answer is of any use to anybody.
            let is_over =
                backlog.is_over() && (backlog.is_ended || self.line.has_nothing_unanswered());
            if is_over && backlog.has_nothing_to_write() {
                return Ok(None);
            }
            let event = self.event(backlog, inlet).await;
            if let Some(made) = self.handle(event, backlog, inlet, reconnect).await? {
                return Ok(Some(made));
            }
        }
    }

    /// Moves the commands that have arrived since to the inbox, so that they go out in the same pipeline.
    fn gather(&self, backlog: &mut Backlog, inlet: &mut Inlet) {
        if !self.line.has_room() {
            return;
        }
        while backlog.inbox.len() < MAX_COMMANDS
            && let Ok(command) = inlet.mailbox.try_recv()
        {
            backlog.inbox.push(command);
        }
    }

    /// Reads before a write. While this process was stopped, the server may have closed the connection, and a command
    /// written to it would be lost.
    async fn read_first(&mut self, node: &NodeShared) -> Option<Event> {
        let Self { pipe, line, had_push, .. } = self;
        let event = if pipe.has_unread() {
            let reading = poll_fn(|cx| poll_stream(pipe, line, !*had_push, cx));
            node.timer.timeout(READ_FIRST, reading).await
        } else {
            poll_fn(|cx| match poll_stream(pipe, line, !*had_push, cx) {
                Poll::Ready(event) => Poll::Ready(Some(event)),
                Poll::Pending => Poll::Ready(None),
            })
            .await
        };
        *had_push = matches!(event, Some(Event::Invalidations(_)));
        event
    }

    /// Handles an event; returns a connection that takes the place of this one, or why the connection broke.
    async fn handle(
        &mut self,
        event: Event,
        backlog: &mut Backlog,
        inlet: &mut Inlet,
        reconnect: &Reconnect,
    ) -> Result<Option<Link>, NodeFailure> {
        match event {
            Event::Answered(answered) => {
                let now = backlog.node.moment();
                if self.line.handle_answered(answered, backlog, now)? {
                    self.second = None;
                }
            }
            Event::Disconnected(why) => return Err(why),
            Event::Invalidations(pushed) => backlog.node.pass_on(pushed),
            // Callers that were answered together submit their next commands together, once they have run.
            Event::Received => {
                if self.line.expects_more_than(backlog.inbox.len()) {
                    yield_now().await;
                    self.gather(backlog, inlet);
                }
            }
            Event::Alarm => self.handle_alarm(backlog, reconnect).await?,
            Event::Second(made) => {
                self.second = None;
                // The first connection is silent, and may still deliver commands. It is ended before any write
                // over the second one (I8).
                return Ok(made.ok());
            }
        }
        Ok(None)
    }

    async fn handle_alarm(
        &mut self,
        backlog: &Backlog,
        reconnect: &Reconnect,
    ) -> Result<(), NodeFailure> {
        let now = backlog.node.moment();
        self.line.handle_timeout(self.alarm_due, now);
        while let Some(chore) = self.line.poll_chore(backlog, now)? {
            match chore {
                Chore::Yield => {
                    yield_now().await;
                    self.line.handle_yielded(now, backlog.node.moment());
                    // What has come meanwhile is read before this is looked at again.
                    return Ok(());
                }
                Chore::MakeSecond => {
                    if reconnect.may_make_second(self.line.silence(now), now.timer) {
                        self.second = Some(establish(backlog.node.clone()));
                    }
                }
            }
        }
        Ok(())
    }

    async fn event(&mut self, backlog: &mut Backlog, inlet: &mut Inlet) -> Event {
        let due = self.line.next_timeout(self.line.next_repeat(backlog));
        let has_room = self.line.has_room() && !self.line.awaits_replies(backlog);
        // While the node is stalled, commands are answered here without being written.
        let may_receive = !backlog.is_closed && (self.line.is_stalled() || has_room);
        let Self { line, pipe, second, alarm, alarm_due, had_push } = self;
        let Backlog { node, inbox, is_closed, is_ended, .. } = backlog;
        let Inlet { mailbox, bell } = inlet;
        // An alarm that rings early is cheaper than one that is set anew for each pipeline.
        if due < *alarm_due || node.timer.is_over(alarm) {
            node.timer.reset(alarm, due);
            *alarm_due = due;
        }
        let event = poll_fn(|cx| {
            // After a push it is the turn of everything else: a server that pushes without end holds up
            // nothing.
            if let Poll::Ready(event) = poll_stream(pipe, line, !*had_push, cx) {
                return Poll::Ready(event);
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
            if let Poll::Ready(event) = poll_invalidations(line) {
                return Poll::Ready(event);
            }
            let made = second.as_mut().map_or(Poll::Pending, |making| making.as_mut().poll(cx));
            made.map(|made| Event::Second(Box::new(made)))
        })
        .await;
        *had_push = matches!(event, Event::Invalidations(_));
        event
    }
}

/// The next thing that happens on the connection: the oldest pipeline is answered, keys have changed (if
/// `with_pushes`), or the connection has broken. That is told last.
fn poll_stream(
    pipe: &mut Pipe,
    line: &mut Line,
    with_pushes: bool,
    cx: &mut Context<'_>,
) -> Poll<Event> {
    let end = match pipe.poll_replies(line.conversation(), cx) {
        Poll::Ready(Ok(answered)) => return Poll::Ready(Event::Answered(answered)),
        Poll::Ready(Err(error)) => {
            let last_error = line.conversation().last_error();
            Poll::Ready(Event::Disconnected(NodeFailure::disconnected(
                &error,
                last_error.as_deref(),
            )))
        }
        Poll::Pending => Poll::Pending,
    };
    if !line.conversation().has_invalidations() {
        return end;
    }
    if with_pushes { poll_invalidations(line) } else { Poll::Pending }
}

/// What was pushed before, if that is still to be told.
fn poll_invalidations(line: &mut Line) -> Poll<Event> {
    let pushed = line.conversation().poll_invalidations();
    pushed.map_or(Poll::Pending, |pushed| Poll::Ready(Event::Invalidations(pushed)))
}

fn establish(node: Arc<NodeShared>) -> Establishing {
    Box::pin(async move {
        let panicked = |why: String| NodeFailure::Unreachable(why.into());
        shield(Link::establish(&node), panicked).await
    })
}
