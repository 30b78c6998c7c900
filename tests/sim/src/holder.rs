//! Work under a lock, and the end of the lease.

use crate::call::{End, HeldStep, Lock, Watch};
use crate::checker::{HeldId, Usage};
use crate::clock::{Instant, MS};
use crate::ledger::{Commit, lock_of};
use crate::process::{millis, nanos};
use crate::readers::Access;
use crate::rule::Rule;
use crate::worker::{Worker, name};
use futures::future::{Either, select};
use quorlock::{AcquireError, ExtendError, Lease, LeaseRef, Loss};
use std::pin::pin;
use std::time::Duration;
use tokio::runtime::Handle;

impl Worker {
    /// Handles the result of an acquire. If the lock was acquired, works under the lease and then
    /// ends it.
    pub(crate) async fn hold(self, won: Result<Lease, AcquireError>, lock: &Lock) {
        let lease = match won {
            Ok(lease) => lease,
            Err(error) => {
                self.log(format_args!("refused: {error}"));
                self.check_withheld(error.report());
                let mut state = self.checker.state();
                state.inspect(&format!("{error} {error:?}"));
                if matches!(error, AcquireError::Invalid(_)) {
                    state
                        .violated(Rule::Bounds, format!("invalid call of the simulation: {error}"));
                }
                return;
            }
        };
        let lock = &lock.held_by(&lease);
        // The maximum hold time starts with the attempt, so it may have passed already.
        let may_end = matches!(lease.loss(), Some(Loss::Closed | Loss::MaxHold));
        let is_alive = !lease.validity().is_zero() || may_end;
        self.checker.state().check(Rule::Alive, is_alive, || {
            let (process, resources, loss) = (self.process, &lock.resources, lease.loss());
            format!("p{process}: {resources:?} was acquired after its end: {loss:?}")
        });
        let id = self.begin(&lease, lock, None);
        let end = Reliance { worker: &self, id };
        self.take_steps(id, &lease, lock).await;
        self.end(lease, end, lock).await;
    }

    /// Records when a cool-down of `ms` milliseconds ends. The cool-down starts now or has started
    /// earlier, and the recorded end allows for slow clocks.
    pub(crate) fn record_cool_down_end(&self, ms: u64) {
        let core = &mut *self.shared.lock();
        let until = core.now + ms * MS / 50 * 51 + 20 * MS;
        core.cool_down_until = core.cool_down_until.max(Some(until));
    }

    /// Records that the work under a lease starts. If `lock.watch` is set, also starts a task that
    /// watches the lease. Returns the lease's ID. `begun` is the time of the call if the lease may
    /// have been renewed since its acquire.
    pub(crate) fn begin(&self, lease: &Lease, lock: &Lock, begun: Option<Instant>) -> HeldId {
        if let Some(ms) = lock.at_least {
            self.record_cool_down_end(ms);
        }
        if let End::ReleaseAfter { ms } = lock.end {
            self.record_cool_down_end(ms);
        }
        self.log(format_args!("holds {:?} for {:?}", lock.resources, lease.validity()));
        self.inspect(&lease.report());
        self.check_withheld(Some(&lease.report()));
        let commits = self.check_token(lease, lock, begun);
        let is_reader = lock.access == Access::Read;
        let (now, kept_until) = (self.now(), self.kept_until(lease, lock, begun));
        let id = {
            let mut state = self.checker.state();
            let (process, permits) = (self.process, lock.permits);
            let usage = Usage { process, resources: &lock.resources, is_reader, permits, now };
            let id = state.begin(&usage, lease, commits);
            for resource in &lock.resources {
                state.check_cool_downs(*resource, (id, is_reader), now);
                // An adoption ends the minimum hold time.
                if let Some(until) =
                    kept_until.filter(|_| !matches!(lock.end, End::HandOver { .. }))
                {
                    state.cool_downs.add(*resource, id, is_reader, until);
                }
            }
            id
        };
        if let Some(watch) = lock.watch {
            let (view, this) = (lease.view(), self.clone());
            self.spawn(&Handle::current(), async move {
                match watch {
                    Watch::Ended => this.watch(view).await,
                    Watch::Endangered { margin } => this.watch_margin(view, millis(margin)).await,
                }
            });
        }
        id
    }

    /// Records that the work under a lease of an ordinary lock starts. Returns the lease's ID.
    pub(crate) fn begin_alone(
        &self,
        resource: usize,
        lease: &Lease,
        commits: Vec<(usize, Commit)>,
    ) -> HeldId {
        let (process, now) = (self.process, self.now());
        let usage = Usage { process, resources: &[resource], is_reader: false, permits: None, now };
        self.checker.state().begin(&usage, lease, commits)
    }

