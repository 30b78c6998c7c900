//! Recognizes quorlock's own scripts by their source.

use super::run::{Answer, Body, Run};
use super::{acquire, acquire_any, acquire_fenced, extend, fenced, read, release};
use quorlock::test_util::scripts::{
    ACQUIRE, ACQUIRE_ANY, ACQUIRE_FENCED, EXTEND, FENCED, READ, RELEASE, RELEASE_ANY,
};

pub(super) struct NativeScript {
    body: Body,
    is_fenced: bool,
}

impl NativeScript {
    /// Returns the script with the given source, or `None` if the source is not one of quorlock's.
    /// The source of a fenced script must be composed as in quorlock's `src/wire/script.rs`.
    pub(super) fn of(source: &str) -> Option<Self> {
        let inside = source.strip_prefix("local function unfenced(KEYS, ARGV)\n");
        let inside = inside.and_then(|rest| rest.strip_suffix(FENCED)?.strip_suffix("\nend\n"));
        let body: Body = match inside.unwrap_or(source) {
            ACQUIRE => acquire::run,
            ACQUIRE_ANY => acquire_any::run,
            ACQUIRE_FENCED => acquire_fenced::run,
            EXTEND => extend::run,
            RELEASE => release::run,
            RELEASE_ANY => release::run_any,
            READ => read::run,
            _ => return None,
        };
        Some(Self { body, is_fenced: inside.is_some() })
    }

    pub(super) fn run(&self, run: &mut Run<'_, '_>, keys: &[Vec<u8>], args: &[Vec<u8>]) -> Answer {
        if self.is_fenced {
            fenced::run(run, self.body, keys, args)
        } else {
            (self.body)(run, keys, args)
        }
    }
}
