//! The Lua scripts, each atomic on a node; see the heads of their files.

use super::keys::Keys;
use std::sync::LazyLock;

/// Sets all keys of a set, or none.
pub(super) static ACQUIRE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("scripts/acquire.lua")));

/// Extends locks that are still ours.
pub(super) static EXTEND: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("scripts/extend.lua")));

/// Deletes locks that are still ours.
pub(super) static RELEASE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("scripts/release.lua")));

/// Puts another value in the place of ours.
pub(super) static SWAP: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("scripts/swap.lua")));

/// Reads a lock.
pub(super) static LOOK: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("scripts/look.lua")));

/// Every script, to be told to a node in advance.
pub(super) fn all() -> [&'static Script; 5] {
    [&ACQUIRE, &EXTEND, &RELEASE, &SWAP, &LOOK]
}

/// A script and its hash.
pub(super) struct Script {
    source: &'static str,
    hash: String,
}

/// How a script is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// By its hash: the node was told the source when the connection was made.
    Hash,
    /// With its source: the node has forgotten it (`SCRIPT FLUSH`), or never took it.
    Source,
}

impl Script {
    fn new(source: &'static str) -> Self {
        Self { source, hash: redis::Script::new(source).get_hash().to_owned() }
    }

    pub(super) fn source(&self) -> &'static str {
        self.source
    }

    /// Adds a call with these keys to `pipeline`; the script's arguments follow.
    pub(super) fn call<'a>(
        &self,
        form: Form,
        keys: &Keys,
        pipeline: &'a mut redis::Pipeline,
    ) -> &'a mut redis::Pipeline {
        match form {
            Form::Hash => pipeline.cmd("EVALSHA").arg(&self.hash),
            Form::Source => pipeline.cmd("EVAL").arg(self.source),
        };
        pipeline.arg(keys.len());
        for key in keys.iter() {
            pipeline.arg(key);
        }
        pipeline
    }
}