    /// Waits for the end of the lease, and checks that the library reports the end promptly.
    async fn watch(&self, lease: LeaseRef) {
        let mut ended = pin!(lease.ended());
        loop {
            let left = nanos(lease.validity()).max(MS / 10);
            let pause = self.sleep(left);
            match select(ended.as_mut(), pause).await {
                Either::Left(_) => return,
                Either::Right(((), _)) if lease.is_valid() => {}
                Either::Right(((), _)) => break,
            }
        }
        let since = self.now();
        ended.await;
        let now = self.now();
        let late = now - since;
        let allowed = self.slack + 2 * self.stalled_since(since) + 5 * MS;
        self.checker.state().check(Rule::LossReported, late <= allowed, || {
            format!("a loss was reported after {} ms", late / MS)
        });
    }

    /// Waits for `endangered()`, and checks that it resolves neither too late nor too early.
    async fn watch_margin(&self, lease: LeaseRef, margin: Duration) {
        let allowed = |since| self.slack + 2 * self.stalled_since(since) + 5 * MS;
        let mut endangered = pin!(lease.endangered(margin));
        loop {
            let left = nanos(lease.validity().saturating_sub(margin)).max(MS / 10);
            match select(endangered.as_mut(), self.sleep(left)).await {
                Either::Left((left, _)) => {
                    let is_due = left <= margin + millis(5);
                    return self.checker.state().check(Rule::EndangeredReported, is_due, || {
                        format!(
                            "endangered() resolved with {left:?} left, the margin is {margin:?}"
                        )
                    });
                }
                Either::Right(((), _)) if lease.validity() > margin => continue,
                Either::Right(((), _)) => {}
            }
            let since = self.now();
            // A concurrent renewal ends the loop, because a renewed lease has more than the margin
            // left.
            while lease.validity() <= margin {
                let late = self.now() - since;
                if late > allowed(since) {
                    let how = format!(
                        "at most {margin:?} have been left for {} ms without a notification",
                        late / MS
                    );
                    self.checker.state().violated(Rule::EndangeredReported, how);
                    return;
                }
                if self.within(20 * MS, endangered.as_mut()).await.is_some() {
                    self.checker.state().met(Rule::EndangeredReported);
                    return;
                }
            }
        }
    }

    /// Works under the lease for `overtime`, even if the lease is lost. The library must drop this
    /// future soon after the loss. Otherwise, a violation is recorded.
    pub(crate) async fn work_on(&self, lease: &Lease, overtime: Instant) {
        let until = self.now() + overtime;
        let mut ended = None;
        while self.now() < until {
            let left = nanos(lease.validity());
            let pause = if left > 0 { left } else { MS };
            self.sleep(pause.min(until - self.now())).await;
            if lease.is_valid() {
                continue;
            }
            let since = *ended.get_or_insert_with(|| {
                self.checker.state().met(Rule::WorkStops);
                self.now()
            });
            let late = self.now() - since;
            if late > self.slack + 2 * self.stalled_since(since) + 5 * MS {
                let how =
                    format!("p{}: work continues {} ms after the loss", self.process, late / MS);
                self.checker.state().violated(Rule::WorkStops, how);
                return;
            }
        }
    }

    pub(crate) async fn take_steps(&self, id: HeldId, lease: &Lease, lock: &Lock) {
        for step in &lock.steps {
            if let Some(loss) = lease.loss() {
                if matches!(loss, Loss::QuorumLost | Loss::TakenOver) {
                    let how = format!("p{} lost {:?}: {loss}", self.process, lock.resources);
                    self.checker.state().violated(Rule::NotLost, how);
                }
                return;
            }
            self.checker.state().met(Rule::NotLost);
            self.take(*step, id, lease, lock).await;
        }
    }

    async fn take(&self, step: HeldStep, id: HeldId, lease: &Lease, lock: &Lock) {
        let node = nanos(self.times.node_timeout);
        match step {
            HeldStep::Work { lasting } => self.sleep(lasting).await,
            HeldStep::Update { lasting } => {
                let (resource, token) =
                    (lock.resources[0], lease.token().map(quorlock::FencingToken::get));
                if !lease.is_valid() {
                    return;
                }
                let read = self.checker.state().read(resource, token);
                self.sleep(lasting).await;
                if lease.is_valid() || token.is_some() {
                    self.checker.state().write(resource, read, token);
                }
            }
            HeldStep::Extend { ttl } => {
                let extended = self.timed("extend", node, lease.extend(millis(ttl))).await;
                self.check_unchanged(lease, &extended);
                self.inspect(&extended);
            }
            HeldStep::Ensure { validity } => {
                let ensured = self.timed("ensure", node, lease.ensure(millis(validity))).await;
                self.check_unchanged(lease, &ensured);
                self.inspect(&ensured);
            }
            HeldStep::Reenter { lasting } => {
                if let Ok(guard) = lease.reenter() {
                    self.sleep(lasting).await;
                    let _ = guard.release().await;
                }
            }
            HeldStep::Downgrade => {
                self.checker.state().handle_downgrade(id);
                let downgraded = self.timed("downgrade", node, lease.downgrade()).await;
                self.inspect(&downgraded);
            }
            HeldStep::Status if lock.permits.is_some() => {
                let semaphore = self.semaphore(lock);
                let status = self.timed("status", 2 * node, semaphore.status()).await;
                self.inspect(&status);
            }
            HeldStep::Status => {
                let status = self.redlock.status(name(lock.resources[0]));
                let status = self.timed("status", node, status).await;
                self.inspect(&status);
            }
        }
        self.check_exclusion(lock);
    }

