//! The counter of a scheduled job: its requests to the nodes, and the call that has taken a period.

use super::inner::Inner;
use super::job_result::SkippedJob;
use super::once::ScheduledJob;
use super::using::race;
use crate::coordinator::{PeriodRequest, TakenPeriod};
use crate::error::{AcquireError, ConfigError};
use crate::lease::LeaseRef;
use crate::observe::event::{AcquireTag, Event};
use crate::observe::{EventLevel, Holder, NodeVote, Report, escape_name};
use crate::protocol::{PeriodState, Ttl, counter_ttl, period_begin, period_number};
use crate::wire::{Keys, NodeFailure, PeriodRecord, PeriodStep, PeriodUpdate, Value, period_keys};
use std::sync::Arc;
use std::time::Duration;

/// The counter of a job, and the period of one call.
#[derive(Clone)]
pub(super) struct JobCounter {
    client: Arc<Inner>,
    job: Keys,
    /// The keys of the counter and of its record.
    keys: Keys,
    takes_over: bool,
    period: Duration,
    number: u64,
    begins_us: u64,
    /// When the call determined its period, by the wall clock.
    at_us: u64,
    ttl: Ttl,
}

/// The nodes' replies to a request for the counter.
pub(super) struct CounterReply {
    pub(super) state: PeriodState,
    /// Set if the period is taken.
    taken: Option<TakenPeriod>,
    pub(super) report: Box<Report>,
}

impl JobCounter {
    /// Determines the period of a call of `job` that begins when the wall clock shows `wall_us`.
    pub(super) fn new(job: &ScheduledJob, wall_us: u64) -> Result<Self, ConfigError> {
        let ScheduledJob { client, name, period, offset, takes_over, .. } = job.clone();
        let key = client.settings.key(name.clone())?;
        let keys = period_keys(&key);
        let keys = keys.ok_or_else(|| ConfigError::BadJob { name: escape_name(&name) })?;
        let ttl = counter_ttl(period).ok_or(ConfigError::BadPeriod { period })?;
        let number = period_number(wall_us, period, offset);
        let begins_us = period_begin(number, period, offset);
        let (job, at_us) = (Keys::one(key), wall_us);
        Ok(Self { client, job, keys, takes_over, period, number, begins_us, at_us, ttl })
    }

    /// Returns whether the period is taken. If it is, restores the counter on nodes that have lost it, so that such
    /// losses do not add up to a majority.
    pub(super) async fn check(&self) -> Result<CounterReply, AcquireError> {
        let timeout = self.client.settings.limits.node_timeout;
        let reply = self.send(self.update(PeriodStep::Check, None), timeout).await?;
        if let (PeriodState::Taken { is_partial: true }, Some(taken)) = (reply.state, &reply.taken)
        {
            self.send(self.restoration(taken), timeout).await?;
        }
        Ok(reply)
    }

    /// Stores the period's number and a record of `lease`, with [`PeriodStep::Begin`] or [`PeriodStep::Finish`]. While
    /// too few nodes reply, repeats the request until the validity that the lease has now has passed. The nodes
    /// recognize the record, so a node whose reply was late or lost grants the repeated request.
    pub(super) async fn commit(
        &self,
        step: PeriodStep,
        lease: &LeaseRef,
    ) -> Result<CounterReply, AcquireError> {
        let clock = self.client.backing.clock();
        let deadline = clock.now().after(lease.validity());
        let mut timeout = self.client.settings.limits.node_timeout;
        loop {
            let again = clock.now().after(timeout);
            let reply = self.send(self.update(step, Some(lease)), timeout).await?;
            let is_decided = reply.state != PeriodState::Unknown || refuses_counters(&reply.report);
            if is_decided || again >= deadline {
                return Ok(reply);
            }
            if race(clock.sleep_until(again), lease).await.is_err() {
                return if self.client.driver.is_closed() {
                    Err(AcquireError::Closed)
                } else {
                    Ok(reply)
                };
            }
            // A node that is slower than the node timeout can then reply in time.
            timeout = timeout.saturating_mul(2).min(deadline.since(again));
        }
    }

