//! State of a lease, shared by its guards and the tasks that wait for its end.

use super::limits::Limits;
use crate::coordinator::{Claim, LeaseId, Replies, SharedLease};
use crate::engine::{AcquiredLease, Client, Engine};
use crate::observe::event::LockInfo;
use crate::observe::{AcquireTag, Observers, Report};
use crate::protocol::{LeaseStatus, Loss, Time, Ttl};
use crate::sync::lock;
use crate::time::{Alarm, Clock, OnAlarm};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// The client of a lease, and the engine that renews the lease.
#[derive(Clone)]
pub(super) struct LeaseClient {
    pub(super) client: Arc<Client>,
    pub(super) engine: Arc<Engine>,
}

/// Clock, event receivers and limits that all leases of a client share. This value does not keep
/// the client or its connections alive.
pub(crate) struct LeaseContext {
    pub(super) clock: Clock,
    pub(super) observers: Observers,
    pub(super) limits: Limits,
    /// Length of the key prefix in bytes.
    pub(super) prefix: usize,
}

pub(crate) struct LeaseState {
    id: LeaseId,
    shared: Arc<SharedLease>,
    /// `None` after the release, so that a remaining view does not keep the client and its
    /// connections alive.
    client: Mutex<Option<LeaseClient>>,
    /// Engine that stores the replies to the acquire until it executes the release of the lease.
    engine: Weak<Engine>,
    context: Arc<LeaseContext>,
    ttl: Ttl,
    tag: AcquireTag,
    /// Time just before the client sent the first command of the acquire (T1).
    since: Time,
    guards: AtomicUsize,
    is_watched: AtomicBool,
    /// Alarm at the end of the validity, for a lease that was inherited from a parent process.
    alarm: OnceLock<Box<Alarm>>,
    ended: Notify,
    /// Replies to the acquire. Set when the lease is released.
    replies: Mutex<Option<Box<Replies>>>,
}

impl LeaseState {
    pub(crate) fn new(
        client: &Arc<Client>,
        acquired: AcquiredLease,
        context: &Arc<LeaseContext>,
        (ttl, tag): (Ttl, AcquireTag),
    ) -> Arc<Self> {
        let engine = acquired.engine;
        Arc::new(Self {
            id: acquired.id,
            client: Mutex::new(Some(LeaseClient {
                client: client.clone(),
                engine: engine.clone(),
            })),
            engine: Arc::downgrade(&engine),
            context: context.clone(),
            ttl,
            tag,
            since: acquired.since,
            shared: acquired.shared,
            guards: AtomicUsize::new(1),
            is_watched: AtomicBool::new(false),
            alarm: OnceLock::new(),
            ended: Notify::new(),
            replies: Mutex::default(),
        })
    }

    pub(super) fn id(&self) -> LeaseId {
        self.id
    }

    pub(crate) fn claim(&self) -> &Arc<Claim> {
        self.shared.claim()
    }

    pub(crate) fn now(&self) -> Time {
        self.context.clock.now()
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.context.clock
    }

    pub(crate) fn ttl(&self) -> Ttl {
        self.ttl
    }

    pub(crate) fn since(&self) -> Time {
        self.since
    }

    pub(crate) fn resources(&self) -> impl Iterator<Item = &[u8]> {
        self.claim().keys().iter().map(|key| key.get(self.context.prefix..).unwrap_or_default())
    }

    pub(crate) fn lock_info(&self) -> LockInfo {
        self.tag.lock(self.claim().keys(), self.context.prefix)
    }

    pub(super) fn observers(&self) -> &Observers {
        &self.context.observers
    }

    /// Stores the replies to the acquire. The engine removes them when it executes the release.
    pub(super) fn store_replies(&self, replies: Option<Box<Replies>>) {
        *lock(&self.replies) = replies;
    }

    pub(super) fn client(&self) -> Option<LeaseClient> {
        lock(&self.client).clone()
    }

    /// Returns the client's limits for durations, or `None` after the release.
    pub(super) fn limits(&self) -> Option<Limits> {
        self.client().map(|_| self.context.limits)
    }

