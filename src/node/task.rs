//! A node's task: orders in, one pipeline at a time out, votes back.

use super::connection::{Answered, Link, News};
use super::handover::{Bell, Broken};
use super::links::{Links, Phase};
use super::pending::Pending;
use super::pushes::Pushed;
use super::queued_command::QueuedCommand;
use super::reconnect::Backoff;
use super::shared::{NodeShared, NodeState};
use super::shield::shield;
use super::silence::Spare;
use super::{STALE_WINDOW, mailbox};
use crate::time::clock;
use crate::wire::NodeFailure;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

/// Pipelines under way at once: enough to keep the node busy while replies travel, few enough that
/// orders gather into larger pipelines under load.
pub(super) const MAX_UNDER_WAY: usize = 4;

/// Orders in one pipeline.
pub(super) const MAX_ORDERS: usize = 512;

/// Nothing to wait for: look again then.
const LONG: Duration = Duration::from_hours(1);

/// The task's state. Whatever happens to the task, also if its runtime drops it, `Drop` hands what
/// is still owed to others.
#[allow(clippy::struct_excessive_bools)] // Each is a fact of its own.
pub(super) struct NodeTask {
    pub(super) node: Arc<NodeShared>,
    /// How the nodes stand that this runtime's tasks serve.
    pub(super) links: Arc<Links>,
    pub(super) mailbox: UnboundedReceiver<QueuedCommand>,
    /// True once all handles are gone: finish what is owed, then end.
    pub(super) is_closed: bool,
    /// True once the client was closed, and nothing was owed by then.
    pub(super) is_ended: bool,
    /// Taken from the mailbox and not yet written.
    pub(super) inbox: Vec<QueuedCommand>,
    pub(super) owed: Pending,
    pub(super) link: Option<Link>,
    /// Why there is no connection; `None` before the first and while a lost one is tried anew.
    pub(super) down: Option<NodeFailure>,
    pub(super) backoff: Backoff,
    /// Rings when another task has left something, and at the end.
    pub(super) bell: Arc<Bell>,
    pub(super) is_stalled: bool,
    /// What is done about a connection that is silent.
    pub(super) spare: Spare,
    pub(super) last_traffic: Instant,
    /// Since when this task has been running without a pause: what a paused process did not read
    /// is not the node's silence.
    pub(super) awake_since: Instant,
    /// True if a reply is overdue, and others were let run who may have it.
    pub(super) is_looking_again: bool,
    /// True if the last event was a push.
    had_push: bool,
    pub(super) alarm: Pin<Box<Sleep>>,
}

enum Event {
    Answered(Answered),
    Disconnected,
    Pushed(Pushed),
    Received,
    Alarm,
    Connected(Result<Link, NodeFailure>),
}

impl From<News> for Event {
    fn from(news: News) -> Self {
        match news {
            News::Answered(answered) => Self::Answered(answered),
            News::Pushed(pushed) => Self::Pushed(pushed),
            News::Closed => Self::Disconnected,
        }
    }
}

impl NodeTask {
    pub(super) fn new(
        node: Arc<NodeShared>,
        links: Arc<Links>,
        mailbox: UnboundedReceiver<QueuedCommand>,
    ) -> Self {
        // Called outside of the runtime too: the alarm is made when the task first runs.
        let now = Instant::now();
        Self {
            owed: Pending::new(node.id),
            bell: node.handover.enter(),
            node,
            links,
            mailbox,
            is_closed: false,
            is_ended: false,
            inbox: Vec::new(),
            link: None,
            down: None,
            backoff: Backoff::default(),
            is_stalled: false,
            spare: Spare::NotDue,
            last_traffic: now,
            awake_since: now,
            is_looking_again: false,
            had_push: false,
            alarm: Box::pin(sleep_until(now + LONG)),
        }
    }

    /// Tells all who ask where the connection is.
    pub(super) fn note_state(&self, state: NodeState) {
        let phase = match state {
            NodeState::Connecting => Phase::Connecting,
            NodeState::Up => Phase::Up,
            NodeState::Stalled => Phase::Stalled,
            NodeState::Down(_) => Phase::Down,
        };
        self.node.set_state(state);
        self.links.note(self.node.id, phase);
    }

