//! Commands of readers and writers of a lock that readers share.

use super::command::{Command, CommandTarget, CoolDown, allow_caching, remaining, watch};
use super::counters::{CounterUpdate, Counters};
use super::reply::RequestKind;
use super::reply_shape::{ReplyShape, Writer};
use super::requests::{Arguments, Requests};
use super::script::{ACQUIRE_SHARED, ACQUIRE_WRITE, Form, RELEASE, RELEASE_SHARED};
use super::shared_lock::Sharing;
use super::value::Value;
use crate::protocol::{Time, Ttl};

impl Command {
    /// Appends the command of a reader or a writer to `requests`. Returns `None` for a command that does not differ
    /// from the command of any other holder.
    pub(super) fn write_shared(
        &self,
        sharing: Sharing<'_>,
        of: CommandTarget<'_>,
        form: Form,
        (now, tracks, update): (Time, bool, Option<CounterUpdate<'_>>),
        requests: &mut Requests,
    ) -> Option<ReplyShape> {
        let mut writer = Writer::new(self.request_kind(), requests);
        let watches = tracks && self.watches();
        match (sharing.is_reader, self) {
            (true, Self::Release { .. }) => {
                release_reader(sharing, of, form, (self.cooling(now), now), &mut writer);
            }
            (true, _) => self.write_reader(sharing, of, form, (now, watches), &mut writer),
            (false, Self::Acquire { ttl, .. }) => {
                if watches {
                    watch(&mut writer, of.keys);
                }
                acquire_write(sharing, of, form, (*ttl, update), &mut writer);
            }
            (false, Self::Release { .. }) => {
                // A refused attempt leaves the intent to the next one.
                if !sharing.is_refused {
                    writer.requests.command("DEL", 1).arg(&sharing.keys.intent).end();
                }
                let cooling = self.cooling(now);
                let arguments = if cooling.is_some() { 3 } else { 1 };
                let call = RELEASE.call(form, of.keys, update, arguments, writer.requests);
                end_release(call.arg(of.value.bytes()), cooling, now);
            }
            (false, _) => return None,
        }
        Some(writer.shape_of_script())
    }

    /// Appends the acquire, the repair or the extension of a reader, or of a writer that has become a reader.
    fn write_reader(
        &self,
        sharing: Sharing<'_>,
        of: CommandTarget<'_>,
        form: Form,
        (now, watches): (Time, bool),
        writer: &mut Writer<'_>,
    ) {
        let ttl = self.key_ttl(now).map_or(0, Ttl::as_millis);
        let (mode, counter, request) = match self {
            Self::Extend { .. } => ("extend", None, None),
            Self::Acquire { .. } => ("try", of.fence, sharing.reservation),
            _ => ("try", None, None),
        };
        // Each reader changes the key, so pushes would not reveal the loss of a reader's lease.
        if watches && mode != "extend" {
            allow_caching(writer);
        }
        let counter = counter.map(Counters::first_key);
        let keys = 4 + usize::from(counter.is_some());
        let arguments = 3 + usize::from(request.is_some());
        let call = ACQUIRE_SHARED.call_with(form, keys, arguments, writer.requests);
        let call = call.arg(of.keys.first()).args(sharing.keys.all()).args(counter);
        let call = call.arg(of.value.bytes()).number(ttl).arg(mode);
        call.args(request.map(Value::bytes)).end();
    }
}

fn release_reader(
    sharing: Sharing<'_>,
    of: CommandTarget<'_>,
    form: Form,
    (cooling, now): (Option<&CoolDown>, Time),
    writer: &mut Writer<'_>,
) {
    writer.record_kind(RequestKind::ReleaseShared);
    let arguments = if cooling.is_some() { 3 } else { 1 };
    let call = RELEASE_SHARED.call_with(form, 2, arguments, writer.requests);
    let call = call.arg(of.keys.first()).arg(&sharing.keys.readers).arg(of.value.bytes());
    end_release(call, cooling, now);
}

fn acquire_write(
    sharing: Sharing<'_>,
    of: CommandTarget<'_>,
    form: Form,
    (ttl, update): (Ttl, Option<CounterUpdate<'_>>),
    writer: &mut Writer<'_>,
) {
    let (count, arguments) = if update.is_some() { (5, 6) } else { (4, 4) };
    let script = &ACQUIRE_WRITE[usize::from(update.is_some())];
    let call = script.call_with(form, count, arguments, writer.requests).arg(of.keys.first());
    let call = call.args(update.map(|update| update.counters.first())).args(sharing.keys.all());
    let (ttl, intent) = (ttl.as_millis(), sharing.reservation.map_or(&b""[..], Value::bytes));
    let mut call = call.number(ttl).arg(intent);
    if let Some(update) = update {
        call = call.number(update.minimum).number(update.ttl.as_millis());
    }
    call.arg(of.value.bytes()).number(ttl).end();
    if update.is_some() {
        writer.record_kind(RequestKind::AcquireFenced);
    }
}

/// Appends the last arguments of a release script: the value and the TTL of the cool-down, if there is one.
fn end_release(call: Arguments<'_>, cooling: Option<&CoolDown>, now: Time) {
    match cooling {
        Some(cooling) => {
            let ttl = remaining(cooling.until, now).as_millis();
            call.arg(cooling.value.bytes()).number(ttl).end();
        }
        None => call.end(),
    }
}