    /// Returns the replies to the acquire, including replies that arrived after the quorum was
    /// reached.
    pub(super) fn report(&self) -> Report {
        let engine = self.engine.upgrade();
        let report = engine.and_then(|it| it.with(|it, now| it.lease_report(self.id, now)));
        if let Some(report) = report.flatten() {
            return report;
        }
        let replies = lock(&self.replies);
        replies
            .as_ref()
            .map_or_else(|| Report::new(0, Arc::new([])), |replies| replies.report(self.now()))
    }

    pub(crate) fn end_notified(&self) -> Notified<'_> {
        self.ended.notified()
    }

    pub(crate) fn validity(&self, now: Time) -> Duration {
        match self.shared.status(now) {
            LeaseStatus::Held { valid_until } => valid_until.since(now),
            LeaseStatus::Lost(_) | LeaseStatus::Released => Duration::ZERO,
        }
    }

    pub(crate) fn status(&self) -> LeaseStatus {
        self.shared.status(self.now())
    }

    /// Adds a guard and returns the new number of guards. Returns `None` if the last guard has
    /// already been released or dropped.
    pub(crate) fn enter(&self) -> Option<usize> {
        let more = |guards: usize| if guards == 0 { None } else { guards.checked_add(1) };
        let before = self.guards.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        before.ok().map(|before| before + 1)
    }

    pub(crate) fn leave(&self) -> usize {
        self.guards.fetch_sub(1, Ordering::AcqRel) - 1
    }

    pub(crate) fn guards(&self) -> usize {
        self.guards.load(Ordering::Acquire)
    }

    /// Ensures that tasks waiting for the end of the lease are notified.
    pub(crate) fn watch(self: &Arc<Self>) {
        let Some(LeaseClient { engine, .. }) = self.client() else { return };
        // An error means that this call has no runtime. A task on another runtime may still serve
        // the nodes.
        let _no_runtime = engine.ensure_task().is_err();
        if !self.is_watched.swap(true, Ordering::AcqRel) {
            engine.with(|it, now| it.handle_watch(self.id, now));
        }
        if let LeaseStatus::Held { valid_until } = self.status()
            && !engine.is_usable()
        {
            // The coordinator of the parent process cannot report the end in this process.
            let callback: Weak<dyn OnAlarm> = Arc::<Self>::downgrade(self);
            self.alarm
                .get_or_init(|| Box::new(self.context.clock.set_alarm(valid_until, callback)));
        }
    }

    /// Ends the lease with [`Loss::Internal`] after a panic of the coordinator.
    pub(crate) fn handle_failure(&self) {
        self.shared.end_as(Loss::Internal);
        self.wake_waiters();
    }

    pub(crate) fn wake_waiters(&self) {
        self.ended.notify_waiters();
    }

    /// Ends the lease in this process, and removes its reference to the client. Returns the client,
    /// and whether the lease's engine is usable. Returns `None` if the lease was already released.
    pub(super) fn end_and_detach(&self) -> Option<(LeaseClient, bool)> {
        self.shared.end(self.now());
        let client = lock(&self.client).take()?;
        let is_usable = client.engine.is_usable();
        if is_usable {
            client.engine.leases().handle_release(self.id);
        }
        self.ended.notify_waiters();
        Some((client, is_usable))
    }

    pub(crate) fn end_by_close(&self) {
        self.shared.end_as(Loss::Closed);
        if let Some(client) = lock(&self.client).take() {
            self.store_replies(
                client.engine.with(|it, _| it.take_lease_replies(self.id)).flatten(),
            );
        }
        self.ended.notify_waiters();
    }

    pub(super) fn loss(&self) -> Option<Loss> {
        if let LeaseStatus::Lost(loss) = self.status() { Some(loss) } else { None }
    }
}

impl OnAlarm for LeaseState {
    /// Called at the end of the validity, but only for a lease that was inherited from a parent process.
    fn on_alarm(self: Arc<Self>, _: Time) -> Option<Time> {
        self.wake_waiters();
        None
    }
}
