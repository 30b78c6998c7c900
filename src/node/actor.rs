//! A node's task: orders in, one pipeline at a time out, votes back.

use super::DOUBT;
use super::connection::{Answered, Link, News, Pushed};
use super::failure::NodeFailure;
use super::mailbox;
use super::order::Order;
use super::owed::Owed;
use super::reconnect::Backoff;
use super::shared::{Broken, NodeShared, NodeState};
use crate::clock;
use crate::protocol::Vote;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

/// Pipelines under way at once: enough to keep the node busy while replies travel, few enough that
/// orders gather into larger pipelines under load.
const MOST_UNDER_WAY: usize = 4;

/// Orders in one pipeline.
pub(super) const MOST_ORDERS: usize = 512;

/// A connection without traffic is tried this often, so that one that died in silence is replaced
/// before somebody needs it.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// A node that leaves a command without an answer this many node timeouts, but at least
/// [`LEAST_PATIENCE`], gets a new connection.
const PATIENCE: u32 = 10;
const LEAST_PATIENCE: Duration = Duration::from_secs(1);

/// Nothing to wait for: look again then.
const LONG: Duration = Duration::from_hours(1);

/// The task's state. Whatever happens to the task, also if its runtime drops it, `Drop` hands what
/// is still owed to others.
pub(super) struct Actor {
    pub(super) node: Arc<NodeShared>,
    pub(super) mailbox: UnboundedReceiver<Order>,
    /// True once all handles are gone: finish what is owed, then end.
    pub(super) is_closed: bool,
    /// Taken from the mailbox and not yet written.
    pub(super) inbox: Vec<Order>,
    pub(super) owed: Owed,
    pub(super) link: Option<Link>,
    /// Why there is no connection; `None` before the first and while a lost one is tried anew.
    pub(super) down: Option<NodeFailure>,
    pub(super) backoff: Backoff,
    /// Until then, a broken connection may still deliver something: repeat releases of unsure claims.
    pub(super) doubt_until: Option<Instant>,
    is_stalled: bool,
    last_traffic: Instant,
    /// Since when this task has been running without a pause: what a paused process did not read
    /// is not the node's silence.
    awake_since: Instant,
    alarm: Pin<Box<Sleep>>,
}

enum Event {
    Answered(Answered),
    Disconnected,
    Pushed(Pushed),
    Received,
    Alarm,
}

impl Actor {
    pub(super) fn new(node: Arc<NodeShared>, mailbox: UnboundedReceiver<Order>) -> Self {
        // Called outside of the runtime too: the alarm is made when the task first runs.
        let now = Instant::now();
        Self {
            owed: Owed::new(node.id),
            node,
            mailbox,
            is_closed: false,
            inbox: Vec::new(),
            link: None,
            down: None,
            backoff: Backoff::default(),
            doubt_until: None,
            is_stalled: false,
            last_traffic: now,
            awake_since: now,
            alarm: Box::pin(sleep_until(now + LONG)),
        }
    }

    /// Serves the node until all handles are gone and nothing is owed any more.
    pub(super) async fn run(mut self) {
        while self.connect().await {
            match self.serve().await {
                Ok(()) => return,
                Err(failure) => self.handle_break(&failure),
            }
        }
    }

    /// Writes orders and settles replies; ends when all is done, or with why the connection broke.
    async fn serve(&mut self) -> Result<(), NodeFailure> {
        self.is_stalled = false;
        self.last_traffic = Instant::now();
        self.awake_since = self.last_traffic;
        loop {
            self.write().await;
            let under_way = self.link().under_way();
            if self.is_closed && under_way == 0 && self.inbox.is_empty() && self.owed.is_empty() {
                return Ok(());
            }
            match self.event().await {
                Event::Answered(answered) => self.settle(answered)?,
                Event::Disconnected => {
                    return Err(NodeFailure::Disconnected("closed by the server".into()));
                }
                Event::Pushed(keys) => self.node.pass_on(keys),
                Event::Received => {}
                Event::Alarm => self.handle_alarm().await?,
            }
        }
    }

