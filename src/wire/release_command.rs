//! Encoding of releases.

use super::capabilities::NativeDelete;
use super::counters::CounterUpdate;
use super::keys::Keys;
use super::reply::RequestKind;
use super::reply_shape::Writer;
use super::script::{Form, RELEASE, RELEASE_ANY};

/// Appends the script that replaces the value `from` of all keys with `to`.
pub(super) fn swap(
    writer: &mut Writer<'_>,
    form: Form,
    keys: &Keys,
    (from, to, ttl): (&[u8], &[u8], u64),
    update: Option<CounterUpdate<'_>>,
) {
    let call = RELEASE.call(form, keys, update, 3, writer.requests);
    call.arg(from).arg(to).number(ttl).end();
    writer.record_verdict();
}

/// Appends the deletion of all keys, with the native command `delete` or as a script.
pub(super) fn delete_all(
    writer: &mut Writer<'_>,
    form: Form,
    (keys, value): (&Keys, &[u8]),
    delete: Option<NativeDelete>,
    update: Option<CounterUpdate<'_>>,
) {
    if let Some(delete) = delete {
        keys.iter().for_each(|key| delete.write(key, value, writer.requests));
        return writer.record_kind(RequestKind::NativeDelete);
    }
    RELEASE.call(form, keys, update, 1, writer.requests).arg(value).end();
    writer.record_verdict();
}

/// Appends the script that deletes the one key, of several, that holds the value.
pub(super) fn delete_any(writer: &mut Writer<'_>, form: Form, keys: &Keys, value: &[u8]) {
    RELEASE_ANY.call(form, keys, None, 1, writer.requests).arg(value).end();
    writer.record_verdict();
}
