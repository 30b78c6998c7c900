//! Fencing counters of a lock attempt, and the fencing token that the attempt obtains from them.

use super::auxiliary_key::auxiliary_key;
use super::keys::{Key, Keys};
use crate::protocol::{NodeId, NodeSet, Time, Ttl};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

#[derive(Debug)]
pub(crate) struct CounterKeys {
    keys: Keys,
    /// How long a node keeps a counter after its last use.
    ttl: Ttl,
}

impl CounterKeys {
    /// Derives one counter key from each lock key. Fails with the first lock key that cannot have a counter.
    pub(crate) fn for_keys(keys: &Keys, ttl: Ttl) -> Result<Self, &[u8]> {
        Ok(Self { keys: keys.try_map(|key| auxiliary_key(key, "token"))?, ttl })
    }

    /// Returns the counter keys of `some` of the lock keys `all`.
    pub(crate) fn of_some(&self, all: &Keys, some: &Keys) -> Option<Self> {
        let places: Vec<_> = some.iter().filter_map(|key| all.position(key)).collect();
        self.select(&places)
    }

    fn select(&self, places: &[usize]) -> Option<Self> {
        Some(Self { keys: self.keys.select(places)?, ttl: self.ttl })
    }
}

/// The fencing counters and the fencing token of one attempt.
#[derive(Debug)]
pub(crate) struct Counters {
    keys: Arc<CounterKeys>,
    /// The minimum value of the counters after an increment. The client chooses it so that all nodes reply with the
    /// same number.
    hint: u64,
    /// The attempt's committed token, or 0 before the commit. No token is 0, because counters start at 1.
    token: AtomicU64,
    /// Time of the first increment in nanoseconds, or 0 before the first increment.
    first_increment: AtomicU64,
    /// Nodes that returned a counter value equal to the token or higher.
    nodes_at_token: OnceLock<NodeSet>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct CounterUpdate<'a> {
    pub(crate) counters: &'a Keys,
    pub(crate) ttl: Ttl,
    /// Minimum value of the counters after the update.
    pub(crate) minimum: u64,
    pub(crate) mode: CounterMode,
}

/// How a script computes the counters' new value, which is never below the update's minimum. See `scripts/fenced.lua`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CounterMode {
    /// The new value is the highest current value plus 1.
    Increment,
    /// The new value is the highest current value.
    Touch,
    /// The new value is the highest current value. The script skips counters that hold no number.
    TryTouch,
}

impl CounterMode {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Increment => "incr",
            Self::Touch => "touch",
            Self::TryTouch => "try",
        }
    }
}

impl Counters {
    pub(crate) fn new(keys: Arc<CounterKeys>, hint: u64) -> Self {
        let (token, first_increment, nodes_at_token) = Default::default();
        Self { keys, hint, token, first_increment, nodes_at_token }
    }

    /// Returns the counters of the key at `place`. Must be called before a token is committed.
    pub(crate) fn of_key(&self, place: usize) -> Option<Self> {
        let counters = Self::new(Arc::new(self.keys.select(&[place])?), self.hint);
        let first_increment = self.first_increment.load(Ordering::Relaxed);
        counters.first_increment.store(first_increment, Ordering::Relaxed);
        Some(counters)
    }

    /// Returns the counter of the first lock key.
    pub(super) fn first_key(&self) -> &Key {
        self.keys.keys.first()
    }

    /// Stores the fencing token after a quorum has committed it. `drawn` contains the counter value that each node
    /// returned.
    pub(crate) fn commit(&self, token: u64, drawn: &[(NodeId, u64)]) {
        let nodes_at_token =
            drawn.iter().filter(|(_, number)| *number >= token).map(|(node, _)| *node);
        self.nodes_at_token.get_or_init(|| nodes_at_token.collect());
        self.token.store(token, Ordering::Release);
    }

    pub(super) fn keys(&self) -> &Keys {
        &self.keys.keys
    }

    pub(crate) fn token(&self) -> Option<u64> {
        Some(self.token.load(Ordering::Acquire)).filter(|token| *token != 0)
    }

    /// Creates an update that increments the counters. Records `now` as the time of the first increment, unless one is
    /// recorded already.
    pub(crate) fn increment(&self, now: Time) -> CounterUpdate<'_> {
        let first = (0, now.as_nanos(), Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.first_increment.compare_exchange(first.0, first.1, first.2, first.3);
        self.update(self.hint, CounterMode::Increment)
    }

