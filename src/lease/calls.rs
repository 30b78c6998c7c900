//! Extension and release of a lease.

use super::observed::{ExtendWatch, ReleaseWatch};
use super::release::ReleaseOutcome;
use super::state::{Home, LeaseState};
use crate::coordinator::Completion;
use crate::engine::CallId;
use crate::error::ReleaseError;
use crate::observe::Report;
use crate::protocol::{Extended, Loss, Outcome, Tenure, Time, Ttl};
use std::sync::Arc;
use std::time::Duration;

/// How often a release is repeated on a new engine at most.
const MAX_REPEATS: usize = 3;

impl LeaseState {
    /// Extends the lease to `ttl`. Returns a report unless at least `least` remains. Fails if the lease has ended before.
    pub(super) async fn extend_to(
        self: &Arc<Self>,
        ttl: Ttl,
        least: Duration,
    ) -> Result<(Extended, Option<Report>), Tenure> {
        // The coordinator forgets a lease at its release, and why it was lost.
        let ended = |ended| match self.tenure() {
            Tenure::Held { .. } => ended,
            known => known,
        };
        let internal = Tenure::Lost(Loss::Internal);
        let Some(Home { engine, .. }) = self.home() else { return Err(self.tenure()) };
        let call = engine.extend(self.id(), ttl).unwrap_or(Err(internal)).map_err(ended)?;
        let watch = ExtendWatch::start(self, ttl);
        let Ok(Some(Completion::Extended { ended: end, replies, .. })) = call.await else {
            return Err(ended(internal));
        };
        let take = || engine.with(|it, now| it.handle_extended(&replies, now));
        let extended = end.map(Extended::Ended).or_else(take);
        // The lease can end between the outcome of the extension and this poll.
        let extended = match (extended.unwrap_or(Extended::Ended(internal)), self.tenure()) {
            (extended, Tenure::Held { .. }) => extended,
            (_, tenure) => Extended::Ended(tenure),
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

    /// Releases the lease, whose last guard has gone.
    pub(super) async fn end(
        self: &Arc<Self>,
        cool_down: Option<Ttl>,
    ) -> Result<ReleaseOutcome, ReleaseError> {
        let loss = self.loss();
        let Some((home, is_usable)) = self.take_home() else {
            return Ok(ReleaseOutcome::AlreadyReleased);
        };
        let watch = ReleaseWatch::start(self, loss);
        let mut completion = None;
        if is_usable {
            let (this, id) = (self.clone(), self.id());
            let call = home.engine.call(move |it, now| {
                this.keep(it.take_lease_replies(id));
                it.handle_release(id, cool_down, now).map(CallId::Round)
            });
            completion = match call.await {
                Ok(None) => return Ok(ReleaseOutcome::AlreadyReleased),
                Ok(completion) => completion,
                Err(_) => None,
            };
        }
        // The engine of the lease has ended, or is the parent process's. The next engine may end, too.
        for _ in 0..MAX_REPEATS {
            if completion.is_none() {
                let call = home.client.release_claim(self.claim().clone());
                completion = call.await.ok().flatten();
            }
        }
        let ended = release_outcome(completion, self.now());
        watch.finish(&ended);
        ended
    }

    /// Like [`end`](Self::end), without waiting for the result.
    pub(super) fn end_in_background(self: &Arc<Self>) {
        let loss = self.loss();
        let Some((home, is_usable)) = self.take_home() else { return };
        let _watch = ReleaseWatch::start(self, loss);
        if is_usable {
            let this = self.clone();
            home.engine.request_drop(self.id(), move |replies| this.keep(replies));
        }
        if home.engine.has_panicked() {
            // A dropped call is not cancelled.
            drop(home.client.release_claim(self.claim().clone()));
        }
    }
}

/// The outcome of a release by its completion. `None` if the coordinator has panicked again and again.
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