    fn link(&mut self) -> &mut Link {
        self.link.as_mut().expect("serving needs a connection")
    }

    async fn event(&mut self) -> Event {
        let due = self.due();
        let link = self.link.as_mut().expect("serving needs a connection");
        // While the node is stalled, orders are answered here without being written.
        let may_receive = !self.is_closed && (self.is_stalled || link.under_way() < MOST_UNDER_WAY);
        // An alarm that rings early is cheaper than one that is set anew for each pipeline.
        if due < self.alarm.deadline() || self.alarm.is_elapsed() {
            self.alarm.as_mut().reset(due);
        }
        tokio::select! {
            biased;
            news = link.news() => match news {
                News::Answered(answered) => Event::Answered(answered),
                News::Pushed(keys) => Event::Pushed(keys),
                News::Closed => Event::Disconnected,
            },
            received = self.mailbox.recv_many(&mut self.inbox, MOST_ORDERS), if may_receive => {
                self.is_closed = received == 0;
                Event::Received
            }
            () = self.alarm.as_mut() => Event::Alarm,
        }
    }

    /// When something has to be done though nothing happens.
    fn due(&mut self) -> Instant {
        let awake_since = self.awake_since;
        let silence = if self.is_stalled { self.patience() } else { self.node.timings.answer };
        let heartbeat = self.last_traffic + HEARTBEAT;
        let reply = match self.link().oldest() {
            Some(oldest) => oldest.max(awake_since) + silence,
            None => heartbeat,
        };
        // While a reply is overdue, or no pipeline has room, nothing owed can be written.
        let blocked = self.is_stalled || self.link().under_way() >= MOST_UNDER_WAY;
        let owed = if blocked { None } else { self.owed.due() };
        owed.map_or(reply, |owed| owed.min(reply))
    }

    fn patience(&self) -> Duration {
        (self.node.timings.answer * PATIENCE).max(LEAST_PATIENCE)
    }

