//! Commands that a client sends to a node, and their encoding.

use super::capabilities::Capabilities;
use super::counters::{CounterMode, CounterUpdate, Counters};
use super::keys::{AnyKey, Keys};
use super::period_record::PeriodRecord;
use super::release_command::{delete_all, delete_any, swap};
use super::reply::RequestKind;
use super::reply_shape::{ReplyShape, Writer};
use super::requests::{Requests, Words};
use super::script::{ACQUIRE, ACQUIRE_ANY, ACQUIRE_FENCED, EXTEND, Form, PERIOD, READ};
use super::shared_lock::Sharing;
use super::value::{MAX_VALUE, Value};
use crate::protocol::{NodeId, Time, Ttl};
use std::sync::Arc;

#[derive(Clone, Copy, Debug)]
pub(crate) struct CommandTarget<'a> {
    pub(crate) node: NodeId,
    pub(crate) keys: &'a Keys,
    pub(crate) value: &'a Value,
    pub(crate) fence: Option<&'a Counters>,
    /// How the client uses a lock that has readers. `None` for any other lock.
    pub(crate) sharing: Option<Sharing<'a>>,
}

#[derive(Clone, Debug)]
pub(crate) enum Command {
    /// Sets the keys if none of them exists. Otherwise, the node replies with the details about the conflicting key
    /// that `wants` selects. With `any`, sets only the first free key.
    Acquire { ttl: Ttl, wants: ConflictDetails, any: Option<AnyKey> },
    /// Takes over a lock: replaces the value `from`, which the lock's holder handed over, with this client's value.
    Adopt { ttl: Ttl, from: Arc<Value> },
    /// Raises the fencing counters to at least `token`, provided that the keys hold this client's value.
    ConfirmToken { token: u64 },
    /// Extends the TTLs of the keys, which then expire at `until` or later (I6). `until` is the start of the extension
    /// (T1) plus the ttl. If `watches` is true, the command also subscribes to invalidations of the keys.
    Extend { until: Time, watches: bool },
    /// Restores missing keys. The restored keys expire at `until` or up to 1 ms later.
    Repair { until: Time },
    /// Deletes the keys. With `cooling`, replaces their value with the cool-down value instead.
    Release { cooling: Option<Arc<CoolDown>> },
    /// Deletes the keys that the node has set, usually at most one, after an acquire of any one of several keys.
    ReleaseAny,
    /// Reads the key's value and remaining TTL.
    Read,
    /// Reads the same and the fencing counter, and subscribes to invalidations of the key.
    Observe,
    /// Deletes a key if it still holds a value that was read earlier. The value may belong to any client. The command
    /// is sent once and never retried.
    ForceDelete,
    /// Compares a job's counter with a period, and can store the number of the period.
    Period(Arc<PeriodUpdate>),
}

/// A request for a job's counter.
#[derive(Clone, Debug)]
pub(crate) struct PeriodUpdate {
    /// The number of the period.
    pub(crate) number: u64,
    /// The beginning of the period, in microseconds since 1970.
    pub(crate) begins_us: u64,
    /// The TTL of a stored number and its record.
    pub(crate) ttl: Ttl,
    pub(crate) step: PeriodStep,
    /// The record to store with the number. A node that has stored this record grants the request again.
    pub(crate) record: Option<PeriodRecord>,
}

/// The purpose of a request for a job's counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeriodStep {
    /// Compares only. A node where the period is taken denies.
    Check,
    /// Stores the number before the job runs. A node where another call has taken the period denies.
    Begin,
    /// Stores the number after the job has run. A node where the period is taken grants.
    Finish,
}

/// The value that keeps the keys of a released lock occupied during its cool-down, and the time at which the keys
/// expire.
#[derive(Debug)]
pub(crate) struct CoolDown {
    pub(crate) value: Value,
    pub(crate) until: Time,
}

/// The information that an acquire requests about a conflicting key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConflictDetails {
    /// Requests no details. Used if the client makes no second attempt.
    Nothing,
    /// Requests the key's remaining TTL and, if the node supports client tracking, an invalidation when the key
    /// changes.
    Watch,
    /// Requests the same as [`Watch`](Self::Watch), and the holder's value.
    WatchAndHolder,
}

