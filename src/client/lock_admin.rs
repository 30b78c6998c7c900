//! Requests that read or delete a lock regardless of its holder.

use super::inner::Inner;
use super::status::{LockState, NodeStatus, Status};
use crate::error::ClientError;
use crate::observe::Report;
use crate::wire::{Answer, CounterKeys, Keys};
use std::sync::Arc;

/// Returns an error if the client is closed before the nodes have replied. So do the other functions of this module.
pub(crate) async fn status(inner: &Inner, keys: Keys) -> Result<Status, ClientError> {
    read(inner, keys, None).await
}

/// Reads the state of a lock and its fencing counters, and makes the nodes push the next change of the lock.
pub(super) async fn observed_status(
    inner: &Inner,
    keys: Keys,
    counters: Arc<CounterKeys>,
) -> Result<Status, ClientError> {
    read(inner, keys, Some(counters)).await
}

async fn read(
    inner: &Inner,
    keys: Keys,
    counters: Option<Arc<CounterKeys>>,
) -> Result<Status, ClientError> {
    let max_ttl = inner.settings.limits.max_ttl;
    let Some((found, report)) = inner.driver.status(keys, counters).await else {
        let unknown = Status { needed: inner.backing.quorum.needed(), nodes: Box::new([]) };
        return unless_closed(inner, unknown);
    };
    let each = report.nodes().iter().zip(found).map(|(node, lock)| NodeStatus {
        name: node.name().into(),
        counter: lock.answer.as_ref().and_then(Answer::counter),
        state: LockState::new(node.vote(), lock.answer, max_ttl),
        eligibility: lock.eligibility,
        latency: node.latency(),
    });
    Ok(Status { needed: report.needed(), nodes: each.collect() })
}

/// Reads the value of the key on each node, and deletes the key if it still has that value. Makes a single attempt.
pub(crate) async fn force_release(inner: &Inner, keys: Keys) -> Result<Report, ClientError> {
    if let Some(report) = inner.driver.force_release(keys).await {
        return Ok(report);
    }
    unless_closed(inner, Report::new(inner.backing.quorum.needed(), Arc::new([])))
}

/// Returns the result of a request that has ended without replies, because the client was closed or its coordinator has
/// panicked.
fn unless_closed<T>(inner: &Inner, result: T) -> Result<T, ClientError> {
    if inner.driver.is_closed() { Err(ClientError::Closed) } else { Ok(result) }
}
