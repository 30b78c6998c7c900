//! A task of a client process: acquires, works, and ends its leases, again and again.

use crate::boot;
use crate::cell::Cells;
use crate::choice::{Choice, Extend, Leaving};
use crate::line::{Line, Orders, Teller};
use crate::record::{Call, Verb};
use crate::tenure::{Begin, Tenure};
use quorlock::{
    AcquireError, ExtendError, Lease, LeaseRef, Loss, Redlock, ReleaseError, ReleaseOutcome,
};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// How long a client waits for a node.
pub(crate) const NODE_TIMEOUT: Duration = Duration::from_millis(60);
/// How often a holder that works for long looks at its lease.
const LOOK: Duration = Duration::from_millis(10);
/// How long one that was refused does nothing.
const PAUSE: Duration = Duration::from_millis(5);

/// A task, with all it needs.
pub(crate) struct Task {
    pub(crate) number: u16,
    pub(crate) orders: Arc<Orders>,
    pub(crate) teller: Arc<Teller>,
    pub(crate) redlock: Redlock,
    pub(crate) cells: Cells,
    pub(crate) is_ended: watch::Receiver<bool>,
}

impl Task {
    /// Until it is told to end.
    pub(crate) async fn run(self) {
        let Orders { seed, part, client, resources, .. } = *self.orders;
        let mut cycle = 0;
        while !*self.is_ended.borrow() {
            let choice = Choice::of(seed, [part, client, self.number], cycle, resources);
            self.cycle(&choice).await;
            sleep(choice.rest).await;
            cycle += 1;
        }
    }

    async fn cycle(&self, choice: &Choice) {
        let acquired = self.acquire(choice).await;
        let begin = Begin {
            teller: &self.teller,
            task: self.number,
            resources: &choice.resources,
            origin: self.orders.origin,
            from: boot::now(),
        };
        match acquired {
            Some(lease) => {
                let tenure = Tenure::of(lease.view(), begin, choice.auto_extend.is_some());
                self.hold(lease, tenure, choice).await;
            }
            None if self.orders.is_saboteur => {
                let mut tenure = Tenure::stolen(choice.ttl, begin);
                self.work(&mut tenure, None, choice).await;
                tenure.end();
            }
            None => sleep(PAUSE).await,
        }
    }

    async fn acquire(&self, choice: &Choice) -> Option<Lease> {
        let mut acquire = match (&*choice.resources, choice.wait) {
            ([one], None) => self.redlock.try_acquire(name(*one)),
            ([one], Some(wait)) => self.redlock.acquire(name(*one)).wait(wait),
            (all, None) => self.redlock.try_acquire_all(all.iter().copied().map(name)),
            (all, Some(wait)) => self.redlock.acquire_all(all.iter().copied().map(name)).wait(wait),
        };
        acquire = acquire.ttl(choice.ttl);
        if choice.gives_up_early {
            acquire = acquire.give_up_early();
        }
        if let Some(most) = choice.auto_extend {
            acquire = acquire.auto_extend(most);
        }
        let bound = choice.wait.unwrap_or_default() + NODE_TIMEOUT;
        let acquired = self.call(Verb::Acquire, bound, choice.drop_after, acquire, |acquired| {
            acquired.as_ref().map_or_else(refusal, |_| "ok")
        });
        acquired.await?.ok()
    }

    async fn hold(&self, lease: Lease, mut tenure: Tenure<'_>, choice: &Choice) {
        self.work(&mut tenure, Some(&lease), choice).await;
        tenure.end();
        match choice.leaving {
            Leaving::Drop => drop(lease),
            Leaving::Release => self.release(lease, &tenure, None).await,
            Leaving::DropRelease(after) => self.release(lease, &tenure, Some(after)).await,
        }
    }

