//! A node: its keys, and the effect of the lock script on them.

use crate::channel::{Request, Verb};
use crate::setting::Setting;

/// State of one key on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Key {
    /// No value.
    Free,
    /// The value of one attempt of one client.
    Held {
        /// Client that set the value.
        owner: u8,
        /// Attempt that set the value.
        attempt: u8,
        /// Ticks until expiry by the clients' clocks.
        left: u8,
    },
}

impl Key {
    /// Whether the key has the value of this client's attempt.
    pub(crate) fn is_of(self, client: usize, of: u8) -> bool {
        match self {
            Self::Free => false,
            Self::Held { owner, attempt, .. } => usize::from(owner) == client && attempt == of,
        }
    }
}

/// A node with `K` keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ModelNode<const K: usize> {
    /// Running.
    Up {
        /// Ticks since its start, at most the term of the guard.
        age: u8,
        /// State of each key.
        keys: [Key; K],
    },
    /// Crashed.
    Away {
        /// Ticks of downtime that remain.
        left: u8,
    },
}

impl<const K: usize> ModelNode<K> {
    /// A node without keys that has run for `age` ticks.
    pub(crate) fn empty(age: u8) -> Self {
        Self::Up { age, keys: [Key::Free; K] }
    }

    /// Keys of a running node; empty for a crashed node.
    pub(crate) fn keys(&self) -> &[Key] {
        match self {
            Self::Up { keys, .. } => keys,
            Self::Away { .. } => &[],
        }
    }

    pub(crate) fn keys_mut(&mut self) -> &mut [Key] {
        match self {
            Self::Up { keys, .. } => keys,
            Self::Away { .. } => &mut [],
        }
    }

    /// Advances by a tick. Ages above `oldest` need no distinction.
    pub(crate) fn tick(&mut self, oldest: u8) {
        match self {
            Self::Up { age, keys } => {
                *age = (*age + 1).min(oldest);
                for key in keys {
                    if let Key::Held { left, .. } = key {
                        *left = left.saturating_sub(1);
                    }
                }
            }
            Self::Away { left } => *left = left.saturating_sub(1),
        }
    }

    /// Executes a request of `client`. Returns whether it is granted.
    pub(crate) fn serve(&mut self, setting: &Setting, client: usize, request: Request) -> bool {
        let set = setting.sets[client];
        let all = self.keys_mut();
        let is_ours = |key: Key| key.is_of(client, request.attempt);
        match request.verb {
            Verb::Release => {
                for key in set {
                    if is_ours(all[*key]) || !setting.compares {
                        all[*key] = Key::Free;
                    }
                }
                return false;
            }
            Verb::Set if setting.is_whole => {
                if set.iter().any(|key| all[*key] != Key::Free) {
                    return false;
                }
            }
            Verb::Set => {
                if set.iter().all(|key| all[*key] != Key::Free) {
                    return false;
                }
            }
            Verb::Extend => {
                if !set.iter().all(|key| is_ours(all[*key])) {
                    return false;
                }
            }
        }
        for key in set {
            if request.verb == Verb::Extend || all[*key] == Key::Free {
                all[*key] = Key::Held {
                    owner: u8::try_from(client).expect("few clients"),
                    attempt: request.attempt,
                    left: setting.ttl,
                };
            }
        }
        true
    }
}