impl Command {
    /// Returns the TTL that the command sets on the keys if it is written at `now`. Returns `None` if the command sets
    /// no TTL.
    pub(crate) fn key_ttl(&self, now: Time) -> Option<Ttl> {
        match self {
            Self::Acquire { ttl, .. } | Self::Adopt { ttl, .. } => Some(*ttl),
            Self::Extend { until, .. } | Self::Repair { until } => Some(remaining(*until, now)),
            Self::ConfirmToken { .. }
            | Self::Release { .. }
            | Self::ReleaseAny
            | Self::Read
            | Self::Observe
            | Self::ForceDelete
            | Self::Period(_) => None,
        }
    }

    /// Returns true if the client wants to be notified when the keys change.
    pub(super) fn watches(&self) -> bool {
        match self {
            Self::Acquire { wants, .. } => *wants != ConflictDetails::Nothing,
            Self::Extend { watches, .. } => *watches,
            Self::Observe => true,
            _ => false,
        }
    }

    /// Returns the cool-down of a release, unless it has ended.
    pub(super) fn cooling(&self, now: Time) -> Option<&CoolDown> {
        let Self::Release { cooling } = self else { return None };
        cooling.as_deref().filter(|cooling| now < cooling.until)
    }

    pub(super) fn request_kind(&self) -> RequestKind {
        match self {
            Self::Acquire { .. } | Self::Repair { .. } => RequestKind::Acquire,
            Self::Extend { .. } | Self::ConfirmToken { .. } => RequestKind::Extend,
            Self::Adopt { .. } | Self::Release { .. } | Self::ForceDelete => RequestKind::Release,
            Self::ReleaseAny => RequestKind::ReleaseAny,
            Self::Read | Self::Observe => RequestKind::Read,
            Self::Period(update) if update.step == PeriodStep::Finish => RequestKind::FinishPeriod,
            Self::Period(_) => RequestKind::Period,
        }
    }

    fn counter_update<'a>(
        &self,
        fence: &'a Counters,
        node: NodeId,
        now: Time,
    ) -> Option<CounterUpdate<'a>> {
        match self {
            Self::Acquire { .. } | Self::Adopt { .. } => Some(fence.increment(now)),
            Self::ConfirmToken { token } => Some(fence.confirm(*token)),
            Self::Extend { .. } | Self::Repair { .. } => fence.touch(),
            // The counters must outlive the cool-down value.
            Self::Release { cooling } => {
                let until = cooling.as_ref().map_or(now, |cooling| cooling.until.max(now));
                fence.try_touch(node, until)
            }
            Self::ReleaseAny | Self::Read | Self::Observe | Self::ForceDelete | Self::Period(_) => {
                None
            }
        }
    }

    /// Appends the command to `requests` and returns the layout of its replies. A native command replaces a script only
    /// if `form` is [`Form::Native`] and the server supports the native command.
    pub(crate) fn write(
        &self,
        of: CommandTarget<'_>,
        form: Form,
        now: Time,
        can: Capabilities,
        requests: &mut Requests,
    ) -> ReplyShape {
        let (keys, value) = (of.keys, of.value.bytes());
        let update = of.fence.and_then(|fence| self.counter_update(fence, of.node, now));
        if let Some(sharing) = of.sharing
            && let Some(shape) =
                self.write_shared(sharing, of, form, (now, can.tracks, update), requests)
        {
            return shape;
        }
        let needs_no_script = keys.len() == 1 && update.is_none();
        let is_native = form == Form::Native
            && update.is_none()
            && keys.len() * value.len() <= MAX_REPEATED_VALUES;
        let ttl = self.key_ttl(now).map_or(0, Ttl::as_millis);
        let watches = can.tracks && self.watches();
        let mut writer = Writer::new(self.request_kind(), requests);
        match self {
            Self::Acquire { any: None, wants, .. } if needs_no_script => {
                set(&mut writer, keys.first(), value, ttl);
                request_conflict_details(&mut writer, keys.first(), *wants, can.tracks);
            }
            Self::Repair { .. } if needs_no_script => set(&mut writer, keys.first(), value, ttl),
            // `MSETEX` does not subscribe to invalidations. If a key exists, the client sends the acquire again as a
            // script, and then subscribes.
            Self::Acquire { any: None, .. } if is_native && can.sets_all => {
                set_all(&mut writer, keys, value, ttl);
            }
            Self::Acquire { any, .. } => {
                if watches {
                    watch_before(&mut writer, keys, any.is_some());
                }
                acquire(&mut writer, form, (keys, value, ttl), *any, update);
            }
            Self::Repair { .. } => acquire(&mut writer, form, (keys, value, ttl), None, update),
            Self::Extend { .. } => {
                extend(&mut writer, form, (keys, value, ttl), update);
                if watches {
                    // Subscribe after the script, because the script's own change would end the subscription.
                    watch(&mut writer, keys);
                }
            }
            Self::ConfirmToken { .. } => {
                // The script never shortens a TTL, so the shortest TTL leaves the keys' TTLs unchanged.
                extend(&mut writer, form, (keys, value, Ttl::SHORTEST.as_millis()), update);
            }
            Self::Adopt { from, .. } => {
                swap(&mut writer, form, keys, (from.bytes(), value, ttl), update);
            }
            Self::Release { cooling: Some(cooling) } if now < cooling.until => {
                let ttl = remaining(cooling.until, now).as_millis();
                swap(&mut writer, form, keys, (value, cooling.value.bytes(), ttl), update);
            }
            Self::Release { .. } | Self::ForceDelete => {
                let delete = can.deletes.filter(|_| is_native);
                delete_all(&mut writer, form, (keys, value), delete, update);
            }
            Self::ReleaseAny => delete_any(&mut writer, form, keys, value),
            Self::Read => read(&mut writer, form, keys, None, false),
            Self::Observe => {
                let counters = of.fence.map(Counters::keys);
                read(&mut writer, form, keys, counters, watches);
            }
            Self::Period(update) => period(&mut writer, form, keys, update),
        }
        writer.shape()
    }
}

