//! What a node that is away still has to be told.

use super::STALE_WINDOW;
use super::queued_command::QueuedCommand;
use crate::protocol::{NodeId, Time};
use crate::time::clock;
use rand::random_range;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// The most releases kept for one node (I12). Only commands that were written are owed a release,
/// and nothing is written to a node that is away, so a node has to fail again and again under load
/// to come near. Beyond, the oldest is dropped: its key lives for its ttl.
const MAX_RELEASES: usize = 1 << 16;

/// Between two tries of an order that the node answered with an error, such as `BUSY`: doubling
/// from the first to the last, drawn from the upper half.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LAST_PAUSE: Duration = Duration::from_millis(500);

/// Releases and extensions that have to reach a node when it answers again.
pub(super) struct Pending {
    node: NodeId,
    releases: VecDeque<QueuedCommand>,
    /// By claim, the longest.
    extensions: HashMap<usize, QueuedCommand>,
    pause: Duration,
    not_before: Instant,
}

impl Pending {
    pub(super) fn new(node: NodeId) -> Self {
        Self {
            node,
            releases: VecDeque::new(),
            extensions: HashMap::new(),
            pause: FIRST_PAUSE,
            not_before: Instant::now(),
        }
    }

    /// Keeps an order whose vote has been cast. Acquires are not owed to anybody.
    pub(super) fn keep(&mut self, order: QueuedCommand) {
        if order.is_release() {
            self.releases.push_back(order);
            if self.releases.len() > MAX_RELEASES {
                self.releases.pop_front();
            }
        } else if order.is_extension() && !order.claim().is_withdrawn() {
            let claim = std::sync::Arc::as_ptr(order.claim()) as usize;
            if self.extensions.get(&claim).is_none_or(|kept| order.outlasts(kept)) {
                self.extensions.insert(claim, order);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.releases.is_empty() && self.extensions.is_empty()
    }

    /// Drops what has no use any more: the key must have expired, or the lease has ended. What may
    /// still run late on the node (the claim is unsure there) is kept until it answers; but only for
    /// as long as a connection that broke can deliver anything, if the node refuses it and will go on
    /// to, and at the `last` chance, when there is nobody left to serve.
    pub(super) fn prune(&mut self, now: Time, last: bool) {
        let node = self.node;
        self.releases.retain(|order| {
            let expiry = order.claim().expiry();
            match (order.claim().is_in_doubt(node), last || order.is_refused()) {
                (false, _) => now < expiry,
                (true, false) => true,
                (true, true) => now < expiry.after(STALE_WINDOW),
            }
        });
        self.extensions.retain(|_, order| !order.is_void(node, now));
    }

    /// When the next try is due; `None` if nothing is owed.
    pub(super) fn due(&self) -> Option<Instant> {
        (!self.is_empty()).then_some(self.not_before)
    }

    /// Takes up to `most` orders that are due at `at`, releases first; see [`prune`](Self::prune).
    pub(super) fn take(&mut self, most: usize, at: Instant, last: bool) -> Vec<QueuedCommand> {
        if self.is_empty() || at < self.not_before {
            return Vec::new();
        }
        self.prune(clock::now(), last);
        let releases = self.releases.len().min(most);
        let mut taken: Vec<_> = self.releases.drain(..releases).collect();
        let claims: Vec<_> = self.extensions.keys().copied().take(most - releases).collect();
        taken.extend(claims.iter().filter_map(|claim| self.extensions.remove(claim)));
        taken
    }

    /// Takes all releases, to be kept elsewhere.
    pub(super) fn take_releases(&mut self) -> impl Iterator<Item = QueuedCommand> {
        self.releases.drain(..)
    }

    /// The node refused one of these with an error: wait before the next try.
    pub(super) fn back_off(&mut self, at: Instant) {
        if at >= self.not_before {
            self.not_before = at + random_range(self.pause / 2..=self.pause);
            self.pause = (self.pause * 2).min(LAST_PAUSE);
        }
    }

    /// The node did what it was asked: the next pause is a short one again, unless there are others to
    /// be repeated.
    pub(super) fn handle_success(&mut self) {
        if self.is_empty() {
            self.pause = FIRST_PAUSE;
        }
    }

    /// The node answers: the next try may come at once.
    pub(super) fn recover(&mut self) {
        self.pause = FIRST_PAUSE;
        self.not_before = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Claim;
    use crate::protocol::Ttl;
    use crate::wire::{Keys, Value};
    use std::sync::Arc;

    #[test]
    fn a_release_that_is_refused_for_good_is_not_repeated_for_ever() {
        let node = NodeId::new(0);
        let ttl = Ttl::from_duration(Duration::from_secs(1)).expect("a good ttl");
        let owed = |is_in_doubt: bool, is_refused: bool| {
            let claim = Arc::new(Claim::new(
                Keys::one(b"r".as_slice().into()),
                Value::fresh(&crate::random::Random::Machine),
                1,
            ));
            assert!(claim.note_written(node, ttl, Time::from_nanos(0)));
            if is_in_doubt {
                claim.note_in_doubt(node);
            }
            let mut order = QueuedCommand::release(claim, None);
            order.note_refusal(is_refused);
            let mut owed = Pending::new(node);
            owed.keep(order);
            owed
        };
        let at = |seconds| Time::from_nanos(0).after(Duration::from_secs(seconds));
        for (is_in_doubt, is_refused, last, until) in [
            (false, false, false, 1),
            (false, true, false, 1),
            (true, false, false, 1_000_000),
            (true, true, false, 11),
            (true, false, true, 11),
            (true, true, true, 11),
        ] {
            let mut owed = owed(is_in_doubt, is_refused);
            owed.prune(at(until), last);
            assert!(!owed.is_empty(), "of use after {until} s");
            if until < 1_000 {
                owed.prune(at(until + 1), last);
                assert!(owed.is_empty(), "no more: {is_in_doubt} {is_refused} {last}");
            }
        }
    }
}
