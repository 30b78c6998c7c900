//! Adapts the number of concurrent attempts, and resumes acquires that wait because of this limit.

use super::acquire::Stage;
use super::slots::RoundId;
use super::state::Coordinator;
use crate::protocol::Time;

impl Coordinator {
    /// Adapts the limit to the response time of the `decided` round of an attempt.
    pub(super) fn adapt_limit(&mut self, decided: RoundId, now: Time) {
        let Some(votes) = self.rounds.get(decided) else { return };
        let (t1, response) = (votes.t1(), votes.response_time());
        if self.limit.handle_response(t1, response, self.attempts, now) {
            self.pass_permit();
        }
    }

    /// Ends an attempt, and wakes the next acquire that waits because of the limit on concurrent attempts.
    pub(super) fn end_attempt(&mut self) {
        self.attempts -= 1;
        self.pass_permit();
    }

    pub(super) fn pass_permit(&mut self) {
        while !self.limit.is_reached(self.attempts)
            && let Some(blocked) = self.blocked.pop_front()
        {
            let stage = self.acquires.get_mut(blocked).map(|acquire| &mut acquire.stage);
            if let Some(Stage::Blocked { is_queued, .. }) = stage {
                // Another acquire may run first and take the permit. The woken acquire then waits for the next permit.
                *is_queued = false;
                self.ready.push_back(blocked);
                break;
            }
        }
    }
}