/// Appends a `TIME` command, whose reply is parsed by [`time_us`](super::time_us).
pub(crate) fn ask_time(requests: &mut Requests) {
    requests.command_of(TIME, 0).end();
}

/// The maximum total length of the values in one native acquire or release, in bytes. A native command repeats the
/// value for each key, whereas a script receives the value only once.
const MAX_REPEATED_VALUES: usize = 64 << 10;

const TIME: Words<'static> = Words::new(b"$4\r\nTIME\r\n", 1);
const SET: Words<'static> = Words::new(b"$3\r\nSET\r\n", 1);
const NX_PX: Words<'static> = Words::new(b"$2\r\nNX\r\n$2\r\nPX\r\n", 2);
const PTTL: Words<'static> = Words::new(b"$4\r\nPTTL\r\n", 1);
const CLIENT_CACHING_YES: Words<'static> =
    Words::new(b"$6\r\nCLIENT\r\n$7\r\nCACHING\r\n$3\r\nYES\r\n", 3);

/// Returns the time from `now` to `until` as a TTL. The result is rounded up, because the keys must not expire before
/// the lease's validity ends. It is never zero, because Redis would delete the key.
pub(super) fn remaining(until: Time, now: Time) -> Ttl {
    Ttl::covering(until.since(now))
}

/// Appends the script that locks all keys, or only the first free one.
fn acquire(
    writer: &mut Writer<'_>,
    form: Form,
    of: (&Keys, &[u8], u64),
    any: Option<AnyKey>,
    update: Option<CounterUpdate<'_>>,
) {
    let (keys, value, ttl) = of;
    let increments =
        |update: &CounterUpdate<'_>| keys.len() == 1 && update.mode == CounterMode::Increment;
    if let Some(any) = any {
        writer.record_kind(RequestKind::AcquireAny);
        ACQUIRE_ANY.call_acquire_any(form, of, any, update, writer.requests);
    } else if let Some(update) = update.filter(increments) {
        let of = (&keys.first()[..], value, ttl);
        ACQUIRE_FENCED.call_acquire_fenced(form, of, update, writer.requests);
        writer.record_kind(RequestKind::AcquireFenced);
    } else {
        ACQUIRE.call(form, keys, update, 2, writer.requests).arg(value).number(ttl).end();
    }
    writer.record_verdict();
}

