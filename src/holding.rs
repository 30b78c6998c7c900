//! What a lease, its renewal and whoever waits for its loss have in common.

use crate::clock;
use crate::hold::Hold;
use crate::node::{Answer, Ballot, Claim, Nodes, Order, VoteSink};
use crate::protocol::{Extended, Goal, Loss, NodeId, NodeSet, Outcome, Renewal, Round, Step};
use crate::protocol::{Tenure, Time, Ttl, Vote};
use crate::redlock::Inner;
use crate::tally::Tally;
use crate::timer::{Alarm, Ring};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use tokio::sync::Notify;

/// A lock that is held, with the guards that hold it.
///
/// Renewal needs no task: the timer's thread puts extensions into the nodes' mailboxes, and the
/// nodes' tasks settle them. It works while a blocked task holds up the runtime's timers.
pub(crate) struct Holding {
    client: Arc<Inner>,
    claim: Arc<Claim>,
    nodes: Arc<Nodes>,
    /// What is given up at the end; none is left once that has been done.
    hold: Mutex<Option<Hold>>,
    /// How many guards there are.
    guards: AtomicUsize,
    renewal: Mutex<Renewal>,
    /// The extension under way that nobody waits for, and when to stop waiting for its votes.
    upkeep: Mutex<Option<(Arc<Extension>, Time)>>,
    /// Nodes that told that something happened to the key, since they were last asked.
    touched: Mutex<NodeSet>,
    ended: Notify,
    alarm: OnceLock<Alarm>,
}

/// What an extension is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// The holder asked for it, and waits.
    Asked,
    /// It is time for it.
    Upkeep,
    /// Something happened to the key, or to its time.
    Check,
}

/// An extension under way.
pub(crate) struct Extension {
    pub(crate) tally: Arc<Tally>,
    pub(crate) close_at: Time,
    holding: Weak<Holding>,
    /// T1 + ttl: until when the nodes that grant it keep the key.
    until: Time,
    cause: Cause,
}

impl Holding {
    /// What `hold` holds, with one guard.
    pub(crate) fn new(client: Arc<Inner>, hold: Hold, renewal: Renewal) -> Arc<Self> {
        let (claim, nodes) = (hold.claim().clone(), hold.nodes().clone());
        Arc::new(Self {
            client,
            claim,
            nodes,
            hold: Mutex::new(Some(hold)),
            guards: AtomicUsize::new(1),
            renewal: Mutex::new(renewal),
            upkeep: Mutex::default(),
            touched: Mutex::default(),
            ended: Notify::new(),
            alarm: OnceLock::new(),
        })
    }

    pub(crate) fn client(&self) -> &Arc<Inner> {
        &self.client
    }

    pub(crate) fn claim(&self) -> &Arc<Claim> {
        &self.claim
    }

    /// The nodes it was acquired on, or others if their runtime is gone.
    pub(crate) fn nodes(&self) -> Arc<Nodes> {
        self.client.driver.pool.open(&self.nodes)
    }

    /// Where it stands now.
    pub(crate) fn tenure(&self) -> Tenure {
        self.renewal().tenure(clock::now())
    }

    /// Adds a guard; how many there are then. None can be added once all are gone.
    pub(crate) fn enter(&self) -> Option<usize> {
        let more = |guards: usize| if guards == 0 { None } else { guards.checked_add(1) };
        let before = self.guards.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        before.ok().map(|before| before + 1)
    }

    /// Takes a guard away; how many are left.
    pub(crate) fn leave(&self) -> usize {
        self.guards.fetch_sub(1, Ordering::AcqRel) - 1
    }

    /// How many guards there are.
    pub(crate) fn guards(&self) -> usize {
        self.guards.load(Ordering::Acquire)
    }

    /// Ends it by the holder's will. What is to be given up, if that was not done before.
    pub(crate) fn release(&self) -> Option<Hold> {
        self.renewal().release(clock::now());
        self.take_hold()
    }

    /// Ends it by the client's will, and tells whoever waits for its loss.
    pub(crate) fn close(&self) -> Option<Hold> {
        self.renewal().close(clock::now());
        let hold = self.take_hold();
        self.ended.notify_waiters();
        hold
    }

    fn take_hold(&self) -> Option<Hold> {
        let hold = lock(&self.hold).take();
        if hold.is_some() {
            self.client.roster.remove(&self.claim);
        }
        hold
    }

    /// Starts an extension to `ttl` that the holder waits for, if it is still held.
    pub(crate) fn extend(self: &Arc<Self>, ttl: Ttl) -> Result<Arc<Extension>, Tenure> {
        self.begin(ttl, Cause::Asked)
    }

    fn begin(self: &Arc<Self>, ttl: Ttl, cause: Cause) -> Result<Arc<Extension>, Tenure> {
        let t1 = clock::now();
        let round = self.renewal().begin(ttl, t1)?;
        let timeout = t1.after(self.client.driver.node_timeout);
        let close_at = match round.goal() {
            // 1. Thousands of leases are extended at once, after a hiccup of the nodes. 2. The nodes need
            // longer than the node timeout for all. 3. All rounds are closed, and all come again. So what
            // nobody waits for stays open for longer: each vote comes in the end, or fails.
            Goal::Extend { current, .. } if cause == Cause::Upkeep => {
                t1.after(current.since(t1) / 2).max(timeout).min(current)
            }
            // An extension that comes after the old end is worth nothing (I9).
            Goal::Extend { current, .. } => timeout.min(current),
            _ => timeout,
        };
        let until = t1.after(ttl.as_duration());
        let tally = Tally::new(round, t1);
        let holding = Arc::downgrade(self);
        let extension = Arc::new(Extension { tally, close_at, holding, until, cause });
        if cause == Cause::Upkeep {
            *lock(&self.upkeep) = Some((extension.clone(), close_at));
        }
        *lock(&self.touched) = NodeSet::default();
        // Whoever waits for the loss wants to be told at once.
        let watches = cause != Cause::Asked || self.alarm.get().is_some();
        self.nodes().send_each(|node| {
            let ballot = Ballot::new(extension.clone(), node);
            Order::extend(self.claim.clone(), until, watches, ballot)
        });
        Ok(extension)
    }

