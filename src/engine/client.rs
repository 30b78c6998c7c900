//! The operations of a client on its engine.

use super::shared::{CallId, Engine};
use crate::coordinator::{
    AcquireFailure, AcquireRequest, Completion, LeaseId, NodeLock, SharedLease,
};
use crate::error::CloseError;
use crate::node::{NoRuntime, Unready};
use crate::observe::Report;
use crate::protocol::NodeId;
use crate::wire::{Key, Keys};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

/// The part of a client that its handles and its leases share. The connections end after the last of them is dropped.
pub(crate) struct Client {
    engine: Arc<Engine>,
    is_closed: AtomicBool,
}

/// A lease that its caller has taken.
pub(crate) struct Won {
    pub(crate) id: LeaseId,
    pub(crate) shared: Arc<SharedLease>,
}

/// Why an acquire has no lease.
pub(crate) enum Failure {
    NoRuntime(NoRuntime),
    Failed(AcquireFailure),
}

impl Client {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self { engine, is_closed: AtomicBool::new(false) }
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// Fails if the client is closed, or if there is no runtime for its connections.
    pub(crate) fn check_ready(&self) -> Result<(), Unready> {
        if self.is_closed() {
            return Err(Unready::Closed);
        }
        self.engine.ensure_tasks().map_err(Unready::NoRuntime)
    }

    /// Acquires a lock. `is_renewed`: the lease is renewed from now on.
    pub(crate) async fn acquire(
        &self,
        request: AcquireRequest,
        is_renewed: bool,
    ) -> Result<Won, Failure> {
        if self.is_closed() {
            return Err(Failure::Failed(AcquireFailure::Closed));
        }
        self.engine.ensure_tasks().map_err(Failure::NoRuntime)?;
        let wall_us = self.engine.environment().clock.wall_us();
        let submit = |it: &mut crate::coordinator::Coordinator, now| {
            it.set_wall_clock(wall_us, now);
            it.handle_acquire(request, now)
        };
        let id = self.engine.submit(submit, |id| Some(CallId::Acquire(*id)));
        let mut call = self.engine.acquire_call(id);
        loop {
            match (&mut call).await {
                Completion::Acquired { lease, shared, .. } if shared.take(self.engine.now()) => {
                    call.end();
                    if is_renewed {
                        self.engine.with(|it, now| it.handle_taken(lease, now));
                    }
                    return Ok(Won { id: lease, shared });
                }
                Completion::AcquireFailed { failure, .. } => return Err(Failure::Failed(failure)),
                // The lease was revoked or has ended: the acquire continues.
                _ => self.engine.with(|it, now| it.handle_untaken(id, now)),
            }
        }
    }

    pub(crate) async fn status(&self, keys: Keys) -> Option<(Box<[NodeLock]>, Report)> {
        let submit = |it: &mut crate::coordinator::Coordinator, now| it.handle_status(keys, now);
        let id = self.engine.submit(submit, |id| Some(CallId::Round(*id)));
        match self.engine.round_call(id).await {
            Completion::Status { nodes, report, .. } => Some((nodes, report)),
            _ => None,
        }
    }

    pub(crate) async fn force_release(&self, keys: Keys) -> Option<Report> {
        let submit =
            |it: &mut crate::coordinator::Coordinator, now| it.handle_force_release(keys, now);
        let id = self.engine.submit(submit, |id| Some(CallId::Round(*id)));
        match self.engine.round_call(id).await {
            Completion::ForceReleased { report, .. } => Some(report),
            _ => None,
        }
    }

    /// Releases all leases. Returns the first key of each lease, with the completion of its release.
    pub(crate) async fn release_all(&self) -> Vec<(Key, Completion)> {
        let submit = |it: &mut crate::coordinator::Coordinator, now| it.handle_release_all(now);
        let released = self.engine.submit_all(submit);
        let mut ended = Vec::new();
        for (key, id) in released {
            ended.push((key, self.engine.round_call(id).await));
        }
        ended
    }

    /// Number of acquires that wait or make an attempt.
    pub(crate) fn waiters(&self) -> usize {
        self.engine.with(|it, _| it.acquires().0)
    }

    /// Number of attempts under way.
    pub(crate) fn attempts(&self) -> usize {
        self.engine.with(|it, _| it.acquires().1)
    }

    /// Number of releases that the nodes have not confirmed.
    #[cfg(feature = "test-util")]
    pub(crate) fn pending_releases(&self) -> usize {
        self.each_pending().into_iter().sum()
    }

    fn each_pending(&self) -> Vec<usize> {
        self.engine.with(|it, _| {
            let nodes = (0..self.engine.nodes.len()).map(NodeId::new);
            nodes.map(|node| it.pending_releases(node)).collect()
        })
    }

    /// Number of attempts so far that had to confirm their fencing token.
    #[cfg(feature = "test-util")]
    pub(crate) fn token_confirmations(&self) -> u64 {
        self.engine.with(|it, _| it.confirmations())
    }

    /// Number of times that an acquire was checked because a key was freed.
    #[cfg(feature = "test-util")]
    pub(crate) fn waiter_checks(&self) -> u64 {
        self.engine.with(|it, _| it.waiter_checks())
    }

    /// Resolves when a quorum is connected.
    pub(crate) async fn wait_until_ready(&self) -> Result<(), Unready> {
        poll_fn(|cx| match self.check_ready() {
            Err(unready) => Poll::Ready(Err(unready)),
            Ok(()) if self.engine.poll_ready(cx.waker()) => Poll::Ready(Ok(())),
            Ok(()) => Poll::Pending,
        })
        .await
    }

    /// Refuses all calls from now on, releases all leases, and waits until the releases are delivered.
    pub(crate) async fn close(&self, limit: Duration) -> Result<(), CloseError> {
        self.begin_close(limit);
        let closed = poll_fn(|cx| {
            let _no_runtime = self.engine.ensure_tasks().is_err();
            self.engine.poll_closed(cx.waker()).map_or(Poll::Pending, Poll::Ready)
        });
        closed.await.map_err(|_| self.remains())
    }

    fn begin_close(&self, limit: Duration) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.engine.leases.handle_close();
        self.engine.with(|it, now| it.handle_close(limit, now));
        self.engine.wake_ready();
    }

    /// The releases of a closed client that are not delivered.
    pub(crate) fn remains(&self) -> CloseError {
        let names = self.engine.pool.shared().iter().map(|node| node.name.clone());
        let pending = names.zip(self.each_pending()).filter(|(_, pending)| *pending > 0).collect();
        CloseError::new(pending, 0)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if !self.is_closed() {
            self.begin_close(Duration::MAX);
        }
    }
}