/// Appends the script that compares a job's counter with a period.
fn period(writer: &mut Writer<'_>, form: Form, keys: &Keys, update: &PeriodUpdate) {
    let PeriodUpdate { number, begins_us, ttl, step, record } = update;
    let ttl = if *step == PeriodStep::Check { 0 } else { ttl.as_millis() };
    let record = record.as_ref().map(PeriodRecord::text).unwrap_or_default();
    let call = PERIOD.call(form, keys, None, 4, writer.requests).number(*number).number(ttl);
    call.number(*begins_us).arg(record).end();
    writer.record_verdict();
}

fn extend(
    writer: &mut Writer<'_>,
    form: Form,
    (keys, value, ttl): (&Keys, &[u8], u64),
    update: Option<CounterUpdate<'_>>,
) {
    EXTEND.call(form, keys, update, 2, writer.requests).arg(value).number(ttl).end();
    writer.record_verdict();
}

/// Appends a `SET` for a single key without fencing counters. This case needs no script.
fn set(writer: &mut Writer<'_>, key: &[u8], value: &[u8], ttl: u64) {
    let set = writer.requests.command_of(SET, 5).arg(key).arg(value);
    set.words(NX_PX).number(ttl).end();
    writer.record_verdict();
}

/// Appends an `MSETEX`, which sets all keys, or none if any of them exists.
fn set_all(writer: &mut Writer<'_>, keys: &Keys, value: &[u8], ttl: u64) {
    let set = writer.requests.command("MSETEX", 2 * keys.len() + 4).number(keys.len() as u64);
    let set = keys.iter().fold(set, |set, key| set.arg(key).arg(value));
    set.words(NX_PX).number(ttl).end();
    writer.record_kind(RequestKind::NativeAcquire);
    writer.record_verdict();
}

fn request_conflict_details(
    writer: &mut Writer<'_>,
    key: &[u8],
    wants: ConflictDetails,
    tracks: bool,
) {
    if wants == ConflictDetails::Nothing {
        return;
    }
    ask_ttl(writer, key, tracks);
    writer.record_ttl();
    if wants == ConflictDetails::WatchAndHolder {
        // The end index is inclusive, so the range has one byte more than the longest value. A reply of this length
        // reveals a longer value.
        writer.requests.command("GETRANGE", 3).arg(key).arg("0").number(MAX_VALUE as u64).end();
        writer.record_holder();
    }
}

fn read(writer: &mut Writer<'_>, form: Form, keys: &Keys, counters: Option<&Keys>, watches: bool) {
    if watches {
        // Before the script, whose own reads would also subscribe to the counter.
        watch(writer, keys);
    }
    READ.call_read(form, keys, counters, writer.requests);
    writer.record_verdict();
}

/// Appends the commands that subscribe to the keys of the acquire script that follows, so that the node pushes every
/// later change. `is_any` is true for the script that locks one of the keys: its own reads subscribe.
fn watch_before(writer: &mut Writer<'_>, keys: &Keys, is_any: bool) {
    if is_any { allow_caching(writer) } else { watch(writer, keys) }
}

/// Appends the commands that subscribe to the next change of each key.
pub(super) fn watch(writer: &mut Writer<'_>, keys: &Keys) {
    keys.iter().for_each(|key| ask_ttl(writer, key, true));
}

/// Makes the node subscribe the client to the keys that the next command reads.
pub(super) fn allow_caching(writer: &mut Writer<'_>) {
    writer.requests.command_of(CLIENT_CACHING_YES, 0).end();
    writer.record_watch();
}

fn ask_ttl(writer: &mut Writer<'_>, key: &[u8], is_watched: bool) {
    if is_watched {
        allow_caching(writer);
    }
    writer.requests.command_of(PTTL, 1).arg(key).end();
}

#[cfg(test)]
#[path = "native_tests.rs"]
mod native_tests;
#[cfg(test)]
#[path = "shared_command_tests.rs"]
mod shared_tests;
#[cfg(test)]
#[path = "command_tests.rs"]
mod tests;
