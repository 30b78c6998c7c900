//! What a node can be asked to do, and how it is written.

use super::abilities::Abilities;
use super::counters::{CounterUpdate, Counters, Mode};
use super::keys::Keys;
use super::reply::Asked;
use super::reply_shape::{ReplyShape, Writer};
use super::requests::{Requests, Words};
use super::script::{ACQUIRE, ACQUIRE_FENCED, EXTEND, Form, LOOK, RELEASE};
use super::value::{MAX_VALUE, Value};
use crate::protocol::{NodeId, Time, Ttl};
use std::sync::Arc;

/// What a command is about, and for whom it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) node: NodeId,
    pub(crate) keys: &'a Keys,
    pub(crate) value: &'a Value,
    pub(crate) fence: Option<&'a Counters>,
}

/// What a node is to do with keys.
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

    /// How the answer is to be read.
    fn asked(&self) -> Asked {
        match self {
            Self::Acquire { .. } | Self::Repair { .. } => Asked::Acquire,
            Self::Extend { .. } | Self::Raise { .. } => Asked::Extend,
            Self::Adopt { .. } | Self::Release { .. } | Self::ForceDelete => Asked::Release,
            Self::Look => Asked::Look,
        }
    }

    /// How the counters of `fence` are to follow on `node`, if this is written at `now`.
    fn follow<'a>(
        &self,
        fence: &'a Counters,
        node: NodeId,
        now: Time,
    ) -> Option<CounterUpdate<'a>> {
        match self {
            Self::Acquire { .. } | Self::Adopt { .. } => Some(fence.draw(now)),
            Self::Raise { token } => Some(fence.raise(*token)),
            Self::Extend { .. } | Self::Repair { .. } => fence.keep(),
            // A counter is to outlive what stands in the lock's place.
            Self::Release { cooling } => {
                let until = cooling.as_ref().map_or(now, |cooling| cooling.until.max(now));
                fence.try_keep(node, until)
            }
            Self::Look | Self::ForceDelete => None,
        }
    }

    /// Adds this to `requests`, for a connection that `can` do so much. Returns the shape of the replies.
    pub(crate) fn write(
        &self,
        of: Subject<'_>,
        form: Form,
        now: Time,
        can: Abilities,
        requests: &mut Requests,
    ) -> ReplyShape {
        let (keys, value) = (of.keys, of.value.bytes());
        let follow = of.fence.and_then(|fence| self.follow(fence, of.node, now));
        let is_one = keys.len() == 1;
        let native = can.deletes.filter(|_| form == Form::Native && is_one && follow.is_none());
        let ttl = self.lasting(now).map_or(0, Ttl::as_millis);
        let mut writer = Writer::new(self.asked(), requests);
        match self {
            Self::Acquire { wants, .. } if is_one && follow.is_none() => {
                set(&mut writer, keys.first(), value, ttl);
                ask_obstacle(&mut writer, keys.first(), *wants, can.tracks);
            }
            Self::Repair { .. } if is_one && follow.is_none() => {
                set(&mut writer, keys.first(), value, ttl);
            }
            Self::Acquire { wants, .. } => {
                if can.tracks && *wants != Wants::Nothing {
                    // Before the script: what changes after it is told.
                    watch(&mut writer, keys);
                }
                acquire(&mut writer, form, (keys, value, ttl), follow);
            }
            Self::Repair { .. } => acquire(&mut writer, form, (keys, value, ttl), follow),
            Self::Extend { watches, .. } => {
                EXTEND.call(form, keys, follow, 2, writer.requests).arg(value).number(ttl).end();
                writer.note_verdict();
                if *watches && can.tracks {
                    // After it: its own change would end the watch.
                    watch(&mut writer, keys);
                }
            }
            Self::Raise { .. } => {
                // It shortens nothing, so this asks only whether the keys are ours.
                let ttl = Ttl::SHORTEST.as_millis();
                EXTEND.call(form, keys, follow, 2, writer.requests).arg(value).number(ttl).end();
                writer.note_verdict();
            }
            Self::Adopt { from, .. } => {
                let swap = RELEASE.call(form, keys, follow, 3, writer.requests);
                swap.arg(from.bytes()).arg(value).number(ttl).end();
                writer.note_verdict();
            }
            Self::Release { cooling: Some(cooling) } if now < cooling.until => {
                let ttl = remaining(cooling.until, now).as_millis();
                let swap = RELEASE.call(form, keys, follow, 3, writer.requests);
                swap.arg(value).arg(cooling.value.bytes()).number(ttl).end();
                writer.note_verdict();
            }
            Self::Release { .. } | Self::ForceDelete => {
                if let Some(delete) = native {
                    delete.write(keys.first(), value, writer.requests);
                    writer.note_native();
                } else {
                    RELEASE.call(form, keys, follow, 1, writer.requests).arg(value).end();
                }
                writer.note_verdict();
            }
            Self::Look => {
                LOOK.call(form, keys, None, 0, writer.requests).end();
                writer.note_verdict();
            }
        }
        writer.shape()
    }
}