    /// Takes how an extension has ended that is no upkeep.
    pub(crate) fn settle(&self, extension: &Extension) -> Extended {
        let now = clock::now();
        let extended = extension.tally.judge(|round| self.renewal().handle_outcome(round, now));
        self.tell(extended);
        extended
    }

    /// Takes how an extension of the upkeep has ended.
    fn settle_upkeep(&self, extension: &Extension) {
        lock(&self.upkeep).take();
        let (t1, now) = (extension.tally.t1(), clock::now());
        let upkeep = |round: &Round| self.renewal().handle_upkeep(round, t1, now);
        let extended = extension.tally.judge(upkeep);
        self.tell(extended);
        // A failed one is due again before the alarm that was set for its end.
        if let (Extended::Unchanged(_), Some(alarm)) = (extended, self.alarm.get()) {
            alarm.hasten(now);
        }
    }

    fn tell(&self, extended: Extended) {
        if matches!(extended, Extended::Ended(_)) {
            self.ended.notify_waiters();
        }
    }

    /// Something happened to a key on `node`, by somebody else. Once a quorum may have been lost, the
    /// nodes are asked.
    pub(crate) fn handle_push(self: &Arc<Self>, node: NodeId) {
        if self.alarm.get().is_none() {
            // Nobody waits to be told.
            return;
        }
        let touched = {
            let mut touched = lock(&self.touched);
            touched.insert(node);
            touched.len()
        };
        let ttl = self.renewal().ttl_to_check(clock::now());
        if let Some(ttl) = ttl.filter(|_| self.client.driver.quorum.blocked(touched)) {
            // If it has ended meanwhile, that is told elsewhere.
            let _ = self.begin(ttl, Cause::Check);
        }
    }

    /// The keys may end sooner than the lease believes: lets them stand for as long as it is valid, and
    /// extends it at once if it is to be kept up.
    pub(crate) fn refresh(self: &Arc<Self>) {
        let now = clock::now();
        let ttl = self.renewal().ttl_to_check(now);
        if let Some(ttl) = ttl {
            // If it has ended meanwhile, that is told elsewhere.
            let _ = self.begin(ttl, Cause::Check);
        }
        self.renewal().hasten(now);
        if let Some(alarm) = self.alarm.get() {
            alarm.hasten(now);
        }
    }

    /// Resolves when the lease is lost, not later than its validity ends.
    pub(crate) async fn lost(self: &Arc<Self>) -> Loss {
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            ended.as_mut().enable();
            if let Tenure::Lost(loss) = self.tenure() {
                return loss;
            }
            self.watch();
            ended.await;
        }
    }

    /// Sees to it that the end is told, and the upkeep begun, in time.
    pub(crate) fn watch(self: &Arc<Self>) {
        self.alarm.get_or_init(|| {
            let this: Arc<dyn Ring> = self.clone();
            // It rings at once, and then when there is something to do.
            Alarm::set(clock::now(), Arc::downgrade(&this))
        });
    }

    pub(crate) fn renewal(&self) -> MutexGuard<'_, Renewal> {
        lock(&self.renewal)
    }
}

/// No code panics while it holds one of these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ring for Holding {
    fn ring(self: Arc<Self>, now: Time) -> Option<Time> {
        let under_way = lock(&self.upkeep).clone();
        if let Some((extension, close_at)) = under_way
            && now >= close_at
            && extension.tally.close().is_some()
        {
            self.settle_upkeep(&extension);
        }
        let step = self.renewal().step(now);
        let until = match step {
            Step::Extend { ttl } => match self.begin(ttl, Cause::Upkeep) {
                // Its votes may come for long, but the end is told in time.
                Ok(extension) => match self.renewal().step(now) {
                    Step::Wait { until } => until.min(extension.close_at),
                    Step::Extend { .. } | Step::Ended(_) => now,
                },
                Err(_ended) => now,
            },
            Step::Wait { until } => until,
            Step::Ended(_) => {
                self.ended.notify_waiters();
                return None;
            }
        };
        let close_at = lock(&self.upkeep).as_ref().map(|(_, close_at)| *close_at);
        Some(close_at.map_or(until, |close_at| close_at.min(until)))
    }
}

impl VoteSink for Extension {
    fn handle_answer(&self, node: NodeId, answer: Answer) {
        let is_missing = answer.vote == Vote::Missing;
        let decided = self.tally.count_answer(node, answer);
        let Some(holding) = self.holding.upgrade() else { return };
        if decided.is_some() {
            match self.cause {
                Cause::Asked => {}
                Cause::Upkeep => holding.settle_upkeep(self),
                Cause::Check => drop(holding.settle(self)),
            }
        }
        // The vote is over, and a majority holds the key: nodes that lost it get it back. Not once
        // the lease is known to be lost.
        let (outcome, missing) = self.tally.judge(|round| (round.outcome(), round.missing()));
        let is_held = matches!(holding.tenure(), Tenure::Held { .. });
        if is_held && outcome == Some(Outcome::Won) && (decided.is_some() || is_missing) {
            let nodes = holding.nodes();
            let quorum = holding.client.driver.quorum;
            for lost in quorum.ids().filter(|id| missing.contains(*id)) {
                if decided.is_some() || lost == node {
                    nodes.send(lost, Order::repair(holding.claim.clone(), self.until));
                }
            }
        }
    }
}
