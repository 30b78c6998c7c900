//! Recognizes quorlock's own scripts by their source.

use super::run::{Answer, Body, Run};
use super::{
    acquire, acquire_any, acquire_fenced, acquire_write, extend, fenced, period, read, release,
    shared,
};
use quorlock::test_util::scripts::{
    ACQUIRE, ACQUIRE_ANY, ACQUIRE_FENCED, ACQUIRE_SHARED, ACQUIRE_WRITE, EXTEND, FENCED, PERIOD,
    READ, RELEASE, RELEASE_ANY, RELEASE_SHARED,
};

/// A script that runs another one.
type Wrapper = fn(&mut Run<'_, '_>, Body, &[Vec<u8>], &[Vec<u8>]) -> Answer;

pub(super) struct NativeScript {
    body: Body,
    wrapper: Option<Wrapper>,
}

impl NativeScript {
    /// Returns the script with the given source, or `None` if the source is not one of quorlock's.
    /// The source of a script that runs another one must be composed as in quorlock's
    /// `src/wire/script.rs`.
    pub(super) fn of(source: &str) -> Option<Self> {
        let wrappers: [(&str, &str, Wrapper); 2] =
            [("unfenced", FENCED, fenced::run), ("set_key", ACQUIRE_WRITE, acquire_write::run)];
        let wrapped = wrappers.into_iter().find_map(|(name, outer, wrapper)| {
            let rest = source.strip_prefix(&format!("local function {name}(KEYS, ARGV)\n"))?;
            Some((rest.strip_suffix(outer)?.strip_suffix("\nend\n")?, wrapper))
        });
        let body: Body = match wrapped.map_or(source, |(inside, _)| inside) {
            ACQUIRE => acquire::run,
            ACQUIRE_ANY => acquire_any::run,
            ACQUIRE_FENCED => acquire_fenced::run,
            ACQUIRE_SHARED => shared::acquire,
            EXTEND => extend::run,
            RELEASE => release::run,
            RELEASE_ANY => release::run_any,
            RELEASE_SHARED => shared::release,
            READ => read::run,
            PERIOD => period::run,
            _ => return None,
        };
        Some(Self { body, wrapper: wrapped.map(|(_, wrapper)| wrapper) })
    }

    pub(super) fn run(&self, run: &mut Run<'_, '_>, keys: &[Vec<u8>], args: &[Vec<u8>]) -> Answer {
        match self.wrapper {
            Some(wrapper) => wrapper(run, self.body, keys, args),
            None => (self.body)(run, keys, args),
        }
    }
}
