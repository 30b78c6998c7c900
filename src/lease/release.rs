//! Leases that end by somebody's will.

use super::state::Bond;
use crate::error::ReleaseError;
use crate::node::{Ballot, Nodes};
use crate::protocol::{Goal, Outcome, Round, Time, Ttl};
use crate::round::Tally;
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use tokio::runtime::Handle;

/// What a release found: whether the lock was held to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReleaseOutcome {
    /// It was deleted on a quorum of nodes, so it was held up to then.
    Released,
    /// Too many nodes had no key: it had expired, or was deleted, for example by a forced release. No other holder was
    /// seen.
    Expired,
    /// Others hold it by now. Nothing of theirs was touched.
    TakenOver,
    /// Other guards of the same lease are left, see [`reenter`](crate::LeaseRef::reenter): the lock
    /// stays.
    StillHeld {
        /// How many guards are left.
        guards: usize,
    },
    /// It was released before, by [`release_all`](crate::Redlock::release_all) or
    /// [`close`](crate::Redlock::close).
    AlreadyReleased,
}

impl fmt::Display for ReleaseOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Released => f.write_str("released"),
            Self::Expired => f.write_str("expired or deleted before it was released"),
            Self::TakenOver => f.write_str("taken over before it was released"),
            Self::StillHeld { guards: 1 } => f.write_str("still held by 1 guard"),
            Self::StillHeld { guards } => write!(f, "still held by {guards} guards"),
            Self::AlreadyReleased => f.write_str("released before"),
        }
    }
}

/// Gives up what `bond` holds, and waits for what the nodes say. If the future is dropped, the
/// release goes on: it is in the mailboxes when this returns.
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
            // The runtime that was to deliver it has been shut down. What it had not written goes by
            // way of whichever runtime can, and so by way of this one.
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

/// Waits until the round is decided, at the latest soon after `close_at`. False if the runtime of
/// `nodes` was shut down before that.
async fn is_decided_on(nodes: &Nodes, tally: &Tally, close_at: Time) -> bool {
    let is_theirs = Handle::try_current().is_ok_and(|here| here.id() == nodes.runtime().id());
    if is_theirs {
        // What shuts it down ends us too.
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
