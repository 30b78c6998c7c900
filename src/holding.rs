//! What a lease, its renewal and whoever waits for its loss have in common.

use crate::clock;
use crate::node::{Answer, Ballot, Claim, Nodes, Order, VoteSink};
use crate::protocol::{Extended, Goal, Loss, NodeId, Outcome, Renewal, Round, Step, Tenure, Time};
use crate::protocol::{Ttl, Vote};
use crate::redlock::Inner;
use crate::tally::Tally;
use crate::timer::{Alarm, Ring};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use tokio::sync::Notify;

/// A lock that is held, apart from the guard that releases it when it is dropped.
///
/// Renewal needs no task: the timer's thread puts extensions into the nodes' mailboxes, and the
/// nodes' tasks settle them. It works while a blocked task holds up the runtime's timers.
pub(crate) struct Holding {
    client: Arc<Inner>,
    claim: Arc<Claim>,
    nodes: Arc<Nodes>,
    renewal: Mutex<Renewal>,
    /// The extension under way that nobody waits for, and when to stop waiting for its votes.
    upkeep: Mutex<Option<(Arc<Extension>, Time)>>,
    ended: Notify,
    alarm: OnceLock<Alarm>,
}

/// An extension under way.
pub(crate) struct Extension {
    pub(crate) tally: Arc<Tally>,
    pub(crate) close_at: Time,
    holding: Weak<Holding>,
    /// T1 + ttl: until when the nodes that grant it keep the key.
    until: Time,
    is_upkeep: bool,
}

impl Holding {
    pub(crate) fn new(
        client: Arc<Inner>,
        claim: Arc<Claim>,
        nodes: Arc<Nodes>,
        renewal: Renewal,
    ) -> Arc<Self> {
        Arc::new(Self {
            client,
            claim,
            nodes,
            renewal: Mutex::new(renewal),
            upkeep: Mutex::default(),
            ended: Notify::new(),
            alarm: OnceLock::new(),
        })
    }

    pub(crate) fn client(&self) -> &Arc<Inner> {
        &self.client
    }

    /// The nodes it was acquired on, or others if their runtime is gone.
    pub(crate) fn nodes(&self) -> Arc<Nodes> {
        self.client.driver.pool.open(&self.nodes)
    }

    /// Where it stands now.
    pub(crate) fn tenure(&self) -> Tenure {
        self.renewal().tenure(clock::now())
    }

    /// Ends it by the holder's will.
    pub(crate) fn release(&self) {
        self.renewal().release(clock::now());
    }

    /// Starts an extension to `ttl`, if it is still held.
    pub(crate) fn extend(
        self: &Arc<Self>,
        ttl: Ttl,
        is_upkeep: bool,
    ) -> Result<Arc<Extension>, Tenure> {
        let t1 = clock::now();
        let round = self.renewal().begin(ttl, t1)?;
        let timeout = t1.after(self.client.driver.node_timeout);
        // An extension that comes after the old end is worth nothing (I9).
        let close_at = match round.goal() {
            Goal::Extend { current, .. } => timeout.min(current),
            Goal::Acquire { .. } | Goal::Release => timeout,
        };
        let until = t1.after(ttl.as_duration());
        let tally = Tally::new(round, t1);
        let holding = Arc::downgrade(self);
        let extension = Arc::new(Extension { tally, close_at, holding, until, is_upkeep });
        if is_upkeep {
            *self.upkeep() = Some((extension.clone(), close_at));
        }
        self.nodes().send_each(|node| {
            Order::extend(self.claim.clone(), until, Ballot::new(extension.clone(), node))
        });
        Ok(extension)
    }

    /// Takes how an extension that somebody waited for has ended.
    pub(crate) fn settle(&self, extension: &Extension) -> Extended {
        let now = clock::now();
        let extended = extension.tally.judge(|round| self.renewal().handle_outcome(round, now));
        self.tell(extended);
        extended
    }

    /// Takes how an extension of the upkeep has ended.
    fn settle_upkeep(&self, extension: &Extension) {
        self.upkeep().take();
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

    /// No code panics while it holds this lock.
    pub(crate) fn renewal(&self) -> MutexGuard<'_, Renewal> {
        self.renewal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No code panics while it holds this lock.
    fn upkeep(&self) -> MutexGuard<'_, Option<(Arc<Extension>, Time)>> {
        self.upkeep.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ring for Holding {
    fn ring(self: Arc<Self>, now: Time) -> Option<Time> {
        let under_way = self.upkeep().clone();
        if let Some((extension, close_at)) = under_way
            && now >= close_at
            && extension.tally.close().is_some()
        {
            self.settle_upkeep(&extension);
        }
        let step = self.renewal().step(now);
        let until = match step {
            Step::Extend { ttl } => match self.extend(ttl, true) {
                Ok(extension) => extension.close_at,
                Err(_ended) => now,
            },
            Step::Wait { until } => until,
            Step::Ended(_) => {
                self.ended.notify_waiters();
                return None;
            }
        };
        let close_at = self.upkeep().as_ref().map(|(_, close_at)| *close_at);
        Some(close_at.map_or(until, |close_at| close_at.min(until)))
    }
}

impl VoteSink for Extension {
    fn handle_answer(&self, node: NodeId, answer: Answer) {
        let is_missing = answer.vote == Vote::Missing;
        let decided = self.tally.count_answer(node, answer);
        let Some(holding) = self.holding.upgrade() else { return };
        if decided.is_some() && self.is_upkeep {
            holding.settle_upkeep(self);
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
