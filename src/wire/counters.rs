//! The counters beside a claim's keys, and the fencing token that comes of them.

use super::companion::companion;
use super::keys::Keys;
use crate::protocol::{NodeId, NodeSet, Time, Ttl};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The counters beside the keys of a lock.
#[derive(Debug)]
pub(crate) struct CounterKeys {
    keys: Keys,
    /// How long a counter stands after it was last used.
    ttl: Ttl,
}

impl CounterKeys {
    /// One beside each of `keys`; or the first key that can have none.
    pub(crate) fn beside(keys: &Keys, ttl: Ttl) -> Result<Self, &[u8]> {
        Ok(Self { keys: keys.try_map(|key| companion(key, "token"))?, ttl })
    }
}

/// What a claim wants of the counters.
#[derive(Debug)]
pub(crate) struct Counters {
    beside: Arc<CounterKeys>,
    /// To which number the nodes are asked to go.
    hint: u64,
    /// The committed token; 0, which no node draws, before.
    token: AtomicU64,
    /// When a number was first asked for; 0 before.
    drawn: AtomicU64,
    /// The nodes where a key of ours has a counter beside it that is not below the token.
    standing: OnceLock<NodeSet>,
}

/// How the counters are to follow what becomes of the keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CounterUpdate<'a> {
    pub(crate) counters: &'a Keys,
    pub(crate) ttl: Ttl,
    /// The number is at least this.
    pub(crate) least: u64,
    pub(crate) mode: Mode,
}

/// Which number the counters go to; see `scripts/fenced.lua`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// One above what they show.
    Draw,
    /// What they show.
    Keep,
    /// What they show, and what shows no number is left alone: it is in nobody's way.
    Try,
}

impl Mode {
    /// As the script is told.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Draw => "draw",
            Self::Keep => "keep",
            Self::Try => "try",
        }
    }
}

impl Counters {
    pub(crate) fn new(beside: Arc<CounterKeys>, hint: u64) -> Self {
        let (token, drawn, standing) = Default::default();
        Self { beside, hint, token, drawn, standing }
    }

    /// Notes the token that a quorum has committed. `drawn` are the numbers that nodes have drawn for it.
    pub(crate) fn commit(&self, token: u64, drawn: &[(NodeId, u64)]) {
        let standing = drawn.iter().filter(|(_, number)| *number >= token).map(|(node, _)| *node);
        self.standing.get_or_init(|| standing.collect());
        self.token.store(token, Ordering::Release);
    }

    /// The token, once it is committed.
    pub(crate) fn token(&self) -> Option<u64> {
        Some(self.token.load(Ordering::Acquire)).filter(|token| *token != 0)
    }

    /// A new number is to be drawn, at `now`.
    pub(crate) fn draw(&self, now: Time) -> CounterUpdate<'_> {
        let first = (0, now.as_nanos(), Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.drawn.compare_exchange(first.0, first.1, first.2, first.3);
        self.follow(self.hint, Mode::Draw)
    }

    /// The counters are to stand at `token` at least.
    pub(crate) fn raise(&self, token: u64) -> CounterUpdate<'_> {
        self.follow(token, Mode::Keep)
    }

    /// The counters are to stand at the committed token at least; `None` before it is.
    pub(crate) fn keep(&self) -> Option<CounterUpdate<'_>> {
        self.token().map(|token| self.raise(token))
    }

    /// The same, as far as the counters allow it: what is released must go, whatever they show. `None` also
    /// where that changes nothing on `node`, and will not before `until`.
    pub(crate) fn try_keep(&self, node: NodeId, until: Time) -> Option<CounterUpdate<'_>> {
        let token = self.token().filter(|token| !self.stands(*token, node, until))?;
        Some(self.follow(token, Mode::Try))
    }

    /// True if wherever on `node` our keys stand, the counters beside them are not below the `token` `until`
    /// then, and for half of their ttl after it at the least.
    ///
    /// Keys of ours are there by a command that went to the counters in the same step: it drew the hint, or
    /// what it answered; or it put the keys back, and kept the token. And a counter never falls.
    fn stands(&self, token: u64, node: NodeId, until: Time) -> bool {
        let drawn = Time::from_nanos(self.drawn.load(Ordering::Relaxed));
        let has_drawn = || self.standing.get().is_some_and(|standing| standing.contains(node));
        until < drawn.after(self.beside.ttl.as_duration() / 2)
            && (token <= self.hint || has_drawn())
    }

    fn follow(&self, least: u64, mode: Mode) -> CounterUpdate<'_> {
        CounterUpdate { counters: &self.beside.keys, ttl: self.beside.ttl, least, mode }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn counters_are_kept_up_once_there_is_a_token() {
        let keys = Keys::one(b"k".as_slice().into());
        let counters = CounterKeys::beside(&keys, Ttl::SHORTEST).expect("no braces");
        let fence = Counters::new(Arc::new(counters), 7);
        let (node, now) = (NodeId::new(0), Time::from_nanos(1));
        let tries = || fence.try_keep(node, now);
        assert!(fence.token().is_none() && fence.keep().is_none() && tries().is_none());
        assert_eq!((fence.draw(now).least, fence.draw(now).mode), (7, Mode::Draw));
        fence.commit(9, &[]);
        assert_eq!(fence.token(), Some(9));
        assert!(fence.keep().is_some_and(|follow| follow.least == 9 && follow.mode == Mode::Keep));
        assert!(tries().is_some_and(|follow| follow.least == 9 && follow.mode == Mode::Try));
    }

    #[test]
    fn a_release_leaves_a_counter_alone_that_stands_at_the_token_and_will_for_long() {
        let ttl = Ttl::from_duration(Duration::from_mins(1)).expect("a good ttl");
        let keys = Keys::one(b"k".as_slice().into());
        let counters = Arc::new(CounterKeys::beside(&keys, ttl).expect("no braces"));
        let at = |seconds| Time::from_nanos(1).after(Duration::from_secs(seconds));
        let [low, even, high] = [0, 1, 2].map(NodeId::new);
        let fence = |token, drawn: &[(NodeId, u64)]| {
            let fence = Counters::new(counters.clone(), 7);
            fence.draw(at(0));
            fence.draw(at(20));
            fence.commit(token, drawn);
            fence
        };
        let hinted = fence(7, &[]);
        assert!(hinted.try_keep(low, at(29)).is_none(), "whoever set the key has drawn the hint");
        assert!(hinted.try_keep(low, at(30)).is_some(), "half of its time is over");
        let drawn = fence(9, &[(low, 8), (even, 9), (high, 12)]);
        let keeps = |node| drawn.try_keep(node, at(29)).is_some();
        assert_eq!([low, even, high, NodeId::new(3)].map(keeps), [true, false, false, true]);
    }
}
