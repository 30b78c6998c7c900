//! Extension and release of a lease.

use super::observed::{ExtendEvents, ReleaseEvents};
use super::release::ReleaseOutcome;
use super::state::{LeaseClient, LeaseState};
use crate::coordinator::Completion;
use crate::engine::CallId;
use crate::error::ReleaseError;
use crate::observe::Report;
use crate::protocol::{Extended, LeaseStatus, Loss, Outcome, Time, Ttl};
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of retries of a release whose engine has ended. Each retry uses the client's
/// current engine.
const MAX_REPEATS: usize = 3;

impl LeaseState {
    /// Extends the lease to `ttl`, or downgrades it if `ttl` is `None`. The returned report is `None` if
    /// this succeeded and the remaining validity is at least `least`. Returns an error if the lease had
    /// already ended.
    pub(super) async fn extend_to(
        self: &Arc<Self>,
        ttl: Option<Ttl>,
        least: Duration,
    ) -> Result<(Extended, Option<Report>), LeaseStatus> {
        // Prefer the status of `self`: when the lease is released, the coordinator drops the reason
        // for a loss.
        let ended = |ended| match self.status() {
            LeaseStatus::Held { .. } => ended,
            known => known,
        };
        let internal = LeaseStatus::Lost(Loss::Internal);
        let Some(LeaseClient { engine, .. }) = self.client() else { return Err(self.status()) };
        let call = engine.extend(self.id(), ttl).unwrap_or(Err(internal)).map_err(ended)?;
        let watch = ExtendEvents::start(self, ttl.unwrap_or(self.ttl()));
        let Ok(Some(Completion::Extended { ended: end, replies, .. })) = call.await else {
            return Err(ended(internal));
        };
        let take = || engine.with(|it, now| it.handle_extended(&replies, now));
        let extended = end.map(Extended::Ended).or_else(take);
        // The lease can end between the outcome of the extension and this poll.
        let extended = match (extended.unwrap_or(Extended::Ended(internal)), self.status()) {
            (extended, LeaseStatus::Held { .. }) => extended,
            (_, status) => Extended::Ended(status),
        };
        let report = replies.report(self.now());
        watch.finish(extended, &report);
        let remaining = match extended {
            Extended::Until(until) => Some(until.since(self.now())),
            Extended::Unchanged(_) | Extended::Ended(_) => None,
        };
        let is_enough = remaining >= Some(least);
        Ok((extended, (!is_enough).then_some(report)))
    }

    pub(super) async fn end(
        self: &Arc<Self>,
        cool_down: Option<Ttl>,
    ) -> Result<ReleaseOutcome, ReleaseError> {
        let loss = self.loss();
        let Some((client, is_usable)) = self.end_and_detach() else {
            return Ok(ReleaseOutcome::AlreadyReleased);
        };
        let watch = ReleaseEvents::start(self, loss);
        let mut completion = None;
        if is_usable {
            let (this, id) = (self.clone(), self.id());
            let call = client.engine.call(move |it, now| {
                this.store_replies(it.take_lease_replies(id));
                it.handle_release(id, cool_down, now).map(CallId::Round)
            });
            completion = match call.await {
                Ok(None) => return Ok(ReleaseOutcome::AlreadyReleased),
                Ok(completion) => completion,
                Err(_) => None,
            };
        }
        // The lease's engine has ended, or belongs to the parent process. The next engine may also
        // end.
        for _ in 0..MAX_REPEATS {
            if completion.is_none() {
                let call = client.client.release_claim(self.claim().clone());
                completion = call.await.ok().flatten();
            }
        }
        let ended = release_outcome(completion, self.now());
        watch.finish(&ended);
        ended
    }

    pub(super) fn end_in_background(self: &Arc<Self>) {
        let loss = self.loss();
        let Some((client, is_usable)) = self.end_and_detach() else { return };
        let _watch = ReleaseEvents::start(self, loss);
        if is_usable {
            let this = self.clone();
            client.engine.request_drop(self.id(), move |replies| this.store_replies(replies));
        }
        if client.engine.has_panicked() {
            // Dropping the call does not cancel it.
            drop(client.client.release_claim(self.claim().clone()));
        }
    }
}

/// Returns the outcome of a release. If `completion` is `None`, the coordinator panicked in every
/// attempt, and the outcome is an error.
pub(crate) fn release_outcome(
    completion: Option<Completion>,
    now: Time,
) -> Result<ReleaseOutcome, ReleaseError> {
    let Some(Completion::Released { outcome, replies, .. }) = completion else {
        let report = Box::new(Report::new(0, Arc::new([])));
        return Err(ReleaseError::NoQuorum { report });
    };
    match outcome {
        Outcome::Won => Ok(ReleaseOutcome::Released),
        Outcome::Denied => Ok(ReleaseOutcome::TakenOver),
        Outcome::Missing => Ok(ReleaseOutcome::Expired),
        Outcome::TooLate | Outcome::NoQuorum => {
            Err(ReleaseError::NoQuorum { report: Box::new(replies.report(now)) })
        }
    }
}

#[cfg(all(test, feature = "test-util"))]
#[path = "calls_tests.rs"]
mod tests;
