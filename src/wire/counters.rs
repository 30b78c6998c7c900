//! The counters beside a claim's keys, and the fencing token that comes of them.

use super::companion::companion;
use super::keys::Keys;
use crate::protocol::Ttl;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
        Self { beside, hint, token: AtomicU64::new(0) }
    }

    /// Notes the token that a quorum has committed.
    pub(crate) fn commit(&self, token: u64) {
        self.token.store(token, Ordering::Release);
    }

    /// The token, once it is committed.
    pub(crate) fn token(&self) -> Option<u64> {
        Some(self.token.load(Ordering::Acquire)).filter(|token| *token != 0)
    }

    /// A new number is to be drawn.
    pub(crate) fn draw(&self) -> CounterUpdate<'_> {
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

    /// The same, as far as the counters allow it: what is released must go, whatever they show.
    pub(crate) fn try_keep(&self) -> Option<CounterUpdate<'_>> {
        self.token().map(|token| self.follow(token, Mode::Try))
    }

    fn follow(&self, least: u64, mode: Mode) -> CounterUpdate<'_> {
        CounterUpdate { counters: &self.beside.keys, ttl: self.beside.ttl, least, mode }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_kept_up_once_there_is_a_token() {
        let keys = Keys::one(b"k".as_slice().into());
        let counters = CounterKeys::beside(&keys, Ttl::SHORTEST).expect("no braces");
        let fence = Counters::new(Arc::new(counters), 7);
        assert!(fence.token().is_none() && fence.keep().is_none() && fence.try_keep().is_none());
        assert_eq!((fence.draw().least, fence.draw().mode), (7, Mode::Draw));
        fence.commit(9);
        assert_eq!(fence.token(), Some(9));
        assert!(fence.keep().is_some_and(|follow| follow.least == 9 && follow.mode == Mode::Keep));
        assert!(
            fence.try_keep().is_some_and(|follow| follow.least == 9 && follow.mode == Mode::Try)
        );
    }
}
