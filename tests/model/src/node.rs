//! A model node: its keys, and the effect of the lock scripts on the keys.

use crate::channel::{Request, Verb};
use crate::setting::Setting;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Key {
    Free,
    /// The key has the value of the attempt `attempt` of the client `owner`.
    Held {
        owner: u8,
        attempt: u8,
        /// The number of ticks until the key expires, by the clients' clocks.
        left: u8,
    },
}

impl Key {
    /// Returns true if the key has the value of attempt `of` of `client`.
    pub(crate) fn is_of(self, client: usize, of: u8) -> bool {
        match self {
            Self::Free => false,
            Self::Held { owner, attempt, .. } => usize::from(owner) == client && attempt == of,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ModelNode<const K: usize> {
    Up {
        /// The number of ticks since the node started, limited to the guard's quarantine period.
        age: u8,
        keys: [Key; K],
    },
    Down {
        /// The remaining downtime in ticks.
        left: u8,
    },
}

impl<const K: usize> ModelNode<K> {
    pub(crate) fn empty(age: u8) -> Self {
        Self::Up { age, keys: [Key::Free; K] }
    }

    pub(crate) fn keys(&self) -> &[Key] {
        match self {
            Self::Up { keys, .. } => keys,
            Self::Down { .. } => &[],
        }
    }

    pub(crate) fn keys_mut(&mut self) -> &mut [Key] {
        match self {
            Self::Up { keys, .. } => keys,
            Self::Down { .. } => &mut [],
        }
    }

    /// Advances the node by a tick. An age above `oldest` has the same effect as `oldest`, so ages
    /// are limited to it.
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
            Self::Down { left } => *left = left.saturating_sub(1),
        }
    }

    /// Executes a request of `client`. Returns true if the node grants the request.
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
