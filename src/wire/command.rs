//! What a node can be asked to do, and how it is written.

use super::counters::{CounterUpdate, Counters};
use super::keys::Keys;
use super::reply::Asked;
use super::script::{ACQUIRE, EXTEND, Form, LOOK, RELEASE, begin};
use super::value::Value;
use crate::protocol::{Time, Ttl};
use redis::Pipeline;
use std::sync::Arc;

/// What a command is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) value: &'a Value,
    pub(crate) fence: Option<&'a Counters>,
}

/// What is to be done with keys.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    /// Set the keys if there are none. Ask what is in the way, as far as that is wanted.
    Acquire { ttl: Ttl, wants: Wants },
    /// Put our value in the place of this one, which was handed over to us.
    Adopt { ttl: Ttl, from: Arc<Value> },
    /// Raise the counters beside the keys to this token, while the keys are ours.
    Raise { token: u64 },
    /// Let the keys stand until at least `until`, which is T1 + ttl (I6). If `watches`, ask to be
    /// told when they change.
    Extend { until: Time, watches: bool },
    /// Set the keys again where they were lost, for what remains until then.
    Repair { until: Time },
    /// Delete the keys; or let others that nobody owns stand in their place for a while.
    Release { cooling: Option<Arc<CoolDown>> },
    /// Say what stands at the key.
    Look,
    /// Delete the value, which was read there: once, whosever it is.
    ForceDelete,
}

/// What stands in the place of a lock that was released, and until when.
#[derive(Debug)]
pub(crate) struct CoolDown {
    pub(crate) value: Value,
    pub(crate) until: Time,
}

/// What an acquire wants to know of a key that is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wants {
    /// Nothing: there is no second attempt.
    Nothing,
    /// How long it has to live, and to be told when it changes.
    Watch,
    /// That, and who holds it.
    WatchAndHolder,
}

impl Command {
    /// How long the keys stand if this is written at `now`; `None` if it sets none of ours.
    pub(crate) fn lasting(&self, now: Time) -> Option<Ttl> {
        match self {
            Self::Acquire { ttl, .. } | Self::Adopt { ttl, .. } => Some(*ttl),
            Self::Extend { until, .. } | Self::Repair { until } => Some(remaining(*until, now)),
            Self::Raise { .. } | Self::Release { .. } | Self::Look | Self::ForceDelete => None,
        }
    }

    pub(crate) fn asked(&self) -> Asked {
        match self {
            Self::Acquire { .. } | Self::Repair { .. } => Asked::Acquire,
            Self::Extend { .. } | Self::Raise { .. } => Asked::Extend,
            Self::Adopt { .. } | Self::Release { .. } | Self::ForceDelete => Asked::Release,
            Self::Look => Asked::Look,
        }
    }

