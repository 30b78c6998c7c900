//! quorlock's Lua scripts, built and called as in src/wire/script.rs.

use crate::generator::Words;
use sha1_smol::Sha1;

const FENCED: &str = include_str!("../../../../src/wire/scripts/fenced.lua");

const ACQUIRE_WRITE: &str = include_str!("../../../../src/wire/scripts/acquire_write.lua");

pub struct Script {
    pub plain: String,
    pub fenced: Option<String>,
}

pub struct CounterArgs {
    pub least: String,
    pub mode: &'static str,
    pub ttl: String,
}

pub struct Scripts {
    pub acquire: Script,
    acquire_any: Script,
    acquire_fenced: Script,
    pub extend: Script,
    pub release: Script,
    pub release_any: Script,
    pub read_script: Script,
    period: Script,
    pub acquire_shared: Script,
    pub release_shared: Script,
    acquire_write: Script,
    acquire_write_fenced: Script,
}

impl Script {
    fn new(source: &str) -> Self {
        let fenced = format!("local function unfenced(KEYS, ARGV)\n{source}\nend\n{FENCED}");
        Self { plain: source.to_owned(), fenced: Some(fenced) }
    }

    /// Returns the `EVAL` or `EVALSHA` command that calls the script with `keys`. The caller appends the script's own
    /// arguments.
    pub fn call(&self, by_source: bool, keys: &[String], counter: Option<&CounterArgs>) -> Words {
        let fenced_call = self.fenced.as_ref().zip(counter);
        let source = fenced_call.map_or(&self.plain, |(fenced, _)| fenced);
        let mut words = if by_source {
            vec!["EVAL".to_owned(), source.clone()]
        } else {
            vec!["EVALSHA".to_owned(), Sha1::from(source).digest().to_string()]
        };
        let Some((_, counter)) = fenced_call else {
            words.push(keys.len().to_string());
            words.extend_from_slice(keys);
            return words;
        };
        words.push((2 * keys.len()).to_string());
        words.extend_from_slice(keys);
        words.extend(keys.iter().map(|key| counter_key(key)));
        words.extend([counter.least.clone(), counter.mode.to_owned(), counter.ttl.clone()]);
        words
    }
}

impl Scripts {
    pub fn new() -> Self {
        let read_script = include_str!("../../../../src/wire/scripts/read.lua");
        let period = include_str!("../../../../src/wire/scripts/period.lua");
        let acquire_any = include_str!("../../../../src/wire/scripts/acquire_any.lua");
        let release_any = include_str!("../../../../src/wire/scripts/release_any.lua");
        let acquire_fenced = include_str!("../../../../src/wire/scripts/acquire_fenced.lua");
        let acquire_shared = include_str!("../../../../src/wire/scripts/acquire_shared.lua");
        let release_shared = include_str!("../../../../src/wire/scripts/release_shared.lua");
        let alone = |source: &str| Script { plain: source.to_owned(), fenced: None };
        Self {
            acquire: Script::new(include_str!("../../../../src/wire/scripts/acquire.lua")),
            extend: Script::new(include_str!("../../../../src/wire/scripts/extend.lua")),
            release: Script::new(include_str!("../../../../src/wire/scripts/release.lua")),
            acquire_any: alone(acquire_any),
            release_any: alone(release_any),
            acquire_fenced: alone(acquire_fenced),
            read_script: alone(read_script),
            period: alone(period),
            acquire_shared: alone(acquire_shared),
            release_shared: alone(release_shared),
            acquire_write: alone(&write(include_str!("../../../../src/wire/scripts/acquire.lua"))),
            acquire_write_fenced: alone(&write(acquire_fenced)),
        }
    }

    pub fn acquire_with_token(&self, by_source: bool, key: &str, counter: &CounterArgs) -> Words {
        let keys = [key.to_owned(), counter_key(key)];
        let mut words = self.acquire_fenced.call(by_source, &keys, None);
        words.extend([counter.least.clone(), counter.ttl.clone()]);
        words
    }

    /// Returns the command that acquires the first free key of `keys`, beginning with the key at index `first` (from 1).
    pub fn acquire_any(
        &self,
        by_source: bool,
        keys: &[String],
        (value, ttl, first, watches): (String, String, usize, bool),
        counter: Option<&CounterArgs>,
    ) -> Words {
        let mut keys = keys.to_vec();
        if counter.is_some() {
            keys.extend(keys.clone().iter().map(|key| counter_key(key)));
        }
        let mut words = self.acquire_any.call(by_source, &keys, None);
        words.extend([value, ttl, first.to_string(), u8::from(watches).to_string()]);
        words.extend(counter.into_iter().flat_map(|it| [it.least.clone(), it.ttl.clone()]));
        words
    }

    /// Returns the command that compares the counter of a job with a period. The arguments are the number of the period,
    /// the TTL (0 if the command only compares), the beginning of the period, and the record to store.
    pub fn period(&self, by_source: bool, key: &str, arguments: [String; 4]) -> Words {
        let keys = [counter_key(key), record_key(key)];
        let mut words = self.period.call(by_source, &keys, None);
        words.extend(arguments);
        words
    }

    /// Returns the command with which a writer acquires a lock that also has readers.
    pub fn acquire_write(&self, by_source: bool, is_fenced: bool, keys: &[String]) -> Words {
        let script = if is_fenced { &self.acquire_write_fenced } else { &self.acquire_write };
        script.call(by_source, keys, None)
    }

    pub fn sources(&self) -> impl Iterator<Item = &String> {
        let acquires = [&self.acquire, &self.acquire_any, &self.acquire_fenced];
        let all = acquires.into_iter().chain([
            &self.extend,
            &self.release,
            &self.release_any,
            &self.read_script,
            &self.period,
            &self.acquire_shared,
            &self.release_shared,
            &self.acquire_write,
            &self.acquire_write_fenced,
        ]);
        all.flat_map(|script| [Some(&script.plain), script.fenced.as_ref()]).flatten()
    }
}

fn write(source: &str) -> String {
    format!("local function set_key(KEYS, ARGV)\n{source}\nend\n{ACQUIRE_WRITE}")
}

/// The keys of a reader-writer lock, in addition to the lock key: the readers, the writer's intent, and whether readers
/// wait.
pub fn reader_keys(key: &str) -> [String; 3] {
    ["readers", "intent", "waiting"].map(|kind| format!("{key}#quorlock:{kind}:{{{key}}}"))
}

pub fn record_key(key: &str) -> String {
    format!("{key}#quorlock:run:{{{key}}}")
}

pub fn counter_key(key: &str) -> String {
    format!("{key}#quorlock:token:{{{key}}}")
}
