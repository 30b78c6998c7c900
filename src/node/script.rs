//! The Lua scripts, each atomic on a node.

use std::sync::LazyLock;

/// Extends a lock that is still ours; see the head of its file.
pub(super) static EXTEND: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("scripts/extend.lua")));

/// Deletes a lock that is still ours; see the head of its file.
pub(super) static RELEASE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("scripts/release.lua")));

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

    /// Adds a call with one key to `pipeline`; the script's arguments follow.
    pub(super) fn call<'a>(
        &self,
        form: Form,
        key: &[u8],
        pipeline: &'a mut redis::Pipeline,
    ) -> &'a mut redis::Pipeline {
        match form {
            Form::Hash => pipeline.cmd("EVALSHA").arg(&self.hash),
            Form::Source => pipeline.cmd("EVAL").arg(self.source),
        };
        pipeline.arg(1).arg(key)
    }
}
