//! The Lua scripts, each atomic on a node; see the heads of their files.

use super::counters::CounterUpdate;
use super::keys::Keys;
use super::requests::{Arguments, Requests, Words};
use std::sync::LazyLock;

/// Sets all keys of a set, or none.
pub(super) static ACQUIRE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("scripts/acquire.lua")).fenced("1"));

/// Sets one key, and draws from the counter beside it: what [`ACQUIRE`] does for any keys, at half its cost.
pub(super) static ACQUIRE_FENCED: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("scripts/acquire_fenced.lua")));

/// Extends locks that are still ours.
pub(super) static EXTEND: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("scripts/extend.lua")).fenced("-1"));

/// Deletes locks that are still ours, or puts another value in their place.
pub(super) static RELEASE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("scripts/release.lua")).fenced("1"));

/// Reads a lock.
pub(super) static LOOK: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("scripts/look.lua")));

/// The source of every script, to be told to a node in advance.
pub(super) fn sources() -> impl Iterator<Item = &'static str> {
    let all = [&ACQUIRE, &ACQUIRE_FENCED, &EXTEND, &RELEASE, &LOOK];
    all.into_iter().flat_map(|script| script.texts()).map(|text| &*text.source)
}

/// A script, and what it is where counters are to follow it.
pub(super) struct Script {
    plain: Text,
    fenced: Option<Fenced>,
}

/// A script's source and its hash.
struct Text {
    source: String,
    /// `EVALSHA` and its hash, as they are written.
    evalsha: Vec<u8>,
}

struct Fenced {
    text: Text,
    /// The least answer that says that the plain script did what it was asked.
    done_from: &'static str,
}

/// How a command is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// As a command of the server's own, if it has one that does all that is asked; else by its script's hash.
    Native,
    /// By its script's hash: the node was told the source when the connection was made.
    Hash,
    /// With its script's source: the node has forgotten it (`SCRIPT FLUSH`), or never took it.
    Source,
}

impl Text {
    fn new(source: String) -> Self {
        let hash = redis::Script::new(&source).get_hash().to_owned();
        let evalsha = format!("$7\r\nEVALSHA\r\n${}\r\n{hash}\r\n", hash.len()).into_bytes();
        Self { source, evalsha }
    }

    /// Begins the command that runs it, with so many `arguments` beside the script.
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

    /// Gives it a form that lets counters follow.
    fn fenced(self, done_from: &'static str) -> Self {
        let plain = &self.plain.source;
        let fenced = include_str!("scripts/fenced.lua");
        let text =
            Text::new(format!("local function unfenced(KEYS, ARGV)\n{plain}\nend\n{fenced}"));
        Self { fenced: Some(Fenced { text, done_from }), ..self }
    }

    fn texts(&self) -> impl Iterator<Item = &Text> {
        std::iter::once(&self.plain).chain(self.fenced.as_ref().map(|fenced| &fenced.text))
    }

    /// Adds a call with these keys to `requests`, and with counters that follow. So many `arguments` of the
    /// script are to be added.
    pub(super) fn call<'a>(
        &self,
        form: Form,
        keys: &Keys,
        follow: Option<CounterUpdate<'_>>,
        arguments: usize,
        requests: &'a mut Requests,
    ) -> Arguments<'a> {
        let followed = self.fenced.as_ref().zip(follow);
        let text = followed.map_or(&self.plain, |(fenced, _)| &fenced.text);
        let Some((fenced, follow)) = followed else {
            // How many keys there are, and these.
            let call = text.call(form, 1 + keys.len() + arguments, requests);
            return call.number(keys.len() as u64).args(keys.iter());
        };
        let keys_and_counters = 2 * keys.len();
        text.call(form, 1 + keys_and_counters + FOLLOWING + arguments, requests)
            .number(keys_and_counters as u64)
            .args(keys.iter())
            .args(follow.counters.iter())
            .number(follow.least)
            .arg(follow.mode.word())
            .number(follow.ttl.as_millis())
            .arg(fenced.done_from)
    }
}

impl Script {
    /// Adds a call with one key and the counter beside it to `requests`, for [`ACQUIRE_FENCED`].
    pub(super) fn draw(
        &self,
        form: Form,
        (key, value, ttl): (&[u8], &[u8], u64),
        follow: CounterUpdate<'_>,
        requests: &mut Requests,
    ) {
        let call = self.plain.call(form, 7, requests).number(2);
        let call = call.arg(key).arg(follow.counters.first());
        let call = call.number(follow.least).number(follow.ttl.as_millis());
        call.arg(value).number(ttl).end();
    }
}

/// How many arguments let counters follow.
const FOLLOWING: usize = 4;
