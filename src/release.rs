//! Leases that end by somebody's will.

use crate::clock;
use crate::error::ReleaseError;
use crate::hold::Hold;
use crate::holding::Holding;
use crate::node::{Ballot, Cooling, Value};
use crate::protocol::{Goal, Outcome, Round, Ttl};
use crate::redlock::Inner;
use crate::tally::Tally;
use futures::future::join_all;
use std::sync::Arc;

/// What a release found: whether the lock was held to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReleaseOutcome {
    /// It was deleted on a quorum of nodes, so it was held up to then.
    Released,
    /// It was gone from too many nodes: its time had ended. Nobody else was seen holding it.
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

/// Gives up what `hold` holds, and waits for what the nodes say. If the future is dropped, the
/// release goes on: it is in the mailboxes when this returns.
pub(crate) fn release(
    holding: &Holding,
    hold: Hold,
    cool_down: Option<Ttl>,
) -> impl Future<Output = Result<ReleaseOutcome, ReleaseError>> + use<> {
    let (quorum, timeout) = {
        let driver = &holding.client().driver;
        (driver.quorum, driver.node_timeout)
    };
    let nodes = holding.nodes();
    let t1 = clock::now();
    let cooling = cool_down
        .map(|ttl| Arc::new(Cooling { value: Value::fresh(), until: t1.after(ttl.as_duration()) }));
    let tally = Tally::new(Round::new(quorum, Goal::Release), t1);
    hold.release(&nodes, cooling.as_ref(), |node| Ballot::new(tally.clone(), node));
    async move {
        tally.decided(&nodes, t1.after(timeout)).await;
        match tally.judge(Round::outcome) {
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

impl Inner {
    /// Releases all leases, with what the nodes say of each.
    pub(crate) async fn release_all(&self) -> Vec<(Vec<u8>, Result<ReleaseOutcome, ReleaseError>)> {
        let held = self.roster.all();
        let resource = |holding: &Holding| self.resource(holding.claim().keys().first()).to_vec();
        let under_way = held.iter().filter_map(|holding| {
            let released = release(holding, holding.close()?, None);
            let resource = resource(holding);
            Some(async move { (resource, released.await) })
        });
        // All are in the mailboxes before the first is waited for.
        join_all(under_way.collect::<Vec<_>>()).await
    }

    /// Takes no more leases, gives up those that there are, and waits until all is delivered. Returns
    /// the nodes that are still owed something, and how much.
    pub(crate) async fn close(&self) -> Vec<(Arc<str>, usize)> {
        for holding in self.roster.close() {
            drop(holding.close());
        }
        self.driver.close(self.settings.connect_timeout).await
    }

    /// What is locked by `key`.
    pub(crate) fn resource<'a>(&self, key: &'a [u8]) -> &'a [u8] {
        key.get(self.settings.prefix.len()..).unwrap_or_default()
    }
}