    /// Works on the counters, with a lease or, as a saboteur, without.
    async fn work(&self, tenure: &mut Tenure<'_>, lease: Option<&Lease>, choice: &Choice) {
        let mut lost = pin!(told(lease.filter(|_| choice.listens)));
        for (step, resource) in choice.steps.iter().zip(choice.resources.iter().cycle()) {
            let read = match self.cells.read(*resource).await {
                Ok(read) => read,
                Err(error) => return self.complain("read", &error),
            };
            let end = boot::now() + boot::nanos(step.sleep);
            while boot::now() < end && tenure.look().is_some() {
                let left = Duration::from_nanos(end.saturating_sub(boot::now()));
                // Only a sleep is given up at the loss: a write that was begun is waited for, so that
                // none lands after the release.
                tokio::select! {
                    why = &mut lost => return lose(tenure, why),
                    () = sleep(left.min(LOOK)) => {}
                }
            }
            let Some(deadline) = tenure.deadline() else { break };
            match self.cells.write(*resource, read + 1, deadline).await {
                Ok(true) => {}
                Ok(false) => self.teller.tell(&Line::TooLate),
                Err(error) => return self.complain("written", &error),
            }
            if let (Some(extend), Some(lease)) = (&step.extend, lease) {
                self.extend(lease, extend).await;
            }
        }
        // One that has nothing left to do still hears of a loss that is due.
        if lease.is_some() && choice.listens && tenure.look().is_none() {
            lose(tenure, lost.await);
        }
    }

    async fn extend(&self, lease: &LeaseRef, extend: &Extend) {
        let Extend { ttl, drop_after } = *extend;
        let outcome = |extended: &_| match extended {
            Ok(()) => "ok",
            Err(ExtendError::Lost { .. }) => "lost",
            Err(ExtendError::NoQuorum { .. }) => "no quorum",
            Err(_) => "other",
        };
        self.call(Verb::Extend, NODE_TIMEOUT, drop_after, lease.extend(ttl), outcome).await;
    }

    async fn release(&self, lease: Lease, tenure: &Tenure<'_>, drop_after: Option<Duration>) {
        let outcome = |released: &_| match released {
            Ok(ReleaseOutcome::Released) => "ok",
            Ok(ReleaseOutcome::Expired) => "expired",
            Ok(ReleaseOutcome::TakenOver) => "taken over",
            Err(ReleaseError::NoQuorum { .. }) => "no quorum",
            _ => "other",
        };
        let call = self.call(Verb::Release, NODE_TIMEOUT, drop_after, lease.release(), outcome);
        if let Some(Ok(said @ (ReleaseOutcome::Expired | ReleaseOutcome::TakenOver))) = call.await {
            tenure.doubt(&format!("released: {said:?}"));
        }
    }

    /// Makes a call, and tells what came of it; `None` if it was dropped.
    async fn call<T>(
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
        let origin = self.orders.origin;
        self.teller.tell(&Line::Called(Call {
            verb,
            client: self.orders.client,
            from: from - origin,
            until: until - origin,
            bound: boot::nanos(bound),
            outcome: done.as_ref().map_or("dropped", outcome).to_owned(),
        }));
        done
    }

    fn complain(&self, what: &str, error: &redis::RedisError) {
        self.teller.tell(&Line::Wrong(format!("a counter was not {what}: {error}")));
    }
}

/// Resolves when the lease is lost; never without one.
async fn told(lease: Option<&Lease>) -> Loss {
    match lease {
        Some(lease) => lease.lost().await,
        None => std::future::pending().await,
    }
}

fn lose(tenure: &mut Tenure<'_>, why: Loss) {
    tenure.lose();
    if !matches!(why, Loss::Expired | Loss::MaxHold) {
        tenure.doubt(&format!("lost: {why}"));
    }
}

/// The name of a resource.
fn name(resource: u16) -> String {
    format!("resource:{resource}")
}

fn refusal(error: &AcquireError) -> &'static str {
    match error {
        AcquireError::Contended { .. } => "contended",
        AcquireError::NoQuorum { .. } => "no quorum",
        AcquireError::Expired { .. } => "expired",
        AcquireError::Timeout { .. } => "timeout",
        AcquireError::Closed => "closed",
        _ => "other",
    }
}
