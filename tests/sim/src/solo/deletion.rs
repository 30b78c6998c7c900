//! Checks of locks whose keys are deleted while the locks are held.

use crate::clock::{Instant, MS};
use crate::process::{millis, nanos};
use crate::rule::Rule;
use crate::trace::note;
use crate::worker::Worker;
use quorlock::{Loss, ReleaseOutcome};

impl Worker {
    pub(super) async fn delete_while_held(
        self,
        after: Instant,
        extensions: u32,
        is_extended: bool,
    ) {
        let own = self.own_name(0);
        let mut acquire = self.redlock.acquire(&own).wait(millis(self.times.ttl_ms));
        if is_extended {
            acquire = acquire.auto_extend(millis(8 * self.times.ttl_ms));
        }
        let Ok(lease) = acquire.await else { return };
        let mut lost = Box::pin(lease.lost());
        if futures::poll!(lost.as_mut()).is_ready() {
            return;
        }
        // Without auto-extension, the client tracks the keys from the first extension on.
        let extensions = if is_extended { extensions } else { extensions + 1 };
        for _ in 0..extensions {
            if lease.extend(millis(self.times.ttl_ms)).await.is_err() {
                return;
            }
        }
        if is_extended {
            self.within(after, lost.as_mut()).await;
        }
        // Wait until pending operations have ended.
        self.sleep(2 * nanos(self.times.node_timeout)).await;
        if !lease.is_valid() || lease.validity() < millis(self.times.ttl_ms / 2) {
            return;
        }
        let pushes = self.shared.lock().pushes;
        if !pushes || !self.delete_everywhere(&own) {
            return;
        }
        let since = self.now();
        // A check may be postponed until 100 ms after the previous check, and ends within a node
        // timeout.
        let bound = 100 * MS + 2 * nanos(self.times.node_timeout) + self.slack;
        let reported = self.within(bound, lost).await;
        let stalled = self.stalled_since(since.saturating_sub(nanos(self.times.node_timeout)));
        if stalled == 0 {
            self.checker.state().met(Rule::DeletionReported);
        }
        self.check_not_repaired(&own, since).await;
        match reported {
            Some(Loss::QuorumLost | Loss::Closed) => {}
            Some(_) | None if stalled > 0 => {}
            Some(other) => {
                let how = format!(
                    "p{}: the keys of {own} were deleted, and the loss is {other:?}",
                    self.process
                );
                self.checker.state().violated(Rule::DeletionReported, how);
            }
            None => {
                let how = format!(
                    "p{}: the keys of {own} were deleted {} ms ago, and no loss was reported",
                    self.process,
                    bound / MS
                );
                self.checker.state().violated(Rule::DeletionReported, how);
            }
        }
    }

    async fn check_not_repaired(&self, own: &str, since: Instant) {
        self.sleep(2 * nanos(self.times.node_timeout)).await;
        let count = self.shared.lock().count_nodes_with_key(own);
        // Commands that a stalled process writes when it continues may cross the deletion.
        let since = since.saturating_sub(nanos(self.times.node_timeout));
        if self.was_prompt_since(since) {
            self.checker.state().check(Rule::Freed, count == 0, || {
                format!("p{}: {own} was restored on {count} nodes", self.process)
            });
        }
    }

    /// Checks that the release of a lock whose keys were deleted does not report success. If a
    /// runtime ends and its replies are lost, the release is repeated, and may count the missing
    /// keys as deleted by itself.
    pub(super) async fn release_after_deletion(self) {
        let own = self.own_name(0);
        let Some(lease) = self.own_lease(&own).await else { return };
        self.sleep(2 * nanos(self.times.node_timeout)).await;
        if !lease.is_valid() {
            return;
        }
        let begun = self.now();
        self.delete_everywhere(&own);
        let released = lease.release().await;
        let is_served = !self.lost_a_runtime_since(begun) && !self.runtime_states.has_unpolled();
        let is_success = released == Ok(ReleaseOutcome::Released);
        if is_served && self.was_prompt_since(begun) {
            self.checker.state().check(Rule::Outcomes, !is_success, || {
                let process = self.process;
                format!(
                    "p{process}: {own} was deleted on all nodes, but its release reports success"
                )
            });
        }
    }

    /// Checks that an extension restores the key on a node that lost it. This requires that a
    /// majority confirms that it has the key.
    pub(super) async fn check_repair(self, node: usize) {
        let own = self.own_name(0);
        let Some(lease) = self.own_lease(&own).await else { return };
        let node_timeout = nanos(self.times.node_timeout);
        self.sleep(2 * node_timeout).await;
        let begun = self.now();
        let count = {
            let core = &mut *self.shared.lock();
            note!(core, "{own} is deleted on n{node}");
            core.act_on(node, |server, wall| server.delete(own.as_bytes(), wall));
            core.nodes.len()
        };
        let extended = lease.extend(millis(self.times.ttl_ms)).await;
        self.sleep(2 * node_timeout).await;
        let there = self.shared.lock().count_nodes_with_key(&own);
        let is_due = extended.is_ok() && lease.is_valid() && self.was_prompt_since(begun);
        if is_due {
            self.checker.state().check(Rule::Repaired, there == count, || {
                format!("p{}: {own} exists on {there} of {count} nodes", self.process)
            });
        }
    }

    /// Deletes the key `own` on all nodes. Returns false if no node had the key.
    fn delete_everywhere(&self, own: &str) -> bool {
        let core = &mut *self.shared.lock();
        note!(core, "{own} is deleted on all nodes");
        let is_there = core.count_nodes_with_key(own) > 0;
        for node in 0..core.nodes.len() {
            core.act_on(node, |server, wall| server.delete(own.as_bytes(), wall));
        }
        is_there
    }
}
