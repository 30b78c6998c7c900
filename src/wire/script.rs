//! The Lua scripts. Each runs atomically on a node; arguments and results are documented in the files.

use super::counters::CounterUpdate;
use super::keys::Keys;
use super::requests::{Arguments, Requests, Words};
use std::sync::LazyLock;

/// Lua script that sets all keys, or none.
pub(super) static ACQUIRE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("scripts/acquire.lua")).fenced());

/// Lua script that sets one key and increments its fencing counter. Same effect as the fenced [`ACQUIRE`] for one key,
/// at half the cost.
pub(super) static ACQUIRE_FENCED: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("scripts/acquire_fenced.lua")));

/// Lua script that extends keys with this client's value.
pub(super) static EXTEND: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("scripts/extend.lua")).fenced());

/// Lua script that deletes keys with a given value, or replaces the value.
pub(super) static RELEASE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("scripts/release.lua")).fenced());

/// Lua script that reads a key's value and remaining TTL.
pub(super) static READ: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("scripts/read.lua")));

/// Sources of all scripts, for `SCRIPT LOAD`.
pub(super) fn sources() -> impl Iterator<Item = &'static str> {
    let all = [&ACQUIRE, &ACQUIRE_FENCED, &EXTEND, &RELEASE, &READ];
    all.into_iter().flat_map(|script| script.texts()).map(|text| &*text.source)
}

/// A script, and its variant that also updates the fencing counters.
pub(super) struct Script {
    plain: Text,
    fenced: Option<Text>,
}

struct Text {
    source: String,
    /// Encoded `EVALSHA` and hash.
    evalsha: Vec<u8>,
}

/// Encoding of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// As a native command if the server has one with the same effect, otherwise by the script's hash.
    Native,
    /// `EVALSHA`: the script was loaded when the connection was established.
    Hash,
    /// `EVAL`: the server has not loaded the script, or dropped it (`SCRIPT FLUSH`).
    Source,
}

impl Text {
    fn new(source: String) -> Self {
        let hash = redis::Script::new(&source).get_hash().to_owned();
        let evalsha = format!("$7\r\nEVALSHA\r\n${}\r\n{hash}\r\n", hash.len()).into_bytes();
        Self { source, evalsha }
    }

    /// Starts a call with this number of `arguments` after the script.
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

    /// Adds the variant that updates counters.
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

    /// Starts a call with the keys, and with the counters if they are to be updated. The caller appends the script's
    /// own `arguments`.
    pub(super) fn call<'a>(
        &self,
        form: Form,
        keys: &Keys,
        update: Option<CounterUpdate<'_>>,
        arguments: usize,
        requests: &'a mut Requests,
    ) -> Arguments<'a> {
        let Some((text, update)) = self.fenced.as_ref().zip(update) else {
            // The number of keys, then the keys.
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
    /// Calls [`ACQUIRE_FENCED`].
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
}

/// Number of arguments of `fenced.lua`, before those of the wrapped script.
const COUNTER_ARGUMENTS: usize = 3;
