//! State of a lease, shared by its guards, its renewal and the tasks that wait for its end.

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

/// A held lock and its guards.
///
/// Renewal needs no dedicated task: the timer's thread puts extensions into the nodes' mailboxes,
/// and the nodes' tasks process the replies. A task that blocks the runtime's timers does not delay
/// it.
pub(crate) struct LeaseState {
    claim: Arc<Claim>,
    /// The round that acquired it.
    pub(super) won: Arc<Tally>,
    pub(super) origin: Arc<Origin>,
    pub(super) observed: Observed,
    /// The ttl that it was acquired with.
    ttl: Ttl,
    kept: Kept,
    /// `None` after the release: a remaining view keeps neither the client nor a connection.
    pub(super) bond: Mutex<Option<Bond>>,
    guards: AtomicUsize,
    renewal: Mutex<Renewal>,
    /// The running renewal, and when to stop waiting for its votes.
    upkeep: Mutex<Option<(Arc<Extension>, Time)>>,
    doubts: Doubts,
    checks: Mutex<Checks>,
    ended: Notify,
    /// Rings for renewals and for the end of the validity. `None` if the lease is not renewed and
    /// no task waits for its end.
    alarm: Mutex<Option<Alarm>>,
}

/// The part of a lease that is taken at its release.
pub(crate) struct Bond {
    // Field order matters: dropping `guard` sends the releases, which requires the client's nodes.
    pub(crate) guard: ReleaseGuard,
    pub(crate) backing: Arc<Backing>,
}

impl Bond {
    /// The nodes on the runtime of the acquire, or on another if that was shut down.
    pub(crate) fn nodes(&self) -> Arc<Nodes> {
        self.backing.pool.open(self.guard.nodes())
    }
}

impl LeaseState {
    /// A lease with one guard. `guard` releases it, `acquired` is the round that acquired it with
    /// `ttl`.
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
            won: acquired.clone(),
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

    /// The names of the locked resources, in the order of the keys.
    pub(crate) fn resources(&self) -> impl Iterator<Item = &[u8]> {
        self.claim.keys().iter().map(|key| key.get(self.origin.prefix..).unwrap_or_default())
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = Arc<str>> {
        self.origin.nodes.iter().map(|node| node.name.clone())
    }

    /// The client's shared state and its nodes. `None` after the release.
    pub(crate) fn access(&self) -> Option<(Arc<Backing>, Arc<Nodes>)> {
        let bond = lock(&self.bond);
        bond.as_ref().map(|bond| (bond.backing.clone(), bond.nodes()))
    }

    /// Resolves at the next notification of an end.
    pub(crate) fn news(&self) -> Notified<'_> {
        self.ended.notified()
    }

    /// Remaining validity at `now`.
    pub(crate) fn validity(&self, now: Time) -> Duration {
        self.renewal().valid_until(now).map_or(Duration::ZERO, |until| until.since(now))
    }

    pub(crate) fn tenure(&self) -> Tenure {
        self.renewal().tenure(self.origin.clock.now())
    }

    /// Adds a guard and returns the new number. `None` if no guard was left.
    pub(crate) fn enter(&self) -> Option<usize> {
        let more = |guards: usize| if guards == 0 { None } else { guards.checked_add(1) };
        let before = self.guards.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        before.ok().map(|before| before + 1)
    }

    /// Removes a guard and returns the number that is left.
    pub(crate) fn leave(&self) -> usize {
        self.guards.fetch_sub(1, Ordering::AcqRel) - 1
    }

    pub(crate) fn guards(&self) -> usize {
        self.guards.load(Ordering::Acquire)
    }

    /// Ends the lease for its holder. Returns the bond to release, if it was not taken before.
    pub(crate) fn release(&self) -> Option<Bond> {
        let was = self.renewal().release(self.origin.clock.now());
        self.emit_end(was);
        self.take_bond()
    }

    /// Ends the lease because the client is closed.
    pub(crate) fn close(&self) -> Option<Bond> {
        let was = self.renewal().lose(Loss::Closed, self.origin.clock.now());
        self.emit_end(was);
        self.take_bond()
    }

    /// Notifies tasks that wait for the end, and drops the state that only a held lease needs.
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

    /// Starts an extension to `ttl` for the holder. Fails if the lease has ended.
    pub(crate) fn extend(self: &Arc<Self>, ttl: Ttl) -> Result<Arc<Extension>, Tenure> {
        self.begin(Some(ttl), Cause::Asked)
    }

