//! Clients that are closed, and runtimes that are shut down, while a lock is acquired, held or
//! released.

use super::SoloCall;
use crate::clock::{Instant, MS};
use crate::event::WorldEvent;
use crate::process::{millis, nanos};
use crate::rule::Rule;
use crate::trace::note;
use crate::worker::{RuntimeRef, Worker};
use crate::world::UnfinishedTask;
use futures::future::join;
use quorlock::{AcquireError, Lease, LeaseRef, Redlock};
use std::pin::{Pin, pin};
use std::task::Poll;
use tokio::sync::oneshot;

impl Worker {
    pub(super) async fn close_during_acquire(self, solo: SoloCall) {
        let SoloCall::Closed { after, at_least, waits, is_held, every } = solo else { return };
        let own = self.own_name(0);
        let (number, client) = self.another_client();
        let ttl = self.times.ttl_ms;
        let holder = if is_held { self.own_lease(&own).await } else { None };
        // This client has already had a lease, and a view of that lease still exists.
        let seen = if at_least { self.ended_lease(&client).await } else { None };
        let mut acquire = if waits {
            client.acquire(&own).wait(millis(2 * ttl))
        } else {
            client.try_acquire(&own)
        };
        if at_least {
            acquire = acquire.at_least(millis(ttl / 2));
        } else {
            acquire = acquire.auto_extend(millis(4 * ttl));
        }
        let mut acquire: Pin<Box<dyn Future<Output = _> + Send>> = match every {
            None => Box::pin(acquire),
            Some(every) => Box::pin(self.rarely_polled(every, acquire)),
        };
        let early = self.within(after, acquire.as_mut()).await;
        let closer = Self { redlock: client.clone(), client: number, ..self.clone() };
        let begun = self.now();
        let close = async {
            let mut call = Box::pin(closer.close());
            let result = match futures::poll!(call.as_mut()) {
                Poll::Ready(done) => done,
                Poll::Pending => {
                    closer.expect_refusal();
                    call.await
                }
            };
            if self.was_prompt_since(begun) {
                self.checker.state().check(Rule::Closes, result.is_ok(), || {
                    format!("p{}: close() failed on healthy nodes: {result:?}", self.process)
                });
            }
            if result.is_ok() {
                closer.check_pending_work();
            }
            (result.is_ok(), self.shared.lock().count_nodes_with_key(&own))
        };
        // An acquire that is waiting must return when its client is closed.
        let bound = nanos(self.times.connect_timeout) + 2 * every.unwrap_or_default();
        let ((is_closed, left), won) = match early {
            Some(won) => (close.await, won),
            None => self.timed("an acquire of a closed client", bound, join(close, acquire)).await,
        };
        if is_closed {
            closer.check_alarms(begun).await;
        }
        drop(seen);
        let mut state = self.checker.state();
        match won {
            Ok(lease) => state.check(Rule::Closes, !lease.is_valid(), || {
                format!("p{}: {own} is held after the close", self.process)
            }),
            // A closed acquire has deleted its keys before `close()` returns.
            Err(AcquireError::Closed) if is_closed && holder.is_none() => {
                state.check(Rule::Closes, left == 0, || {
                    format!("p{}: a closed acquire left the key {own}", self.process)
                });
            }
            Err(_) => {}
        }
    }

    /// Acquires a lease of `client` with auto-extension, watches it, and drops it. Returns a view
    /// of the ended lease, or `None` if the acquire failed.
    async fn ended_lease(&self, client: &Redlock) -> Option<LeaseRef> {
        let acquire = client.try_acquire(self.own_name(1));
        let lease = acquire.auto_extend(millis(4 * self.times.ttl_ms)).await.ok()?;
        let view = lease.view();
        let _ = futures::poll!(pin!(view.lost()));
        Some(view)
    }

    /// Returns a runtime that is being polled, other than the current one. Returns `None` if there
    /// is none that could deliver a release.
    fn elsewhere(&self, runtime: usize) -> Option<RuntimeRef> {
        let here = self.runtime_states.running();
        let core = self.shared.lock();
        let held = &core.processes[self.process].held;
        // If all connections belong to a runtime that does not run, releases are not delivered.
        if core.processes[self.process].is_pinned {
            return None;
        }
        let runs = |home: &&RuntimeRef| {
            let index = home.index;
            index != here && self.runtime_states.is_alive(index) && held[index] <= core.now
        };
        let others: Vec<_> = self.runtimes.iter().filter(runs).collect();
        others.get(runtime % others.len().max(1)).copied().cloned()
    }

    pub(super) async fn release_elsewhere(
        self,
        runtime: usize,
        is_served: bool,
        ends: Option<Instant>,
    ) {
        let home = self.runtime_states.running();
        let own = self.own_name(0);
        let Some(elsewhere) = self.elsewhere(runtime) else { return };
        let Some(lease) = self.own_lease(&own).await else { return };
        let lasting = 2 * self.freed_after();
        let (done, is_done) = oneshot::channel();
        let this = self.clone();
        self.spawn(&elsewhere.handle, async move {
            // Start tasks on this runtime that can take over the release.
            if is_served {
                this.use_client_here().await;
            }
            let begun = this.now();
            let loses_connections = ends.is_some() && this.is_connected_on(home);
            match ends {
                None => this.hold_up(home, lasting),
                Some(after) => this.stop_polling(home, after),
            }
            if let Some(after) = ends.filter(|_| is_served) {
                this.sleep(after + MS).await;
                this.extend_elsewhere(&lease, home, begun, loses_connections).await;
            }
            let sent = this.now();
            let released = lease.release().await;
            if ends.is_some() && !this.is_disturbed(home, begun, sent) {
                let what = format!("{own} was released on another runtime: {released:?}");
                this.check_elsewhere(released.is_ok(), loses_connections, &what);
            }
            let left = (begun + this.freed_after()).saturating_sub(this.now());
            this.sleep(left).await;
            if this.now() < begun + lasting {
                this.check_freed(&[own], begun, home);
            }
            let _ = done.send(());
        });
        let _ = is_done.await;
    }