    fn check_unchanged(&self, lease: &Lease, extended: &Result<(), ExtendError>) {
        let Err(ExtendError::NoQuorum { still_valid_for, .. }) = extended else { return };
        let validity = lease.validity();
        let is_kept = validity >= *still_valid_for || lease.loss() == Some(Loss::Closed);
        self.checker.state().check(Rule::StaysValid, is_kept, || {
            format!(
                "p{}: valid for {still_valid_for:?} after a failed extension, but later only for {validity:?}",
                self.process
            )
        });
    }

    fn check_exclusion(&self, lock: &Lock) {
        let mut state = self.checker.state();
        lock.resources.iter().for_each(|resource| state.check_exclusion(*resource, None));
    }

    async fn end(&self, lease: Lease, relied: Reliance<'_>, lock: &Lock) {
        let node = nanos(self.times.node_timeout);
        self.check_exclusion(lock);
        if lock.auto_extend.is_some() {
            let is_kept = lease.loss() != Some(Loss::Expired);
            self.checker.state().check(Rule::Renewed, is_kept, || {
                format!("p{}: {:?} was not renewed", self.process, lock.resources)
            });
        }
        match lock.end {
            End::Outstay => {
                let longest = nanos(self.longest_hold());
                let _ = select(pin!(lease.lost()), pin!(self.sleep(longest))).await;
                drop((relied, lease));
            }
            End::Drop => drop((relied, lease)),
            End::DropOutside => {
                drop(relied);
                self.checker.state().dropped_outside.push(lease);
            }
            End::Release => {
                drop(relied);
                let released = self.timed("release", node, lease.release()).await;
                self.log(format_args!("released: {released:?}"));
                self.inspect(&released);
            }
            End::ReleaseAfter { ms } => {
                drop(relied);
                self.record_cool_down_end(ms);
                self.shared.lock().record_cool_down(lease.value(), ms);
                let released = self.timed("release", node, lease.release_after(millis(ms))).await;
                self.inspect(&released);
            }
            End::ReleaseDropped => {
                drop(relied);
                let mut release = Box::pin(lease.release());
                let _ = futures::poll!(release.as_mut());
                drop(release);
            }
            End::LeaveGuard { lasting } => {
                let Ok(guard) = lease.reenter() else { return };
                let released = self.timed("release", node, lease.release()).await;
                self.log(format_args!("one guard released: {released:?}"));
                self.sleep(lasting).await;
                let is_held = guard.loss().is_some() || !guard.validity().is_zero();
                self.checker.state().check(Rule::Guards, is_held, || {
                    format!("p{}: the lease ended while a guard was held", self.process)
                });
                drop((relied, guard));
            }
            End::HandOver { lasting } => {
                drop(relied);
                let (resource, value) = (lock.resources[0], lease.value().to_owned());
                self.shared.lock().record_handed_over(&value);
                let giver = (self.process, self.client);
                self.checker.state().hand_over(giver, resource, &lease);
                let _ = select(pin!(lease.lost()), pin!(self.sleep(lasting))).await;
                self.extend_given(&lease, resource).await;
                self.checker.state().forget_handed_over_lease(resource, &value);
                drop(lease);
                let core = &mut *self.shared.lock();
                core.released_at = core.now;
            }
        }
    }

    /// Checks that a lease can no longer be extended once its lock was adopted, even if another
    /// client adopted the lock.
    async fn extend_given(&self, lease: &Lease, resource: usize) {
        if !self.checker.state().is_adopted(resource, lease.value()) {
            return;
        }
        let is_extended = lease.extend(millis(self.times.ttl_ms)).await.is_ok();
        self.checker.state().check(Rule::Adopted, !is_extended, || {
            let process = self.process;
            format!("p{process}: r{resource} was adopted, but the previous lease was extended")
        });
    }

    fn longest_hold(&self) -> Duration {
        millis(2 * self.times.ttl_ms)
    }
}

/// A task's reliance on a lease. Until this value is dropped, the checker counts the task as a
/// holder.
pub(crate) struct Reliance<'a> {
    pub(crate) worker: &'a Worker,
    pub(crate) id: HeldId,
}

impl Drop for Reliance<'_> {
    fn drop(&mut self) {
        let ended = self.worker.checker.state().end(self.id);
        let valid = ended.filter(LeaseRef::is_valid);
        let core = &mut *self.worker.shared.lock();
        core.released_at = core.now;
        if let Some((token, lease)) = valid.and_then(|lease| Some((lease.token()?, lease))) {
            let locks = lease.resources().filter_map(lock_of).collect();
            core.record_release(lease.value(), token.get(), locks);
        }
    }
}