    async fn handle_alarm(&mut self) -> Result<(), NodeFailure> {
        let now = Instant::now();
        let late = now.saturating_duration_since(self.alarm.deadline());
        if late > self.node.timings.answer / 2 {
            // This process was stopped or starved; replies may be waiting to be read.
            self.awake_since = now;
        }
        let patience = self.patience();
        let answer = self.node.timings.answer;
        let awake_since = self.awake_since;
        let idle = now.saturating_duration_since(self.last_traffic);
        match self.link().oldest() {
            Some(oldest) => {
                let silence = now.saturating_duration_since(oldest.max(awake_since));
                if silence >= patience {
                    return Err(NodeFailure::Stalled(silence));
                }
                if silence >= answer && !self.is_stalled {
                    self.is_stalled = true;
                    // What hangs there can run at any time, also after its ttl.
                    let id = self.node.id;
                    self.link().unanswered().for_each(|order| order.note_unsure(id));
                    self.node.set_state(NodeState::Stalled);
                }
            }
            None if idle >= HEARTBEAT => {
                let mut ping = redis::Pipeline::new();
                ping.cmd("PING");
                self.last_traffic = now;
                self.link().write(ping, Vec::new()).await;
            }
            None => {}
        }
        Ok(())
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
        if self.link().under_way() >= MOST_UNDER_WAY {
            return;
        }
        let at = Instant::now();
        if self.node.has_broken() {
            // Before anything is taken: what is not in `self` is lost if the task is dropped here.
            self.bury().await;
        }
        let mut orders = self.owed.take(MOST_ORDERS, at);
        if orders.is_empty() && self.inbox.is_empty() {
            return;
        }
        orders.append(&mut self.inbox);
        let now = clock::now();
        let mut pipeline = redis::Pipeline::with_capacity(orders.len());
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
            self.link().write(pipeline, written).await;
        }
    }

    /// Another runtime's connection broke: what it may still deliver must not come after what is
    /// written now (I8).
    async fn bury(&mut self) {
        let node = self.node.clone();
        let limit = self.node.timings.answer;
        // Whatever else goes wrong here will be noticed with the next pipeline.
        let is_done = timeout(limit, self.link().bury(&node)).await.is_ok_and(|sent| sent.is_ok());
        if !is_done || self.link().is_doubtful {
            self.doubt_until = Some(Instant::now() + DOUBT);
        }
    }

    /// Answers an order that cannot be written now, and keeps what has to be written later.
    pub(super) fn refuse(&mut self, mut order: Order, failure: &NodeFailure) {
        if order.is_void(self.node.id, clock::now()) {
            order.answer_void();
        } else {
            order.fail(failure.clone());
            self.owed.keep(order);
        }
    }

    fn settle(&mut self, answered: Answered) -> Result<(), NodeFailure> {
        let Answered { at, orders, replies } = answered;
        let commands: usize = orders.iter().map(Order::commands).sum();
        self.last_traffic = Instant::now();
        let failure = match replies {
            Ok(replies) if orders.is_empty() || replies.len() == commands => {
                let mut again = Vec::new();
                let mut rest = replies.as_slice();
                for order in orders {
                    let (own, others) = rest.split_at(order.commands());
                    again.extend(self.settle_one(order, own, at));
                    rest = others;
                }
                self.inbox.splice(0..0, again);
                self.recover();
                return Ok(());
            }
            Ok(_) => NodeFailure::Unexpected("replies out of step".into()),
            Err(error) => NodeFailure::disconnected(&error),
        };
        self.handle_unanswered(orders, &failure);
        Err(failure)
    }

    /// Casts the vote that `replies` are. Returns the order if it is to be written again at once.
    fn settle_one(
        &mut self,
        mut order: Order,
        replies: &[redis::Value],
        written_at: Instant,
    ) -> Option<Order> {
        if order.is_unknown(replies) && order.fall_back_to_source() {
            return Some(order);
        }
        let answer = order.read(replies);
        let has_failed = answer.vote == Vote::Failed;
        order.answer(self.node.judge(&order, answer));
        // 1. A release is written and runs; its answer is slow. 2. A connection that broke delivers its
        // SET. 3. The doubt ends. 4. The answer comes. So it counts when the release was written.
        let may_be_undone = order.is_release()
            && order.claim().is_unsure(self.node.id)
            && self.doubt_until.is_some_and(|until| written_at < until);
        if !order.is_release() && !order.is_extension() {
            return None;
        }
        if has_failed || may_be_undone {
            self.owed.keep(order);
            self.owed.back_off(Instant::now());
        } else {
            self.owed.handle_success();
        }
        None
    }

    /// A reply has come: the node is back if it was away.
    fn recover(&mut self) {
        if self.is_stalled {
            let now = Instant::now();
            let timeout = self.node.timings.answer;
            let next = self.link().oldest();
            self.is_stalled = next.is_some_and(|at| now.saturating_duration_since(at) >= timeout);
            if !self.is_stalled {
                self.owed.recover();
                self.node.set_state(NodeState::Up);
            }
        }
    }

    /// The connection broke: what was not answered may still run.
    fn handle_break(&mut self, failure: &NodeFailure) {
        if let Some(mut link) = self.link.take() {
            self.node.quarantine.handle_loss();
            let unanswered: Vec<_> = link.take_unanswered().collect();
            self.note_broken(&link);
            self.handle_unanswered(unanswered, failure);
        }
        self.handle_loss(failure);
    }

    fn handle_unanswered(&mut self, orders: Vec<Order>, failure: &NodeFailure) {
        for mut order in orders {
            order.note_unsure(self.node.id);
            order.fail(failure.clone());
            self.owed.keep(order);
        }
    }

    fn note_broken(&self, link: &Link) {
        let run_id = link.info.run_id.clone();
        self.node.note_broken(Broken { run_id, client_id: link.client_id });
    }
}

impl Drop for Actor {
    /// Runs at the end of the task, also when a runtime is shut down under it.
    fn drop(&mut self) {
        if let Some(mut link) = self.link.take() {
            self.node.quarantine.handle_loss();
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
