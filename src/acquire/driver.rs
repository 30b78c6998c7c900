//! What a client acquires with: its nodes, its permits, its queues, and how it is closed.

use super::attempt::Context;
use super::course::Course;
use super::permits::Permits;
use super::request::{AcquireFailure, AcquireRequest, Acquired};
use super::wait_queue::WaitQueues;
use crate::error::CloseError;
use crate::node::{NoRuntime, Nodes, Pool, Timings, Unready, sleep_until};
use crate::observe::Observers;
use crate::protocol::{ClientId, Drift, Quorum, Schedule, Time};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

/// How often one that waits for its connections looks whether its client is closed.
pub(super) const READY_LOOK: Duration = Duration::from_millis(100);

/// How often a closing client looks whether all is delivered.
const CLOSE_POLL: Duration = Duration::from_millis(1);

/// What one client acquires with.
pub(crate) struct Driver {
    pub(super) context: Context,
    pub(super) drift: Drift,
    pub(super) connect_timeout: Duration,
    pool: Arc<Pool>,
    is_closed: AtomicBool,
}

impl Driver {
    pub(crate) fn new(
        client: ClientId,
        quorum: Quorum,
        drift: Drift,
        timings: Timings,
        pool: Arc<Pool>,
        queues: Arc<WaitQueues>,
    ) -> Self {
        let context = Context {
            client,
            quorum,
            node_timeout: timings.answer,
            queues,
            seen: AtomicU64::new(0),
            #[cfg(feature = "test-util")]
            raises: AtomicU64::new(0),
            permits: Permits::default(),
        };
        let (connect_timeout, is_closed) = (timings.connect, AtomicBool::new(false));
        Self { context, drift, connect_timeout, pool, is_closed }
    }

    /// Makes attempts until one is won or there is reason to give up.
    ///
    /// # Cancel safety
    /// Dropping the future releases on every node what an attempt may have set there.
    pub(crate) async fn acquire(
        &self,
        request: AcquireRequest,
        schedule: Schedule,
    ) -> Result<Acquired, AcquireFailure> {
        Course::new(self, &request, schedule).run().await
    }

    /// What time it is by the client's clock.
    pub(super) fn now(&self) -> Time {
        self.pool.clock().now()
    }

    /// Who is told what happens.
    pub(super) fn observers(&self) -> &Observers {
        self.pool.observers()
    }

    /// How many wait, or try at the head of their queue.
    #[cfg(feature = "test-util")]
    pub(crate) fn waiters(&self) -> usize {
        self.context.queues.count()
    }

    /// How many waiters were looked at as something had gone that may have been in their way.
    #[cfg(feature = "test-util")]
    pub(crate) fn waiter_checks(&self) -> u64 {
        self.context.queues.looks.load(Ordering::Relaxed)
    }

    /// How many attempts have needed a second round.
    #[cfg(feature = "test-util")]
    pub(crate) fn token_confirmations(&self) -> u64 {
        self.context.raises.load(Ordering::Relaxed)
    }

    /// The number of releases that the nodes have not confirmed.
    #[cfg(feature = "test-util")]
    pub(crate) fn pending_releases(&self) -> usize {
        self.pool.shared().iter().map(|node| node.pending_releases()).sum()
    }

    /// How many attempts are under way.
    pub(crate) fn attempts(&self) -> usize {
        self.context.permits.taken()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// The nodes, if they can be asked.
    pub(crate) fn ready(&self) -> Result<Arc<Nodes>, Unready> {
        if self.is_closed() {
            return Err(Unready::Closed);
        }
        let nodes = self.pool.here().map_err(Unready::NoRuntime)?;
        if nodes.is_open() { Ok(nodes) } else { Err(Unready::NoRuntime(NoRuntime::Absent)) }
    }

    /// Resolves when a quorum is connected on the current runtime, and no attempt has to wait for more.
    pub(crate) async fn wait_until_ready(&self) -> Result<(), Unready> {
        loop {
            let nodes = self.ready()?;
            let mut ready =
                pin!(nodes.links().wait_for(|links| links.has_quorum() && links.is_warm()));
            // A client that is closed, or a runtime that is shut down, tells nobody.
            let mut look = pin!(sleep_until(&nodes, self.now().after(READY_LOOK)));
            let is_ready = poll_fn(|cx| match ready.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(true),
                Poll::Pending => look.as_mut().poll(cx).map(|()| false),
            });
            if is_ready.await {
                return Ok(());
            }
        }
    }

    /// Refuses all acquires from now on, and waits up to `limit` until every attempt is over and every
    /// release that was asked for is delivered.
    pub(crate) async fn close(&self, limit: Duration) -> Result<(), CloseError> {
        self.is_closed.store(true, Ordering::SeqCst);
        self.context.queues.close();
        self.pool.wake();
        let is_done = || self.attempts() == 0 && self.pending().is_empty();
        let deadline = self.now().after(limit);
        while !is_done() && self.now() < deadline {
            // Starts the tasks that deliver, if the runtime that they ran on was shut down.
            let Ok(nodes) = self.pool.here() else { break };
            sleep_until(&nodes, self.now().after(CLOSE_POLL)).await;
        }
        if !is_done() {
            return Err(self.remains());
        }
        // Nothing can be owed from now on.
        self.pool.end();
        Ok(())
    }

    /// What a client that was closed has not given back.
    pub(crate) fn remains(&self) -> CloseError {
        CloseError::new(self.pending(), self.attempts())
    }

    /// The nodes that are owed releases, and how many.
    fn pending(&self) -> Vec<(Arc<str>, usize)> {
        let nodes =
            self.pool.shared().iter().map(|node| (node.name.clone(), node.pending_releases()));
        nodes.filter(|(_, pending)| *pending > 0).collect()
    }
}