/// Asks what time it is on the node; see [`time_us`](super::time_us).
pub(crate) fn ask_time(requests: &mut Requests) {
    requests.command_of(TIME, 0).end();
}

const TIME: Words<'static> = Words::new(b"$4\r\nTIME\r\n", 1);
const SET: Words<'static> = Words::new(b"$3\r\nSET\r\n", 1);
const NX_PX: Words<'static> = Words::new(b"$2\r\nNX\r\n$2\r\nPX\r\n", 2);
const PTTL: Words<'static> = Words::new(b"$4\r\nPTTL\r\n", 1);
const CLIENT_CACHING_YES: Words<'static> =
    Words::new(b"$6\r\nCLIENT\r\n$7\r\nCACHING\r\n$3\r\nYES\r\n", 3);

/// What remains until then, rounded up: a lease may be valid until then, and its keys must not end
/// before it. Never nothing, which would delete the key.
fn remaining(until: Time, now: Time) -> Ttl {
    Ttl::covering(until.since(now))
}

/// Sets all keys, or none, and lets the counters beside them follow.
fn acquire(
    writer: &mut Writer<'_>,
    form: Form,
    (keys, value, ttl): (&Keys, &[u8], u64),
    follow: Option<CounterUpdate<'_>>,
) {
    let draws = |follow: &CounterUpdate<'_>| keys.len() == 1 && follow.mode == Mode::Draw;
    if let Some(follow) = follow.filter(draws) {
        ACQUIRE_FENCED.draw(form, (keys.first(), value, ttl), follow, writer.requests);
        writer.note_draw();
    } else {
        ACQUIRE.call(form, keys, follow, 2, writer.requests).arg(value).number(ttl).end();
    }
    writer.note_verdict();
}

/// Sets the key if there is none: no script is needed for that.
fn set(writer: &mut Writer<'_>, key: &[u8], value: &[u8], ttl: u64) {
    let set = writer.requests.command_of(SET, 5).arg(key).arg(value);
    set.words(NX_PX).number(ttl).end();
    writer.note_verdict();
}

/// Asks what is wanted of the key that may be in the way.
fn ask_obstacle(writer: &mut Writer<'_>, key: &[u8], wants: Wants, tracks: bool) {
    if wants == Wants::Nothing {
        return;
    }
    ask_ttl(writer, key, tracks);
    writer.note_ttl();
    if wants == Wants::WatchAndHolder {
        // One byte more than the longest value shows that the value is longer.
        writer.requests.command("GETRANGE", 3).arg(key).arg("0").number(MAX_VALUE as u64).end();
        writer.note_holder();
    }
}

/// Asks to be told once when one of the keys changes.
fn watch(writer: &mut Writer<'_>, keys: &Keys) {
    keys.iter().for_each(|key| ask_ttl(writer, key, true));
}

/// Asks how long the key has to live, and if it `is_watched` to be told once when it changes.
fn ask_ttl(writer: &mut Writer<'_>, key: &[u8], is_watched: bool) {
    if is_watched {
        // It holds for the very next command only.
        writer.requests.command_of(CLIENT_CACHING_YES, 0).end();
        writer.note_watch();
    }
    writer.requests.command_of(PTTL, 1).arg(key).end();
}

#[cfg(test)]
#[path = "command_tests.rs"]
mod tests;