    /// Serves the node until all handles are gone and nothing is owed any more.
    pub(super) async fn run(mut self) {
        let panicked = |why: String| NodeFailure::Disconnected(why.into());
        while let Err(failure) = shield(self.session(), panicked).await {
            self.handle_break(&failure);
        }
    }

    /// Serves the node over one connection; ends when all is done, or with why there is none any more.
    async fn session(&mut self) -> Result<(), NodeFailure> {
        if self.connect().await { self.serve().await } else { Ok(()) }
    }

    /// Writes orders and settles replies; ends when all is done, or with why the connection broke.
    async fn serve(&mut self) -> Result<(), NodeFailure> {
        self.begin();
        loop {
            self.write().await;
            let under_way = self.link().under_way();
            self.is_ended = self.node.handover.is_ended();
            let is_over = self.is_closed || self.is_ended;
            if is_over && under_way == 0 && self.has_nothing_to_write() {
                return Ok(());
            }
            match self.event().await {
                Event::Answered(answered) => self.settle(answered)?,
                Event::Disconnected => {
                    return Err(NodeFailure::Disconnected("closed by the server".into()));
                }
                Event::Pushed(pushed) => self.node.pass_on(pushed),
                Event::Received => {}
                Event::Alarm => self.handle_alarm().await?,
                Event::Connected(made) => self.handle_spare(made),
            }
        }
    }

    /// A connection was made.
    pub(super) fn begin(&mut self) {
        self.set_stalled(false);
        self.last_traffic = Instant::now();
        self.awake_since = self.last_traffic;
    }

    /// True if nothing waits to be written, here or for any task.
    fn has_nothing_to_write(&self) -> bool {
        self.inbox.is_empty() && self.owed.is_empty() && !self.node.handover.has_left()
    }

    pub(super) fn link(&mut self) -> &mut Link {
        self.link.as_mut().expect("serving needs a connection")
    }

    async fn event(&mut self) -> Event {
        let due = self.due();
        let link = self.link.as_mut().expect("serving needs a connection");
        // While the node is stalled, orders are answered here without being written.
        let has_room = link.under_way() < MAX_UNDER_WAY;
        let may_receive = !self.is_closed && (self.is_stalled || has_room);
        // An alarm that rings early is cheaper than one that is set anew for each pipeline.
        if due < self.alarm.deadline() || self.alarm.is_elapsed() {
            self.alarm.as_mut().reset(due);
        }
        // After a push it is the turn of everything else: a server that pushes without end holds up
        // nothing.
        let queue = self.had_push.then(|| link.pushes.clone());
        let event = tokio::select! {
            biased;
            news = link.news(!self.had_push) => news.into(),
            received = self.mailbox.recv_many(&mut self.inbox, MAX_ORDERS), if may_receive => {
                self.is_closed = received == 0;
                Event::Received
            }
            () = self.alarm.as_mut() => Event::Alarm,
            () = poll_fn(|cx| self.node.handover.poll_left(&self.bell, self.is_ended, cx)),
                if has_room && !self.is_stalled => Event::Received,
            pushed = poll_fn(|cx| queue.as_ref().map_or(Poll::Pending, |it| it.poll(cx))),
                if queue.is_some() => News::of(pushed).into(),
            made = poll_fn(|cx| self.spare.poll(cx)) => Event::Connected(made),
        };
        self.had_push = matches!(event, Event::Pushed(_));
        event
    }

