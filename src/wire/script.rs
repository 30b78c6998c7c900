//! The Lua scripts and their encoding. A node runs each script atomically. The Lua files document the arguments and the
//! results.

use super::counters::CounterUpdate;
use super::keys::{AnyKey, Keys};
use super::requests::{Arguments, Requests, Words};
use std::sync::LazyLock;

/// Lua script that sets all keys, or none.
pub(super) static ACQUIRE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("scripts/acquire.lua")).fenced());

/// Lua script that sets one key and increments its fencing counter. Has the same effect as the fenced variant of
/// [`ACQUIRE`] for one key, at half the cost.
pub(super) static ACQUIRE_FENCED: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("scripts/acquire_fenced.lua")));

/// Lua script that sets the first free key of several, and increments its fencing counter if there are counters.
pub(super) static ACQUIRE_ANY: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("scripts/acquire_any.lua")));

/// Lua script that adds or extends a reader of a lock.
pub(super) static ACQUIRE_SHARED: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("scripts/acquire_shared.lua")));

/// Lua scripts that set one key for a writer of a lock that also has readers: without a fencing counter, and with one.
pub(super) static ACQUIRE_WRITE: LazyLock<[Script; 2]> = LazyLock::new(|| {
    let inner = [include_str!("scripts/acquire.lua"), include_str!("scripts/acquire_fenced.lua")];
    let outer = include_str!("scripts/acquire_write.lua");
    inner.map(|inner| {
        Script::new(&format!("local function set_key(KEYS, ARGV)\n{inner}\nend\n{outer}"))
    })
});

/// Lua script that extends the TTLs of keys that hold this client's value.
pub(super) static EXTEND: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("scripts/extend.lua")).fenced());

/// Lua script that deletes keys that hold a given value, or replaces the value.
pub(super) static RELEASE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("scripts/release.lua")).fenced());

/// Lua script that deletes the one key, of several, that holds a given value.
pub(super) static RELEASE_ANY: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("scripts/release_any.lua")));

/// Lua script that removes a reader from a lock.
pub(super) static RELEASE_SHARED: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("scripts/release_shared.lua")));

/// Lua script that reads a key's value and remaining TTL, and its fencing counter on request.
pub(super) static READ: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("scripts/read.lua")));

/// Lua script that compares a job's counter with the number of a period, and can raise the counter to it.
pub(super) static PERIOD: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("scripts/period.lua")));

pub(super) fn sources() -> impl Iterator<Item = &'static str> {
    let [write, fenced_write] = &*ACQUIRE_WRITE;
    let all: [&Script; 12] = [
        &ACQUIRE,
        &ACQUIRE_FENCED,
        &ACQUIRE_ANY,
        &EXTEND,
        &RELEASE,
        &RELEASE_ANY,
        &READ,
        &ACQUIRE_SHARED,
        write,
        fenced_write,
        &RELEASE_SHARED,
        &PERIOD,
    ];
    all.into_iter().flat_map(Script::texts).map(|text| &*text.source)
}

/// A Lua script, and its variant that also updates the fencing counters.
pub(super) struct Script {
    plain: Text,
    fenced: Option<Text>,
}

struct Text {
    source: String,
    /// The encoded words `EVALSHA` and the script's hash.
    evalsha: Vec<u8>,
}

/// How a command is sent: as a native command, or as a script by its hash or with its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// As a native command, if the server has one with the same effect. Otherwise as `EVALSHA` with the script's hash.
    Native,
    /// As `EVALSHA` with the script's hash. The client loads the scripts when it establishes a connection.
    Hash,
    /// As `EVAL` with the script's source, for a server that has not loaded the script or has dropped it (`SCRIPT
    /// FLUSH`).
    Source,
}

impl Text {
    fn new(source: String) -> Self {
        let hash = redis::Script::new(&source).get_hash().to_owned();
        let evalsha = format!("$7\r\nEVALSHA\r\n${}\r\n{hash}\r\n", hash.len()).into_bytes();
        Self { source, evalsha }
    }

    /// Starts a call of the script. The caller must append exactly `arguments` arguments.
    fn call<'a>(&self, form: Form, arguments: usize, requests: &'a mut Requests) -> Arguments<'a> {
        match form {
            Form::Native | Form::Hash => {
                requests.command_of(Words::new(&self.evalsha, 2), arguments)
            }
            Form::Source => requests.command("EVAL", 1 + arguments).arg(&self.source),
        }
    }
}

