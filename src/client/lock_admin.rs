//! Requests that read or delete a lock regardless of its holder.

use super::inner::Inner;
use super::status::{LockState, NodeStatus, Status};
use crate::observe::Report;
use crate::wire::{Answer, CounterKeys, Keys};
use std::sync::Arc;

pub(crate) async fn status(inner: &Inner, keys: Keys) -> Status {
    read(inner, keys, None).await
}

/// Reads the state of a lock and its fencing counters, and makes the nodes push the next change of the lock.
pub(super) async fn observed_status(
    inner: &Inner,
    keys: Keys,
    counters: Arc<CounterKeys>,
) -> Status {
    read(inner, keys, Some(counters)).await
}

async fn read(inner: &Inner, keys: Keys, counters: Option<Arc<CounterKeys>>) -> Status {
    let max_ttl = inner.settings.limits.max_ttl;
    let Some((found, report)) = inner.driver.status(keys, counters).await else {
        return Status { needed: inner.backing.quorum.needed(), nodes: Box::new([]) };
    };
    let each = report.nodes().iter().zip(found).map(|(node, lock)| NodeStatus {
        name: node.name().into(),
        counter: lock.answer.as_ref().and_then(Answer::counter),
        state: LockState::new(node.vote(), lock.answer, max_ttl),
        eligibility: lock.eligibility,
        latency: node.latency(),
    });
    Status { needed: report.needed(), nodes: each.collect() }
}

/// Reads the value of the key on each node, and deletes the key if it still has that value. Makes a single attempt.
pub(crate) async fn force_release(inner: &Inner, keys: Keys) -> Report {
    let nothing = || Report::new(inner.backing.quorum.needed(), Arc::new([]));
    inner.driver.force_release(keys).await.unwrap_or_else(nothing)
}