    /// Starts an extension to `ttl`, or a check if `ttl` is `None`.
    fn begin(self: &Arc<Self>, ttl: Option<Ttl>, cause: Cause) -> Result<Arc<Extension>, Tenure> {
        let t1 = self.origin.clock.now();
        let (ttl, round) = match ttl {
            Some(ttl) => (ttl, self.renewal().begin(ttl, t1)?),
            None => self.renewal().begin_check(t1)?,
        };
        let Some((backing, nodes)) = self.access() else { return Err(self.tenure()) };
        let timeout = t1.after(backing.limits.node_timeout);
        let close_at = match round.goal() {
            // Renewals stay open for longer than the node timeout, since no caller waits. After a
            // stall of the nodes, thousands of leases are renewed at once, and all replies together
            // can take longer than a node timeout. Closing these rounds early would repeat all of
            // them.
            Goal::Extend { current, .. } if cause == Cause::Upkeep => {
                t1.after(current.since(t1) / 2).max(timeout).min(current)
            }
            // An extension that is granted after the old end does not count (I9).
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
        // Tasks that wait for a loss need the nodes' invalidations.
        let watches = cause != Cause::Asked || self.is_watched();
        nodes.send_each(|node| {
            let ballot = Ballot::new(extension.clone(), node);
            QueuedCommand::extend(self.claim.clone(), until, watches, ballot)
        });
        Ok(extension)
    }

    /// Handles the end of an extension or a check.
    pub(crate) fn settle(&self, extension: &Extension) -> Extended {
        let now = self.origin.clock.now();
        self.doubts.handle_outcome(&extension.tally);
        let extended =
            extension.tally.with_round(|round| self.renewal().handle_outcome(round, now));
        self.kept.note(extension, extended);
        self.tell(extended);
        extended
    }

    /// Handles the end of a renewal.
    pub(crate) fn settle_upkeep(&self, extension: &Extension) {
        lock(&self.upkeep).take();
        self.doubts.handle_outcome(&extension.tally);
        let (t1, now) = (extension.tally.t1(), self.origin.clock.now());
        let slack = self.slack(now);
        let upkeep = |round: &Round| self.renewal().handle_auto_extension(round, t1, now);
        let extended = extension.tally.with_round(upkeep);
        self.kept.note(extension, extended);
        self.tell(extended);
        self.emit_renewal(extended, slack, extension);
        // The next attempt is due before the alarm that was set for the end of this one.
        if matches!(extended, Extended::Unchanged(_)) {
            self.hasten(now);
        }
    }

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

    /// `node` replied that it holds the keys.
    pub(crate) fn handle_grant(&self, node: NodeId) {
        self.doubts.handle_grant(node);
    }

    fn tell(&self, extended: Extended) {
        if let Extended::Ended(tenure) = extended {
            self.tell_lost(tenure);
        }
    }

    pub(super) fn tell_lost(&self, tenure: Tenure) {
        // An acquire that was not yet sent to a connecting node must not be sent any more.
        self.claim.withdraw();
        self.ended.notify_waiters();
        self.emit_end(tenure);
    }

    /// A key of the lease changed on `node`, by another client. If a quorum may have been lost,
    /// starts a check as soon as the rate limit of [`Checks`] permits.
    pub(crate) fn handle_push(self: &Arc<Self>, node: NodeId) {
        if !self.is_watched() {
            // The lease is not renewed, and no task waits for its end.
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

    /// Starts the requested check if it may begin. Returns when the next one may begin, if
    /// requested.
    fn check(self: &Arc<Self>, now: Time) -> Option<Time> {
        let wanted = lock(&self.checks).begin(now);
        if let Some(wanted) = wanted {
            // An error means that the lease has ended, which its end reports.
            let _ = self.begin(None, Cause::Check);
            if wanted == CheckKind::Renewal {
                self.renewal().make_due(now);
                self.hasten(now);
            }
        }
        lock(&self.checks).due()
    }

    /// Node clocks have stepped forward by `since(t1)`. If that exceeds the drift allowance, keys
    /// may expire early: refreshes them.
    pub(crate) fn handle_step(self: &Arc<Self>, since: impl FnOnce(Time) -> Duration) {
        let drift = lock(&self.bond).as_ref().map(|bond| bond.backing.limits.drift);
        if drift.is_some_and(|drift| self.kept.may_end_early(drift, since)) {
            self.refresh();
        }
    }

    /// Keys may expire before the validity ends. Sets them to expire with the validity, and renews
    /// the lease at once if it is auto-extended. [`Checks`] limits the rate, because a key that is
    /// shortened repeatedly looks like a stopped node clock.
    fn refresh(self: &Arc<Self>) {
        lock(&self.checks).request(CheckKind::Renewal);
        if let Some(due) = self.check(self.origin.clock.now()) {
            // The check needs the alarm, even if no task waits for the end.
            self.watch();
            self.hasten(due);
        }
    }

    /// Sets the alarm for renewals and for the end, unless it is set.
    pub(crate) fn watch(self: &Arc<Self>) {
        let mut alarm = lock(&self.alarm);
        // An alarm from before a fork rings only in the parent.
        if alarm.as_ref().is_none_or(|alarm| !alarm.is_ours()) {
            let this: Arc<dyn Ring> = self.clone();
            // The first ring is immediate; each ring returns the time of the next.
            *alarm =
                Some(self.origin.clock.set_alarm(self.origin.clock.now(), Arc::downgrade(&this)));
        }
    }

    fn is_watched(&self) -> bool {
        lock(&self.alarm).is_some()
    }

    /// Moves the alarm, if set, to `at` or earlier.
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
                // Votes may arrive for a long time, but the end must be reported in time.
                Ok(extension) => match self.renewal().step(now) {
                    Step::Wait { until } => until.min(extension.close_at),
                    Step::Extend { .. } | Step::Ended(_) => now,
                },
                Err(_ended) => now,
            },
            Step::Wait { until } => until,
            Step::Ended(tenure) => {
                self.ended.notify_waiters();
                self.emit_end(tenure);
                return None;
            }
        };
        let close_at = lock(&self.upkeep).as_ref().map(|(_, close_at)| *close_at);
        [close_at, check_at, Some(until)].into_iter().flatten().min()
    }
}
