//! What a lease, its renewal and whoever waits for its loss have in common.

use super::backing::{Backing, Origin};
use super::doubts::Doubts;
use super::extension::{Cause, Extension};
use super::kept::Kept;
use super::observed::Observed;
use crate::node::{Ballot, Claim, Nodes, QueuedCommand};
use crate::observe::Tag;
use crate::protocol::{
    CheckKind, Checks, Extended, Goal, Loss, NodeId, Renewal, Round, Step, Tenure, Time, Ttl,
};
use crate::round::{ReleaseGuard, Tally};
use crate::sync::lock;
use crate::time::{Alarm, Clock, Ring};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// A lock that is held, with the guards that hold it.
///
/// Renewal needs no task: the timer's thread puts extensions into the nodes' mailboxes, and the
/// nodes' tasks settle them. It works while a blocked task holds up the runtime's timers.
pub(crate) struct LeaseState {
    claim: Arc<Claim>,
    pub(super) origin: Arc<Origin>,
    pub(super) observed: Observed,
    /// The ttl that it was acquired with.
    ttl: Ttl,
    kept: Kept,
    /// None once the lease has been given up: views of it keep neither the client nor a connection.
    pub(super) bond: Mutex<Option<Bond>>,
    /// How many guards there are.
    guards: AtomicUsize,
    renewal: Mutex<Renewal>,
    /// The extension under way that nobody waits for, and when to stop waiting for its votes.
    upkeep: Mutex<Option<(Arc<Extension>, Time)>>,
    doubts: Doubts,
    checks: Mutex<Checks>,
    ended: Notify,
    /// Rings for the upkeep and the end, once somebody wants to be told.
    alarm: Mutex<Option<Alarm>>,
}

/// What is given up at the end, and what that takes.
pub(crate) struct Bond {
    // Dropped in this order: the releases are sent while the client's nodes are there.
    pub(crate) guard: ReleaseGuard,
    pub(crate) backing: Arc<Backing>,
}

impl Bond {
    /// The nodes that it was acquired on, or others if their runtime is gone.
    pub(crate) fn nodes(&self) -> Arc<Nodes> {
        self.backing.pool.open(self.guard.nodes())
    }
}

impl LeaseState {
    /// What `guard` gives up, acquired with `ttl` in that round, with one guard.
    pub(crate) fn new(
        backing: Arc<Backing>,
        guard: ReleaseGuard,
        (ttl, renewal): (Ttl, Renewal),
        acquired: Arc<Tally>,
        tag: Tag,
    ) -> Arc<Self> {
        let (claim, origin) = (guard.claim().clone(), backing.origin().clone());
        let quorum = backing.quorum;
        Arc::new(Self {
            claim,
            origin,
            observed: Observed::new(tag, acquired.t1()),
            ttl,
            kept: Kept::new(acquired.t1(), ttl),
            bond: Mutex::new(Some(Bond { guard, backing })),
            guards: AtomicUsize::new(1),
            renewal: Mutex::new(renewal),
            upkeep: Mutex::default(),
            doubts: Doubts::new(quorum, acquired),
            checks: Mutex::default(),
            ended: Notify::new(),
            alarm: Mutex::default(),
        })
    }

    pub(crate) fn claim(&self) -> &Arc<Claim> {
        &self.claim
    }

    /// What time it is by the client's clock.
    pub(crate) fn now(&self) -> Time {
        self.origin.clock.now()
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.origin.clock
    }

    /// The ttl that it was acquired with.
    pub(crate) fn ttl(&self) -> Ttl {
        self.ttl
    }

    /// What is locked by its keys, in their order.
    pub(crate) fn resources(&self) -> impl Iterator<Item = &[u8]> {
        self.claim.keys().iter().map(|key| key.get(self.origin.prefix..).unwrap_or_default())
    }

    /// The nodes' names, in their order.
    pub(crate) fn names(&self) -> impl Iterator<Item = Arc<str>> {
        self.origin.nodes.iter().map(|node| node.name.clone())
    }

    /// What its client has for it, and the nodes, until the lease is given up.
    pub(crate) fn access(&self) -> Option<(Arc<Backing>, Arc<Nodes>)> {
        let bond = lock(&self.bond);
        bond.as_ref().map(|bond| (bond.backing.clone(), bond.nodes()))
    }