    fn update(&self, step: PeriodStep, lease: Option<&LeaseRef>) -> PeriodUpdate {
        let Self { takes_over, period, number, begins_us, at_us, ttl, .. } = *self;
        let value = lease.map(|lease| Value::of(lease.value().as_bytes()));
        let record = value.map(|it| PeriodRecord::new(number, takes_over, period, at_us, it));
        PeriodUpdate { number, begins_us, ttl, step, record }
    }

    /// Returns the request that stores `taken` on nodes where the period is free. The restored keys expire at the same
    /// time as the original ones.
    fn restoration(&self, taken: &TakenPeriod) -> PeriodUpdate {
        let TakenPeriod { number, remaining, record } = taken.clone();
        let record = record.map(|record| *record);
        let begins_us = record.as_ref().map_or(self.begins_us, |record| record.at_us);
        let ttl = remaining.and_then(Ttl::from_duration).unwrap_or(self.ttl);
        PeriodUpdate { number, begins_us, ttl, step: PeriodStep::Finish, record }
    }

    async fn send(
        &self,
        update: PeriodUpdate,
        timeout: Duration,
    ) -> Result<CounterReply, AcquireError> {
        let (keys, update) = (self.keys.clone(), Arc::new(update));
        let driver = &self.client.driver;
        let found = driver.period(PeriodRequest { keys, update, timeout }).await;
        if found.is_none() && driver.is_closed() {
            return Err(AcquireError::Closed);
        }
        let unknown = || (PeriodState::Unknown, None, self.no_report());
        let (state, taken, report) = found.unwrap_or_else(unknown);
        Ok(CounterReply { state, taken, report: Box::new(report) })
    }

    /// Returns the report of a request without replies.
    pub(super) fn no_report(&self) -> Report {
        Report::new(self.client.backing.quorum.needed(), Arc::new([]))
    }

    /// Returns the result of a call whose period is taken. Emits [`Event::JobsDiffer`] if the other call has other
    /// settings.
    pub(super) fn skipped(&self, reply: &CounterReply) -> SkippedJob {
        let (remaining, record) = match &reply.taken {
            Some(TakenPeriod { remaining, record, .. }) => (*remaining, record.as_deref()),
            None => (None, None),
        };
        let ttl = record.and_then(|record| counter_ttl(record.period)).unwrap_or(self.ttl);
        let since = ttl.as_duration().saturating_sub(remaining.unwrap_or(Duration::MAX));
        if let Some(record) = record {
            self.compare(record);
        }
        let holder = record.map(|record| Holder::new(record.value.clone(), None));
        SkippedJob { holder, since: Some(since) }
    }

    fn compare(&self, record: &PeriodRecord) {
        let Self { client, takes_over, period, .. } = self;
        let (other_takes_over, other_period) = (record.takes_over, record.period);
        if (*takes_over, *period) == (other_takes_over, other_period) {
            return;
        }
        client.backing.pool.observers().emit(EventLevel::Warn, || Event::JobsDiffer {
            lock: AcquireTag::default().lock(&self.job, client.settings.prefix.len()),
            takes_over: *takes_over,
            other_takes_over,
            period: *period,
            other_period,
        });
    }
}

/// Returns true if a repeated request cannot reach a quorum, because too many nodes refuse access to the counter.
fn refuses_counters(report: &Report) -> bool {
    let refuses = |vote: &NodeVote| match vote {
        NodeVote::Failed(NodeFailure::Refused { code, .. }) => {
            matches!(&**code, "COUNTER" | "NOPERM" | "NOAUTH" | "WRONGPASS")
        }
        _ => false,
    };
    let refusing = report.nodes().iter().filter(|node| refuses(node.vote())).count();
    report.nodes().len() < refusing + report.needed()
}
