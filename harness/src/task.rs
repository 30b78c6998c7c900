//! A task of a client process. In each cycle, it acquires locks, works, and ends the lease.

use crate::boot;
use crate::cells::Cells;
use crate::choice::{Caution, Choice, Extend, LeaseEnd};
use crate::grant::Grant;
use crate::line::{ClientConfig, ClientMessage, MessageWriter, Sabotage};
use crate::record::{Call, Verb};
use crate::resources::resource_of;
use crate::target::{Access, Target};
use crate::tenure::{Begin, OpenTenure};
use quorlock::{
    DowngradeError, ExtendError, FencingToken, LeaseRef, Loss, Redlock, ReleaseOutcome,
};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// How often a task checks its lease while it sleeps.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);
/// The pause after a refused acquire.
const PAUSE: Duration = Duration::from_millis(5);
/// How much a forged token exceeds the real one. Most tokens are clock readings in microseconds, so
/// this is about one second.
const FORGED: u64 = 1_000_000;

pub(crate) struct Task {
    pub(crate) number: u16,
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) writer: Arc<MessageWriter>,
    pub(crate) redlock: Redlock,
    pub(crate) cells: Arc<Cells>,
    pub(crate) is_ended: watch::Receiver<bool>,
}

impl Task {
    pub(crate) async fn run(self) {
        let ClientConfig { seed, part, client, .. } = *self.config;
        let mut cycle = 0;
        while !*self.is_ended.borrow() {
            let choice = Choice::of(seed, [part, client, self.number], cycle);
            self.cycle(&choice).await;
            sleep(choice.rest).await;
            cycle += 1;
        }
    }

    async fn cycle(&self, choice: &Choice) {
        let asked = boot::now();
        let acquired = self.acquire(choice).await;
        let from = boot::now();
        let resources = match &acquired {
            Some(grant) => self.resources(grant.lease(), choice),
            None => choice.target.without_lock(),
        };
        let begin = Begin {
            writer: &self.writer,
            task: self.number,
            resources: &resources,
            token: acquired.as_ref().and_then(|grant| self.token(grant.lease(), choice)),
            is_read: choice.target.is_read(),
            period: acquired.as_ref().and_then(Grant::period),
            origin: self.config.origin,
            asked,
            from,
        };
        match acquired {
            Some(grant) => {
                let tenure = OpenTenure::of(grant.lease().clone(), begin, choice.is_renewed());
                self.hold(grant, tenure, choice).await;
            }
            None if self.config.sabotage == Some(Sabotage::Lock) => {
                let token = self.guess(&resources, choice).await;
                let mut tenure = OpenTenure::without_lock(choice.ttl, Begin { token, ..begin });
                self.work(&mut tenure, None, choice).await;
                tenure.end();
            }
            None => sleep(PAUSE).await,
        }
    }

    /// Returns the resources that the lease reports. If these differ from the target of the
    /// acquire, sends an error.
    fn resources(&self, lease: &LeaseRef, choice: &Choice) -> Vec<u16> {
        let resources: Vec<_> = lease.resources().filter_map(resource_of).collect();
        if resources.len() != lease.resources().count() || !choice.target.matches(&resources) {
            let names = lease.resources().map(String::from_utf8_lossy).collect::<Vec<_>>();
            let error = format!("unexpected resources {names:?}: {choice:?}");
            self.writer.send(&ClientMessage::Error(error));
        }
        resources
    }

    /// Returns the token with which the task writes, or `None` if the lease has no token. A reader
    /// has none if no writer has had one. A sabotaged task adds [`FORGED`] to the lease's token.
    fn token(&self, lease: &LeaseRef, choice: &Choice) -> Option<u64> {
        let token = lease.token().map(FencingToken::get);
        let is_optional = choice.target.is_read() && token.is_none();
        if token.is_some() != choice.target.is_fenced() && !is_optional {
            self.writer
                .send(&ClientMessage::Error(format!("unexpected token {token:?}: {choice:?}")));
        }
        let forged = if self.config.sabotage == Some(Sabotage::Token) { FORGED } else { 0 };
        Some(token? + forged)
    }

    /// Returns a token for a sabotaged task that has no lock. The fenced cells accept the token,
    /// because it is higher than all accepted tokens. Returns `None` if the resources are not
    /// fenced.
    async fn guess(&self, resources: &[u16], choice: &Choice) -> Option<u64> {
        let mut highest = None;
        for resource in resources.iter().filter(|_| choice.target.is_fenced()) {
            highest = highest.max(self.cells.highest(*resource).await);
        }
        Some(highest? + 1)
    }

    async fn hold(&self, grant: Grant, mut tenure: OpenTenure<'_>, choice: &Choice) {
        self.work(&mut tenure, Some(grant.lease()), choice).await;
        tenure.end();
        match choice.lease_end {
            LeaseEnd::Drop => drop(grant),
            LeaseEnd::Release => self.release(grant, &tenure, None).await,
            LeaseEnd::DropRelease(after) => self.release(grant, &tenure, Some(after)).await,
        }
        let writes = choice.target.is_fenced() && !choice.target.is_read();
        let late_write_after = choice.late_write_after.filter(|_| writes);
        if let (Some(after), Some(resource)) = (late_write_after, tenure.resources().first()) {
            sleep(after).await;
            self.write_fenced(&tenure, *resource, 0).await;
        }
    }