impl Script {
    fn new(source: &str) -> Self {
        Self { plain: Text::new(source.to_owned()), fenced: None }
    }

    fn fenced(self) -> Self {
        let plain = &self.plain.source;
        let fenced = include_str!("scripts/fenced.lua");
        let text =
            Text::new(format!("local function unfenced(KEYS, ARGV)\n{plain}\nend\n{fenced}"));
        Self { fenced: Some(text), ..self }
    }

    fn texts(&self) -> impl Iterator<Item = &Text> {
        std::iter::once(&self.plain).chain(&self.fenced)
    }

    /// Starts a call of the script with `keys`. If `update` is given, calls the variant that also updates the fencing
    /// counters, provided that the script has one. The caller must append exactly `arguments` arguments for the script.
    pub(super) fn call<'a>(
        &self,
        form: Form,
        keys: &Keys,
        update: Option<CounterUpdate<'_>>,
        arguments: usize,
        requests: &'a mut Requests,
    ) -> Arguments<'a> {
        let Some((text, update)) = self.fenced.as_ref().zip(update) else {
            // The first argument is the number of keys.
            let call = self.plain.call(form, 1 + keys.len() + arguments, requests);
            return call.number(keys.len() as u64).args(keys.iter());
        };
        let keys_and_counters = 2 * keys.len();
        text.call(form, 1 + keys_and_counters + COUNTER_ARGUMENTS + arguments, requests)
            .number(keys_and_counters as u64)
            .args(keys.iter())
            .args(update.counters.iter())
            .number(update.minimum)
            .arg(update.mode.word())
            .number(update.ttl.as_millis())
    }
}

impl Script {
    /// Starts a call of the script. The caller must append exactly `keys` keys and `arguments` arguments.
    pub(super) fn call_with<'a>(
        &self,
        form: Form,
        keys: usize,
        arguments: usize,
        requests: &'a mut Requests,
    ) -> Arguments<'a> {
        self.plain.call(form, 1 + keys + arguments, requests).number(keys as u64)
    }

    /// Appends a complete call of [`ACQUIRE_FENCED`].
    pub(super) fn call_acquire_fenced(
        &self,
        form: Form,
        (key, value, ttl): (&[u8], &[u8], u64),
        update: CounterUpdate<'_>,
        requests: &mut Requests,
    ) {
        let call = self.plain.call(form, 7, requests).number(2);
        let call = call.arg(key).arg(update.counters.first());
        let call = call.number(update.minimum).number(update.ttl.as_millis());
        call.arg(value).number(ttl).end();
    }

    /// Appends a complete call of [`READ`].
    pub(super) fn call_read(
        &self,
        form: Form,
        keys: &Keys,
        counters: Option<&Keys>,
        requests: &mut Requests,
    ) {
        let count = keys.len() + counters.map_or(0, Keys::len);
        let call = self.plain.call(form, 1 + count, requests).number(count as u64);
        call.args(keys.iter()).args(counters.into_iter().flat_map(Keys::iter)).end();
    }

    /// Appends a complete call of [`ACQUIRE_ANY`].
    pub(super) fn call_acquire_any(
        &self,
        form: Form,
        (keys, value, ttl): (&Keys, &[u8], u64),
        any: AnyKey,
        update: Option<CounterUpdate<'_>>,
        requests: &mut Requests,
    ) {
        let (key_count, counter_arguments) = match update {
            Some(_) => (2 * keys.len(), 2),
            None => (keys.len(), 0),
        };
        let call = self.plain.call(form, 1 + key_count + 4 + counter_arguments, requests);
        let mut call = call.number(key_count as u64).args(keys.iter());
        if let Some(update) = update {
            call = call.args(update.counters.iter());
        }
        call = call.arg(value).number(ttl).number(any.first as u64 + 1).number(any.watches.into());
        if let Some(update) = update {
            call = call.number(update.minimum).number(update.ttl.as_millis());
        }
        call.end();
    }
}

/// The number of arguments of `fenced.lua` that precede the arguments of the wrapped script.
const COUNTER_ARGUMENTS: usize = 3;