    /// What is told of its end.
    pub(crate) fn news(&self) -> Notified<'_> {
        self.ended.notified()
    }

    /// How long it is still valid at `now`.
    pub(crate) fn validity(&self, now: Time) -> Duration {
        self.renewal().valid_until(now).map_or(Duration::ZERO, |until| until.since(now))
    }

    /// Where it stands now.
    pub(crate) fn tenure(&self) -> Tenure {
        self.renewal().tenure(self.origin.clock.now())
    }

    /// False in a process that was forked while it was held: that has a copy of it.
    pub(crate) fn is_ours(&self) -> bool {
        lock(&self.bond).as_ref().is_none_or(|bond| !bond.guard.nodes().is_inherited())
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
    pub(crate) fn release(&self) -> Option<Bond> {
        let was = self.renewal().release(self.origin.clock.now());
        self.tell_end(was);
        self.take_bond()
    }

    /// Ends it by the client's will.
    pub(crate) fn close(&self) -> Option<Bond> {
        let was = self.renewal().lose(Loss::Closed, self.origin.clock.now());
        self.tell_end(was);
        self.take_bond()
    }

    /// Tells whoever waits for the end, and keeps nothing that only a lease that is held needs.
    fn take_bond(&self) -> Option<Bond> {
        let bond = lock(&self.bond).take();
        if let Some(bond) = &bond {
            bond.backing.registry.remove(&self.claim);
        }
        let nothing_to_do = (lock(&self.alarm).take(), lock(&self.upkeep).take());
        drop(nothing_to_do);
        self.ended.notify_waiters();
        bond
    }

    /// Starts an extension to `ttl` that the holder waits for, if it is still held.
    pub(crate) fn extend(self: &Arc<Self>, ttl: Ttl) -> Result<Arc<Extension>, Tenure> {
        self.begin(Some(ttl), Cause::Asked)
    }

    /// Starts an extension to `ttl`; without one, a check.
    fn begin(self: &Arc<Self>, ttl: Option<Ttl>, cause: Cause) -> Result<Arc<Extension>, Tenure> {
        let t1 = self.origin.clock.now();
        let (ttl, round) = match ttl {
            Some(ttl) => (ttl, self.renewal().begin(ttl, t1)?),
            None => self.renewal().begin_check(t1)?,
        };
        let Some((backing, nodes)) = self.access() else { return Err(self.tenure()) };
        let timeout = t1.after(backing.limits.node_timeout);
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
        let tally = Tally::new(round, t1, &self.origin.clock);
        let state = Arc::downgrade(self);
        let extension = Arc::new(Extension { tally, close_at, state, until, cause });
        match cause {
            Cause::Upkeep => *lock(&self.upkeep) = Some((extension.clone(), close_at)),
            Cause::Check => lock(&self.checks).handle_begun(close_at),
            Cause::Asked => {}
        }
        self.doubts.handle_asked();
        // Whoever waits for the loss wants to be told at once.
        let watches = cause != Cause::Asked || self.is_watched();
        nodes.send_each(|node| {
            let ballot = Ballot::new(extension.clone(), node);
            QueuedCommand::extend(self.claim.clone(), until, watches, ballot)
        });
        Ok(extension)
    }

    /// Takes how an extension has ended that is no upkeep.
    pub(crate) fn settle(&self, extension: &Extension) -> Extended {
        let now = self.origin.clock.now();
        self.doubts.handle_outcome(&extension.tally);
        let extended =
            extension.tally.with_round(|round| self.renewal().handle_outcome(round, now));
        self.kept.note(extension, extended);
        self.tell(extended);
        extended
    }

    /// Takes how an extension of the upkeep has ended.
    pub(crate) fn settle_upkeep(&self, extension: &Extension) {
        lock(&self.upkeep).take();
        self.doubts.handle_outcome(&extension.tally);
        let (t1, now) = (extension.tally.t1(), self.origin.clock.now());
        let slack = self.slack(now);
        let upkeep = |round: &Round| self.renewal().handle_auto_extension(round, t1, now);
        let extended = extension.tally.with_round(upkeep);
        self.kept.note(extension, extended);
        self.tell(extended);
        self.tell_upkeep(extended, slack, extension);
        // A failed one is due again before the alarm that was set for its end.
        if matches!(extended, Extended::Unchanged(_)) {
            self.hasten(now);
        }
    }

    /// Takes how a check has ended.
    pub(crate) fn settle_check(&self, extension: &Extension) {
        self.settle(extension);
        let due = {
            let mut checks = lock(&self.checks);
            checks.handle_end();
            checks.due()
        };
        if let Some(due) = due {
            self.hasten(due);
        }
    }

    /// `node` has said that it holds the keys.
    pub(crate) fn handle_grant(&self, node: NodeId) {
        self.doubts.handle_grant(node);
    }

    fn tell(&self, extended: Extended) {
        if let Extended::Ended(tenure) = extended {
            self.tell_lost(tenure);
        }
    }

    pub(super) fn tell_lost(&self, tenure: Tenure) {
        // A node that is still to be connected to may not have been sent the acquire.
        self.claim.withdraw();
        self.ended.notify_waiters();
        self.tell_end(tenure);
    }

    /// Something happened to a key on `node`, by somebody else. Once a quorum may have been lost, the
    /// nodes are asked: now, or as soon as that is allowed again.
    pub(crate) fn handle_push(self: &Arc<Self>, node: NodeId) {
        if !self.is_watched() {
            // Nobody waits to be told.
            return;
        }
        let doubtful = self.doubts.handle_invalidation(node);
        let quorum = lock(&self.bond).as_ref().map(|bond| bond.backing.quorum);
        if quorum.is_some_and(|quorum| quorum.blocked(doubtful)) {
            lock(&self.checks).request(CheckKind::Check);
            if let Some(due) = self.check(self.origin.clock.now()) {
                self.hasten(due);
            }
        }
    }

    /// Begins a check, if one is wanted and may begin; else returns when one may that is wanted.
    fn check(self: &Arc<Self>, now: Time) -> Option<Time> {
        let wanted = lock(&self.checks).begin(now);
        if let Some(wanted) = wanted {
            // If it has ended meanwhile, that is told elsewhere.
            let _ = self.begin(None, Cause::Check);
            if wanted == CheckKind::Renewal {
                self.renewal().make_due(now);
                self.hasten(now);
            }
        }
        lock(&self.checks).due()
    }

    /// Keys may end sooner than the lease believes, by as much as clocks have stepped `since` they were asked to stand:
    /// more than it has set aside is mended.
    pub(crate) fn handle_step(self: &Arc<Self>, since: impl FnOnce(Time) -> Duration) {
        let drift = lock(&self.bond).as_ref().map(|bond| bond.backing.limits.drift);
        if drift.is_some_and(|drift| self.kept.may_end_early(drift, since)) {
            self.refresh();
        }
    }

    /// The keys may end sooner than the lease believes: lets them stand for as long as it is valid, and
    /// extends it at once if it is to be kept up. Or as soon as that is allowed again: who shortens keys
    /// all the time looks like a clock that stands still.
    fn refresh(self: &Arc<Self>) {
        lock(&self.checks).request(CheckKind::Renewal);
        if let Some(due) = self.check(self.origin.clock.now()) {
            // From now on something is to be done in time, whoever waits for it.
            self.watch();
            self.hasten(due);
        }
    }

    /// Sees to it that the end is told, and the upkeep begun, in time.
    pub(crate) fn watch(self: &Arc<Self>) {
        let mut alarm = lock(&self.alarm);
        // One that was set before a fork rings in the parent only.
        if alarm.as_ref().is_none_or(|alarm| !alarm.is_ours()) {
            let this: Arc<dyn Ring> = self.clone();
            // It rings at once, and then when there is something to do.
            *alarm =
                Some(self.origin.clock.set_alarm(self.origin.clock.now(), Arc::downgrade(&this)));
        }
    }

    fn is_watched(&self) -> bool {
        lock(&self.alarm).is_some()
    }

    /// Looks at what is to be done at `at` at the latest, if it is watched.
    fn hasten(&self, at: Time) {
        if let Some(alarm) = &*lock(&self.alarm) {
            alarm.hasten(at);
        }
    }

    pub(crate) fn renewal(&self) -> MutexGuard<'_, Renewal> {
        lock(&self.renewal)
    }
}

impl Ring for LeaseState {
    fn ring(self: Arc<Self>, now: Time) -> Option<Time> {
        let under_way = lock(&self.upkeep).clone();
        if let Some((extension, close_at)) = under_way
            && now >= close_at
            && extension.tally.close().is_some()
        {
            self.settle_upkeep(&extension);
        }
        let check_at = self.check(now);
        let step = self.renewal().step(now);
        let until = match step {
            Step::Extend { ttl } => match self.begin(Some(ttl), Cause::Upkeep) {
                // Its votes may come for long, but the end is told in time.
                Ok(extension) => match self.renewal().step(now) {
                    Step::Wait { until } => until.min(extension.close_at),
                    Step::Extend { .. } | Step::Ended(_) => now,
                },
                Err(_ended) => now,
            },
            Step::Wait { until } => until,
            Step::Ended(tenure) => {
                self.ended.notify_waiters();
                self.tell_end(tenure);
                return None;
            }
        };
        let close_at = lock(&self.upkeep).as_ref().map(|(_, close_at)| *close_at);
        [close_at, check_at, Some(until)].into_iter().flatten().min()
    }
}
