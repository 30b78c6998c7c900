//! Releasing a lease on the nodes.

use super::release::ReleaseOutcome;
use super::state::Bond;
use crate::error::ReleaseError;
use crate::node::{Ballot, Nodes};
use crate::protocol::{Goal, Outcome, Round, Time, Ttl};
use crate::round::Tally;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use tokio::runtime::Handle;

/// Sends the releases of `bond`, and returns a future of the outcome. The releases are in the
/// mailboxes when this function returns, so they continue if the future is dropped.
pub(crate) fn release(
    bond: Bond,
    cool_down: Option<Ttl>,
) -> impl Future<Output = Result<ReleaseOutcome, ReleaseError>> + use<> {
    let mut nodes = bond.nodes();
    let Bond { guard, backing } = bond;
    let (quorum, timeout) = (backing.quorum, backing.limits.node_timeout);
    let t1 = nodes.clock().now();
    let tally = Tally::new(Round::new(quorum, Goal::Release), t1, nodes.clock());
    guard.release(&nodes, (t1, cool_down), |node| Ballot::new(tally.clone(), node));
    async move {
        let mut close_at = t1.after(timeout);
        while !is_decided_on(&nodes, &tally, close_at).await {
            // The runtime that delivers the releases was shut down. Unwritten releases move to
            // another runtime; the current one serves if no other does.
            let Some(others) = backing.pool.here().ok().filter(|nodes| nodes.is_open()) else {
                tally.decided(&nodes, close_at).await;
                break;
            };
            (nodes, close_at) = (others, nodes.clock().now().after(timeout));
        }
        match tally.with_round(Round::outcome) {
            Some(Outcome::Won) => Ok(ReleaseOutcome::Released),
            Some(Outcome::Denied) => Ok(ReleaseOutcome::TakenOver),
            Some(Outcome::Missing) => Ok(ReleaseOutcome::Expired),
            Some(Outcome::TooLate | Outcome::NoQuorum) | None => {
                let report = Box::new(tally.report(nodes.names().cloned()));
                Err(ReleaseError::NoQuorum { report })
            }
        }
    }
}

/// Waits until the round is decided, at the latest until soon after `close_at`. Returns false if
/// the runtime of `nodes` was shut down first.
async fn is_decided_on(nodes: &Nodes, tally: &Tally, close_at: Time) -> bool {
    let is_theirs = Handle::try_current().is_ok_and(|here| here.id() == nodes.runtime().id());
    if is_theirs {
        // This task runs on that runtime, so a shutdown also drops this future.
        tally.decided(nodes, close_at).await;
        return true;
    }
    let mut closed = pin!(nodes.closed());
    let mut decided = pin!(tally.decided(nodes, close_at));
    poll_fn(|cx| match decided.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(true),
        Poll::Pending => closed.as_mut().poll(cx).map(|()| false),
    })
    .await
}
