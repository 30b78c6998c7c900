//! Adoption of locks whose previous holder keeps its lease.

use crate::clock::MS;
use crate::process::{millis, nanos};
use crate::rule::Rule;
use crate::worker::Worker;
use quorlock::Lease;

impl Worker {
    /// Checks the state of the previous holder's lease after another client or the same client has
    /// adopted the lock. If `is_released` is true, the new lease is then released, and the other
    /// client acquires the lock.
    pub(super) async fn check_adoption(
        self,
        by_another: bool,
        is_watched: bool,
        is_released: bool,
    ) {
        let own = self.own_name(0);
        let mut acquire = self.redlock.acquire(&own).wait(millis(self.times.ttl_ms));
        if is_watched {
            acquire = acquire.auto_extend(millis(8 * self.times.ttl_ms));
        }
        let Ok(given) = acquire.await else { return };
        let view = given.view();
        let mut lost = is_watched.then(|| Box::pin(view.lost()));
        if let Some(lost) = &mut lost
            && futures::poll!(lost.as_mut()).is_ready()
        {
            return;
        }
        // Wait until pending operations have ended.
        self.sleep(2 * nanos(self.times.node_timeout)).await;
        let (_, another) = self.another_client();
        let taker = if by_another { &another } else { &self.redlock };
        let adopted = match taker.adopt(&own, given.value()).await {
            Ok(adopted) => adopted,
            Err(error) => return self.log(format_args!("refused: {error}")),
        };
        let since = self.now();
        self.checker.state().met(Rule::Adopted);
        if !by_another {
            self.expect_taken_over(&given, &own);
        }
        let later = if is_released {
            drop(adopted.release().await);
            another.acquire(&own).wait(millis(self.times.ttl_ms)).await
        } else {
            Ok(adopted)
        };
        if !by_another {
            self.expect_taken_over(&given, &own);
        } else if let Some(lost) = lost
            && self.shared.lock().pushes
        {
            // A check may be postponed until 100 ms after the previous check, and ends within a
            // node timeout.
            let node = nanos(self.times.node_timeout);
            let reported = self.within(100 * MS + 2 * node + self.slack, lost).await;
            let is_prompt = self.was_prompt_since(since.saturating_sub(node));
            if is_prompt && (reported.is_none() || given.is_valid()) {
                let how = format!("and the previous holder in another client gets {reported:?}");
                self.report_adopted(&own, &how);
            }
        }
        if given.extend(millis(self.times.ttl_ms)).await.is_ok() {
            self.report_adopted(&own, "and the previous holder extends it");
        }
        drop((given, later));
        drop(another.close().await);
    }

    fn expect_taken_over(&self, given: &Lease, own: &str) {
        let loss = given.loss();
        if given.is_valid() || loss.is_none() {
            let valid = given.validity();
            self.report_adopted(
                own,
                &format!("and the previous lease is valid for {valid:?}: {loss:?}"),
            );
        }
    }

    fn report_adopted(&self, own: &str, how: &str) {
        let how = format!("p{}: {own} was adopted, {how}", self.process);
        self.checker.state().violated(Rule::Adopted, how);
    }
}