    /// Extends a lease whose runtime was shut down. Checks that the command is sent from another
    /// runtime.
    async fn extend_elsewhere(
        &self,
        lease: &Lease,
        home: usize,
        begun: Instant,
        lost_connections: bool,
    ) {
        let sent = self.now();
        let extended = lease.extend(millis(self.times.ttl_ms)).await;
        if lease.loss().is_none() && !self.is_disturbed(home, begun, sent) {
            let what = format!("extended on another runtime: {extended:?}");
            self.check_elsewhere(extended.is_ok(), lost_connections, &what);
        }
    }

    /// Returns true if a command that was sent at `sent` may fail because tasks are delayed, or
    /// because a runtime was shut down after `sent`. The runtime `home` is not polled since `begun`.
    fn is_disturbed(&self, home: usize, begun: Instant, sent: Instant) -> bool {
        let stalled = self.shared.lock().stalled_beside(self.process, home, begun);
        !self.is_prompt || stalled > 0 || self.lost_a_runtime_since(sent)
    }

    /// Checks that a command after the shutdown of a runtime succeeds. Only a client that has lost
    /// connections to the shutdown meets the condition of the rule.
    fn check_elsewhere(&self, is_kept: bool, lost_connections: bool, what: &str) {
        let mut state = self.checker.state();
        state.counts.add(Rule::Elsewhere, u64::from(lost_connections));
        if !is_kept {
            state.violated(Rule::Elsewhere, format!("p{}: {what}", self.process));
        }
    }

    fn is_connected_on(&self, runtime: usize) -> bool {
        self.shared.lock().is_connected_on(self.process, self.client, runtime)
    }

    fn stop_polling(&self, runtime: usize, after: Instant) {
        self.runtime_states.stop_polling(runtime);
        let core = &mut *self.shared.lock();
        let at = core.now + after;
        core.events.plan(at, WorldEvent::Shutdown { process: self.process, runtime });
    }

    fn hold_up(&self, runtime: usize, lasting: Instant) {
        let core = &mut *self.shared.lock();
        note!(core, "runtime {runtime} of p{} is not driven", self.process);
        let until = core.now + lasting;
        let it = &mut core.processes[self.process];
        it.held[runtime] = it.held[runtime].max(until);
        core.record_stall(self.process, Some(runtime), lasting);
        core.events.plan(until, WorldEvent::Tick);
    }

    /// Checks that the locks `names`, which were released at `begun`, are free. Skips the check if
    /// a runtime other than `unpolled` has stalled since then.
    fn check_freed(&self, names: &[String], begun: Instant, unpolled: usize) {
        let core = self.shared.lock();
        if core.stalled_beside(self.process, unpolled, begun) > 0 {
            return;
        }
        // The replies of a minority may not have been read. In this case, only this client can
        // release the lock on these nodes.
        let quorum = core.nodes.len() / 2 + 1;
        let is_free = |name: &str| core.nodes.len() - core.count_nodes_with_key(name) >= quorum;
        let left = names.iter().find(|name| !is_free(name)).cloned();
        drop(core);
        self.checker.state().check(Rule::Freed, left.is_none(), || {
            format!("p{}: {left:?} was released, but is not free", self.process)
        });
    }

    pub(super) async fn leave_orphans(self, runtime: usize, count: u32, is_served_before: bool) {
        let home = self.runtime_states.running();
        let names: Vec<_> = (0..count).map(|which| self.own_name(which)).collect();
        let Some(elsewhere) = self.elsewhere(runtime) else { return };
        let mut leases = Vec::new();
        for own in &names {
            leases.extend(self.own_lease(own).await);
        }
        let (ready, is_ready) = oneshot::channel();
        let (left, is_left) = oneshot::channel();
        let (this, planned) = (self.clone(), UnfinishedTask::new(&self.planned));
        self.spawn(&elsewhere.handle, async move {
            if is_served_before {
                this.use_client_here().await;
            }
            let _ = ready.send(());
            if is_left.await.is_ok() {
                let begun = this.now();
                // The next runtime that uses the client delivers the pending releases, but must
                // connect first.
                this.use_client_here().await;
                this.sleep(2 * this.freed_after()).await;
                this.check_freed(&names, begun, home);
            }
            drop(planned);
        });
        if is_ready.await.is_err() || !self.runtime_states.is_alive(elsewhere.index) {
            return;
        }
        drop(leases);
        let _ = left.send(());
        self.stop_polling(home, 0);
        std::future::poll_fn(|_| Poll::<()>::Pending).await;
    }

    /// Uses the client on the current runtime, so that the client has tasks there.
    async fn use_client_here(&self) {
        let own = self.own_name(9);
        if let Some(lease) = self.own_lease(&own).await {
            drop(lease.release().await);
        }
    }
}