    /// Creates an update that raises the counters to at least `token`.
    pub(crate) fn confirm(&self, token: u64) -> CounterUpdate<'_> {
        self.update(token, CounterMode::Touch)
    }

    /// Creates an update that raises the counters to at least the committed token and renews their TTL. Returns `None`
    /// if no token has been committed yet.
    pub(crate) fn touch(&self) -> Option<CounterUpdate<'_>> {
        self.token().map(|token| self.confirm(token))
    }

    /// Creates an update that accompanies a release. It raises the counters to at least the committed token and renews
    /// their TTL. It skips counters that hold no number, so that it never fails the release.
    ///
    /// Returns `None` if no token has been committed, or if the counters on `node` are high enough at `until` without
    /// the update.
    pub(crate) fn try_touch(&self, node: NodeId, until: Time) -> Option<CounterUpdate<'_>> {
        let token = self.token().filter(|token| !self.is_high_enough(*token, node, until))?;
        Some(self.update(token, CounterMode::TryTouch))
    }

    /// Returns true if a release needs no update of the counters on `node`: if the node stores this client's keys,
    /// their counters are at `token` or above at `until`. The counters then remain for at least half of their TTL after
    /// `until`.
    ///
    /// This holds because every command that sets the keys updates the counters in the same script. An acquire raises
    /// the counters to the hint or to the number that it returned, and a repair raises them to the token. Counters
    /// never decrease.
    fn is_high_enough(&self, token: u64, node: NodeId, until: Time) -> bool {
        let drawn = Time::from_nanos(self.first_increment.load(Ordering::Relaxed));
        let has_drawn = || {
            self.nodes_at_token.get().is_some_and(|nodes_at_token| nodes_at_token.contains(node))
        };
        until < drawn.after(self.keys.ttl.as_duration() / 2) && (token <= self.hint || has_drawn())
    }

    fn update(&self, minimum: u64, mode: CounterMode) -> CounterUpdate<'_> {
        CounterUpdate { counters: &self.keys.keys, ttl: self.keys.ttl, minimum, mode }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn counters_are_touched_after_the_token_is_committed() {
        let keys = Keys::one(b"k".as_slice().into());
        let counters =
            CounterKeys::for_keys(&keys, Ttl::SHORTEST).expect("keys that can have counters");
        let fence = Counters::new(Arc::new(counters), 7);
        let (node, now) = (NodeId::new(0), Time::from_nanos(1));
        let tries = || fence.try_touch(node, now);
        assert!(fence.token().is_none() && fence.touch().is_none() && tries().is_none());
        assert_eq!(
            (fence.increment(now).minimum, fence.increment(now).mode),
            (7, CounterMode::Increment)
        );
        fence.commit(9, &[]);
        assert_eq!(fence.token(), Some(9));
        assert!(
            fence
                .touch()
                .is_some_and(|update| update.minimum == 9 && update.mode == CounterMode::Touch)
        );
        assert!(
            tries()
                .is_some_and(|update| update.minimum == 9 && update.mode == CounterMode::TryTouch)
        );
    }

    #[test]
    fn release_skips_update_of_counters_known_to_be_high_enough() {
        let ttl = Ttl::from_duration(Duration::from_mins(1)).expect("a good ttl");
        let keys = Keys::one(b"k".as_slice().into());
        let counters =
            Arc::new(CounterKeys::for_keys(&keys, ttl).expect("keys that can have counters"));
        let at = |seconds| Time::from_nanos(1).after(Duration::from_secs(seconds));
        let [low, even, high] = [0, 1, 2].map(NodeId::new);
        let fence = |token, drawn: &[(NodeId, u64)]| {
            let fence = Counters::new(counters.clone(), 7);
            fence.increment(at(0));
            fence.increment(at(20));
            fence.commit(token, drawn);
            fence
        };
        let hinted = fence(7, &[]);
        assert!(
            hinted.try_touch(low, at(29)).is_none(),
            "every key was set with an increment to the hint"
        );
        assert!(hinted.try_touch(low, at(30)).is_some(), "half of the counter TTL has passed");
        let drawn = fence(9, &[(low, 8), (even, 9), (high, 12)]);
        let keeps = |node| drawn.try_touch(node, at(29)).is_some();
        assert_eq!([low, even, high, NodeId::new(3)].map(keeps), [true, false, false, true]);
    }
}
