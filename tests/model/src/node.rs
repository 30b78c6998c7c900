//! A node: what it has at each key, and what its script does with all keys of a lock.

use crate::line::{Request, Verb};
use crate::setting::Setting;

/// What a node has at one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Key {
    /// Nothing.
    Free,
    /// The value of one attempt of one client, to expire in so many ticks.
    Held {
        /// The client.
        owner: u8,
        /// Its attempt.
        attempt: u8,
        /// The ticks to go by the clients' clock.
        left: u8,
    },
}

impl Key {
    /// Whether the value of this attempt of this client stands there.
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
    /// It answers.
    Up {
        /// The ticks since it was started, up to the term of the guard.
        age: u8,
        /// What it has.
        keys: [Key; K],
    },
    /// It has crashed, and should stay away for so many ticks.
    Away {
        /// The ticks to go.
        left: u8,
    },
}

impl<const K: usize> ModelNode<K> {
    /// It has been up for `age` ticks, and has nothing.
    pub(crate) fn empty(age: u8) -> Self {
        Self::Up { age, keys: [Key::Free; K] }
    }

    /// What it has, if it has anything.
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

    /// A tick passes, on a node whose age matters up to `oldest`.
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

    /// Does what `client` asks; true if that is granted.
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
