//! The library that is preloaded, compiled when the first server wants it.

use std::sync::LazyLock;

use crate::preload::compile;

/// Once for each test process, which takes less than 0.1 s, and kept in memory: there is nothing on
/// the disk to go stale, to be shared with other users, or to be left behind.
static LIBRARY: LazyLock<Result<Vec<u8>, String>> =
    LazyLock::new(|| compile(include_str!("shim.c")));

/// The bytes of the library.
#[track_caller]
pub(super) fn library() -> &'static [u8] {
    match &*LIBRARY {
        Ok(library) => library,
        Err(why) => panic!("ServerBuilder::clock: {why}"),
    }
}
