//! The Lua scripts, each atomic on a node; see the heads of their files.

use super::counters::CounterUpdate;
use super::keys::Keys;
use std::sync::LazyLock;

/// Sets all keys of a set, or none.
pub(super) static ACQUIRE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("scripts/acquire.lua")).fenced(1));

/// Extends locks that are still ours.
pub(super) static EXTEND: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("scripts/extend.lua")).fenced(-1));

/// Deletes locks that are still ours, or puts another value in their place.
pub(super) static RELEASE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("scripts/release.lua")).fenced(1));

/// Reads a lock.
pub(super) static LOOK: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("scripts/look.lua")));

/// The source of every script, to be told to a node in advance.
pub(super) fn sources() -> impl Iterator<Item = &'static str> {
    let all = [&ACQUIRE, &EXTEND, &RELEASE, &LOOK];
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
    hash: String,
}

struct Fenced {
    text: Text,
    /// The least answer that says that the plain script did what it was asked.
    done_from: i64,
}

/// Room for what a script is given besides keys: two values, a ttl, and what lets counters follow.
const ARGUMENTS: usize = 128;

/// How a script is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// By its hash: the node was told the source when the connection was made.
    Hash,
    /// With its source: the node has forgotten it (`SCRIPT FLUSH`), or never took it.
    Source,
}

impl Text {
    fn new(source: String) -> Self {
        let hash = redis::Script::new(&source).get_hash().to_owned();
        Self { source, hash }
    }
}

impl Script {
    fn new(source: &str) -> Self {
        Self { plain: Text::new(source.to_owned()), fenced: None }
    }

    /// Gives it a form that lets counters follow.
    fn fenced(self, done_from: i64) -> Self {
        let plain = &self.plain.source;
        let fenced = include_str!("scripts/fenced.lua");
        let text =
            Text::new(format!("local function unfenced(KEYS, ARGV)\n{plain}\nend\n{fenced}"));
        Self { fenced: Some(Fenced { text, done_from }), ..self }
    }

    fn texts(&self) -> impl Iterator<Item = &Text> {
        std::iter::once(&self.plain).chain(self.fenced.as_ref().map(|fenced| &fenced.text))
    }

    /// Adds a call with these keys to `pipeline`, and with counters that follow; the script's
    /// arguments are to be added.
    pub(super) fn call<'a>(
        &self,
        form: Form,
        keys: &Keys,
        follow: Option<CounterUpdate<'_>>,
        pipeline: &'a mut redis::Pipeline,
    ) -> &'a mut redis::Pipeline {
        let followed = self.fenced.as_ref().zip(follow);
        let text = followed.map_or(&self.plain, |(fenced, _)| &fenced.text);
        let (name, text) = match form {
            Form::Hash => ("EVALSHA", &text.hash),
            Form::Source => ("EVAL", &text.source),
        };
        // Twice the keys, their number, and what may come after them.
        let bytes = text.len() + 2 * keys.iter().map(<[u8]>::len).sum::<usize>() + ARGUMENTS;
        begin(pipeline, name, 2 * keys.len() + 8, bytes).arg(text);
        let Some((fenced, follow)) = followed else {
            return with_keys(pipeline.arg(keys.len()), keys);
        };
        with_keys(with_keys(pipeline.arg(2 * keys.len()), keys), follow.counters)
            .arg(follow.least)
            .arg(follow.mode.word())
            .arg(follow.ttl.as_millis())
            .arg(fenced.done_from)
    }
}

/// Begins a command with room for so many arguments, which have so many bytes together: most of what it
/// takes to make one is to let it grow.
pub(super) fn begin<'a>(
    pipeline: &'a mut redis::Pipeline,
    name: &str,
    arguments: usize,
    bytes: usize,
) -> &'a mut redis::Pipeline {
    let mut command = redis::Cmd::with_capacity(arguments + 1, bytes + name.len());
    command.arg(name);
    pipeline.add_command(command)
}

fn with_keys<'a>(pipeline: &'a mut redis::Pipeline, keys: &Keys) -> &'a mut redis::Pipeline {
    for key in keys.iter() {
        pipeline.arg(key);
    }
    pipeline
}