    /// Updates the counters and writes to the fenced cells. A reader only reads the counter. `lease`
    /// is `None` only in a sabotaged task.
    async fn work(&self, tenure: &mut OpenTenure<'_>, lease: Option<&LeaseRef>, choice: &Choice) {
        let mut reads = choice.target.is_read();
        let (awaits_loss, checks) =
            (choice.caution == Caution::Notified, choice.caution != Caution::Unchecked);
        let mut lost = pin!(loss(lease.filter(|_| awaits_loss)));
        for (step, resource) in choice.steps.iter().zip(tenure.resources().iter().cycle()) {
            let Some(read) = self.cells.read(*resource).await else { return };
            let end = boot::now() + boot::nanos(step.sleep);
            while boot::now() < end && (tenure.check().is_some() || !checks) {
                let left = Duration::from_nanos(end.saturating_sub(boot::now()));
                // Only the sleep is interrupted by a loss. The task always awaits a write, so that
                // no write arrives after the release.
                tokio::select! {
                    reason = &mut lost => return lose(tenure, reason),
                    () = sleep(left.min(CHECK_INTERVAL)) => {}
                }
            }
            let deadline = tenure.deadline();
            if let Some(deadline) = deadline.filter(|_| !reads) {
                match self.cells.write(*resource, read + 1, deadline).await {
                    Some(true) => {}
                    Some(false) => self.writer.send(&ClientMessage::TooLate),
                    None => return,
                }
            }
            // A write to a counter requires a check of the lease; a write to a fenced cell does
            // not.
            if !reads && (deadline.is_some() || !checks) {
                let until = tenure.valid_until().unwrap_or(0);
                self.write_fenced(tenure, *resource, until).await;
            }
            if deadline.is_none() {
                break;
            }
            if let (Target::Shared(_, Access::Downgrade), Some(lease), false) =
                (&choice.target, lease, reads)
            {
                self.downgrade(lease, tenure).await;
                reads = true;
            }
            if let (Some(extend), Some(lease)) = (&step.extend, lease) {
                self.extend(lease, extend).await;
            }
        }
        // If the lease has expired, a task that has finished its work still waits for the report of
        // the loss.
        if lease.is_some() && awaits_loss && tenure.check().is_none() {
            lose(tenure, lost.await);
        }
    }

    async fn write_fenced(&self, tenure: &OpenTenure<'_>, resource: u16, until: u64) {
        let Some((id, token)) = tenure.id_and_token() else { return };
        self.cells.write_fenced(resource, id, token, until).await;
    }

    async fn downgrade(&self, lease: &LeaseRef, tenure: &OpenTenure<'_>) {
        tenure.downgrade();
        let outcome = |downgraded: &_| match downgraded {
            Ok(()) => "ok",
            Err(DowngradeError::Unconfirmed(_)) => "unconfirmed",
            Err(_) => "other",
        };
        let bound = self.config.nodes.node_timeout;
        self.call(Verb::Downgrade, bound, None, lease.downgrade(), outcome).await;
    }

    async fn extend(&self, lease: &LeaseRef, extend: &Extend) {
        let Extend { ttl, drop_after } = *extend;
        let outcome = |extended: &_| match extended {
            Ok(()) => "ok",
            Err(ExtendError::Lost { .. }) => "lost",
            Err(ExtendError::NoQuorum { .. }) => "no quorum",
            Err(_) => "other",
        };
        self.call(
            Verb::Extend,
            self.config.nodes.node_timeout,
            drop_after,
            lease.extend(ttl),
            outcome,
        )
        .await;
    }

    async fn release(&self, grant: Grant, tenure: &OpenTenure<'_>, drop_after: Option<Duration>) {
        let outcome = |released: &Result<_, _>| match released {
            Ok(ReleaseOutcome::Released) => "ok",
            Ok(ReleaseOutcome::Expired) => "expired",
            Ok(ReleaseOutcome::TakenOver) => "taken over",
            Ok(_) => "other",
            Err(reason) => *reason,
        };
        let bound = grant.release_bound(self.config.nodes.node_timeout);
        let call = self.call(Verb::Release, bound, drop_after, grant.release(), outcome);
        if let Some(Ok(outcome @ (ReleaseOutcome::Expired | ReleaseOutcome::TakenOver))) =
            call.await
        {
            tenure.report_early_loss(&format!("released: {outcome:?}"));
        }
    }

    /// Makes a call and records its outcome. If `drop_after` elapses first, drops the call and
    /// returns `None`.
    pub(crate) async fn call<T>(
        &self,
        verb: Verb,
        bound: Duration,
        drop_after: Option<Duration>,
        call: impl IntoFuture<Output = T>,
        outcome: impl Fn(&T) -> &'static str,
    ) -> Option<T> {
        let from = boot::now();
        let done = match drop_after {
            None => Some(call.await),
            Some(after) => timeout(after, call).await.ok(),
        };
        let until = boot::now();
        let origin = self.config.origin;
        self.writer.send(&ClientMessage::Called(Call {
            verb,
            client: self.config.client,
            from: from - origin,
            until: until - origin,
            bound: boot::nanos(bound),
            outcome: done.as_ref().map_or("dropped", outcome).to_owned(),
        }));
        done
    }
}

/// Resolves when the lease is lost. Never resolves without a lease.
async fn loss(lease: Option<&LeaseRef>) -> Loss {
    match lease {
        Some(lease) => lease.lost().await,
        None => std::future::pending().await,
    }
}

fn lose(tenure: &mut OpenTenure<'_>, reason: Loss) {
    tenure.lose();
    if !matches!(reason, Loss::Expired | Loss::MaxHold) {
        tenure.report_early_loss(&format!("lost: {reason}"));
    }
}