    /// Writes one pipeline of what is owed and what has come in; answers what cannot be written.
    async fn write(&mut self) {
        if self.is_stalled {
            let oldest = self.link().oldest().map_or(Duration::ZERO, |oldest| oldest.elapsed());
            let failure = NodeFailure::Stalled(oldest);
            for order in std::mem::take(&mut self.inbox) {
                self.refuse(order, &failure);
            }
            return;
        }
        if self.link().under_way() >= MAX_UNDER_WAY {
            return;
        }
        let at = Instant::now();
        let left = self.take_left().await;
        // From here on nothing waits: what is not in `self` is lost if the task is dropped.
        let mut orders = self.owed.take(MAX_ORDERS, at, self.is_closed);
        if orders.is_empty() && self.inbox.is_empty() && left.is_empty() {
            return;
        }
        orders.extend(left);
        orders.append(&mut self.inbox);
        let now = clock::now();
        let mut pipeline = redis::Pipeline::with_capacity(orders.len() + 1);
        let mut written = Vec::with_capacity(orders.len());
        let tracks = self.link().tracks;
        for mut order in orders {
            let id = self.node.id;
            if order.is_void(id, now) || !order.write(id, now, tracks, &mut pipeline) {
                order.answer_void();
            } else {
                written.push(order);
            }
        }
        if !written.is_empty() {
            self.last_traffic = at;
            // Replies are told apart by their order alone: the seal shows that it is kept.
            let is_sealed = written.iter().any(QueuedCommand::is_to_grant);
            self.link().write(pipeline, written, is_sealed.then_some(now)).await;
        }
    }

    /// Takes what other tasks have left, once nothing of theirs can come after it (I8). Nothing is
    /// taken before that: this task may be held up for long.
    async fn take_left(&mut self) -> Vec<QueuedCommand> {
        let mut seen_to = Vec::new();
        loop {
            if let Some(left) = self.node.handover.take(MAX_ORDERS, &seen_to) {
                return left;
            }
            seen_to = self.node.handover.broken();
            self.kill_stale().await;
        }
    }

    /// Another task's connection broke: what it may still deliver must not come after what is
    /// written now (I8).
    async fn kill_stale(&mut self) {
        let node = self.node.clone();
        let limit = self.node.timings.answer;
        // Whatever else goes wrong here will be noticed with the next pipeline.
        let is_done = timeout(limit, Box::pin(self.link().kill_stale(&node)))
            .await
            .is_ok_and(|sent| sent.is_ok());
        if !is_done {
            self.node.handover.note_stale_until(Instant::now() + STALE_WINDOW);
        }
    }

    /// Answers an order that cannot be written now, and keeps what has to be written later.
    pub(super) fn refuse(&mut self, mut order: QueuedCommand, failure: &NodeFailure) {
        if order.is_void(self.node.id, clock::now()) {
            order.answer_void();
        } else {
            order.fail(failure.clone());
            self.owed.keep(order);
        }
    }

    /// The connection broke: what was not answered may still run.
    fn handle_break(&mut self, failure: &NodeFailure) {
        self.part(failure);
        self.links.note_silence(self.node.id, matches!(failure, NodeFailure::Stalled(_)));
        self.spare = Spare::NotDue;
        self.handle_loss(failure);
    }

    /// Gives the connection up, and what was not answered with it.
    pub(super) fn part(&mut self, failure: &NodeFailure) {
        if let Some(mut link) = self.link.take() {
            self.node.guard.handle_loss(self.node.id);
            let unanswered: Vec<_> = link.take_unanswered().collect();
            self.note_broken(&link);
            self.handle_unanswered(unanswered, failure);
        }
    }

    fn note_broken(&self, link: &Link) {
        let run_id = link.info.run_id.clone();
        self.node.handover.note_broken(Broken { run_id, client_id: link.client_id });
    }
}

impl Drop for NodeTask {
    /// Runs at the end of the task, also when a runtime is shut down under it.
    fn drop(&mut self) {
        self.links.note_silence(self.node.id, false);
        if let Some(mut link) = self.link.take() {
            self.node.guard.handle_loss(self.node.id);
            let unanswered: Vec<_> = link.take_unanswered().collect();
            if !unanswered.is_empty() {
                self.note_broken(&link);
            }
            self.handle_unanswered(unanswered, &NodeFailure::ShutDown);
        }
        // From here on releases go to other tasks, which must know by then what has to be buried.
        self.mailbox.close();
        let owed = self.owed.take_releases().collect::<Vec<_>>();
        let waiting = std::mem::take(&mut self.inbox);
        for order in owed.into_iter().chain(waiting) {
            self.node.rescue(order);
        }
        mailbox::empty(&mut self.mailbox, |order| self.node.rescue(order));
    }
}
