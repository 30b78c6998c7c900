//! The preloaded library, which is compiled when the first server needs it.

use std::sync::LazyLock;

use crate::preload::compile;

/// The compiled library. It is compiled once per test process, in less than 0.1 s, and kept in
/// memory. No file on disk can be outdated, shared with other users, or left behind.
static LIBRARY: LazyLock<Result<Vec<u8>, String>> =
    LazyLock::new(|| compile(include_str!("shim.c")));

#[track_caller]
pub(super) fn library() -> &'static [u8] {
    match &*LIBRARY {
        Ok(library) => library,
        Err(error) => panic!("ServerBuilder::clock: {error}"),
    }
}