    /// How the counters of `fence` are to follow.
    pub(crate) fn follow<'a>(&self, fence: &'a Counters) -> Option<CounterUpdate<'a>> {
        match self {
            Self::Acquire { .. } | Self::Adopt { .. } => Some(fence.draw()),
            Self::Raise { token } => Some(fence.raise(*token)),
            Self::Extend { .. } | Self::Repair { .. } => fence.keep(),
            Self::Release { .. } => fence.try_keep(),
            Self::Look | Self::ForceDelete => None,
        }
    }

    /// Adds the commands to `pipeline`. `tracks` says whether the connection can be told when keys
    /// change. Returns which of the replies is the answer.
    pub(crate) fn write(
        &self,
        of: Subject<'_>,
        form: Form,
        now: Time,
        tracks: bool,
        pipeline: &mut Pipeline,
    ) -> usize {
        let (keys, value) = (of.keys, of.value.bytes());
        let ttl = self.lasting(now).map_or(0, Ttl::as_millis);
        let follow = of.fence.and_then(|fence| self.follow(fence));
        let is_plain = keys.len() == 1 && follow.is_none();
        let before = pipeline.len();
        match self {
            Self::Acquire { wants, .. } if is_plain => {
                set(pipeline, keys.first(), value, ttl);
                match wants {
                    Wants::Nothing => {}
                    _ if tracks => watch(pipeline, keys),
                    _ => drop(pipeline.cmd("PTTL").arg(keys.first())),
                }
                if *wants == Wants::WatchAndHolder {
                    pipeline.cmd("GET").arg(keys.first());
                }
                return 0;
            }
            Self::Repair { .. } if is_plain => set(pipeline, keys.first(), value, ttl),
            Self::Acquire { .. } | Self::Repair { .. } => {
                let is_watched = match self {
                    Self::Acquire { wants, .. } => *wants != Wants::Nothing,
                    _ => false,
                };
                if tracks && is_watched {
                    // Before the verdict: what changes after it is told.
                    watch(pipeline, keys);
                }
                ACQUIRE.call(form, keys, follow, pipeline).arg(value).arg(ttl);
                return pipeline.len() - before - 1;
            }
            Self::Adopt { from, .. } => {
                let swap = RELEASE.call(form, keys, follow, pipeline).arg(from.bytes());
                swap.arg(value).arg(ttl);
            }
            Self::Extend { watches, .. } => {
                EXTEND.call(form, keys, follow, pipeline).arg(value).arg(ttl);
                if *watches && tracks {
                    // After it: its own change would end the watch.
                    watch(pipeline, keys);
                }
            }
            Self::Raise { .. } => {
                // It shortens nothing, so this asks only whether the keys are ours.
                let ttl = Ttl::SHORTEST.as_millis();
                EXTEND.call(form, keys, follow, pipeline).arg(value).arg(ttl);
            }
            Self::Release { cooling: Some(cooling) } if now < cooling.until => {
                let ttl = remaining(cooling.until, now).as_millis();
                let swap = RELEASE.call(form, keys, follow, pipeline).arg(value);
                swap.arg(cooling.value.bytes()).arg(ttl);
            }
            Self::Release { .. } | Self::ForceDelete => {
                RELEASE.call(form, keys, follow, pipeline).arg(value);
            }
            Self::Look => {
                LOOK.call(form, keys, None, pipeline);
            }
        }
        0
    }
}

/// What remains until then, rounded up: a lease may be valid until then, and its keys must not end
/// before it. Never nothing, which would delete the key.
fn remaining(until: Time, now: Time) -> Ttl {
    Ttl::covering(until.since(now))
}

/// Of a 64-bit number.
const MAX_DIGITS: usize = 20;

/// Sets the key if there is none.
fn set(pipeline: &mut Pipeline, key: &[u8], value: &[u8], ttl: u64) {
    let bytes = key.len() + value.len() + "NXPX".len() + MAX_DIGITS;
    begin(pipeline, "SET", 5, bytes).arg(key).arg(value).arg("NX").arg("PX").arg(ttl);
}

/// Asks how long the keys have to live, and to be told once when one changes.
fn watch(pipeline: &mut Pipeline, keys: &Keys) {
    for key in keys.iter() {
        // It holds for the very next command only.
        pipeline.cmd("CLIENT").arg("CACHING").arg("YES");
        pipeline.cmd("PTTL").arg(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    proptest! {
        #[test]
        fn a_key_that_is_extended_or_set_anew_stands_until_then(
            now in 0..u64::MAX / 2, left in 0..Duration::from_hours(1).as_nanos(),
        ) {
            let (now, left) = (Time::from_nanos(now), Duration::from_nanos_u128(left));
            let until = now.after(left);
            for deed in [Command::Extend { until, watches: false }, Command::Repair { until }] {
                let stands_until = now.after(deed.lasting(now).expect("it sets").as_duration());
                prop_assert!(stands_until >= until, "{deed:?} ends early");
                prop_assert!(stands_until <= until.after(Duration::from_millis(1)));
            }
        }
    }
}
