//! quorlock's scripts, as src/wire/script.rs puts them together and calls them.

use crate::author::Words;
use sha1_smol::Sha1;

const FENCED: &str = include_str!("../../../../src/wire/scripts/fenced.lua");

/// A script, plain and with counters that follow.
pub struct Script {
    pub plain: String,
    pub fenced: Option<String>,
}

/// How counters follow.
pub struct Follow {
    pub least: String,
    pub mode: &'static str,
    pub ttl: String,
}

pub struct Scripts {
    pub acquire: Script,
    acquire_fenced: Script,
    pub extend: Script,
    pub release: Script,
    pub look: Script,
}

impl Script {
    fn new(source: &str) -> Self {
        let fenced = format!("local function unfenced(KEYS, ARGV)\n{source}\nend\n{FENCED}");
        Self { plain: source.to_owned(), fenced: Some(fenced) }
    }

    /// A call with these keys; its arguments are to be added.
    pub fn call(&self, by_source: bool, keys: &[String], follow: Option<&Follow>) -> Words {
        let followed = self.fenced.as_ref().zip(follow);
        let source = followed.map_or(&self.plain, |(fenced, _)| fenced);
        let mut words = if by_source {
            vec!["EVAL".to_owned(), source.clone()]
        } else {
            vec!["EVALSHA".to_owned(), Sha1::from(source).digest().to_string()]
        };
        let Some((_, follow)) = followed else {
            words.push(keys.len().to_string());
            words.extend_from_slice(keys);
            return words;
        };
        words.push((2 * keys.len()).to_string());
        words.extend_from_slice(keys);
        words.extend(keys.iter().map(|key| companion(key)));
        words.extend([follow.least.clone(), follow.mode.to_owned(), follow.ttl.clone()]);
        words
    }
}

impl Scripts {
    pub fn new() -> Self {
        let look = include_str!("../../../../src/wire/scripts/read.lua");
        let acquire_fenced = include_str!("../../../../src/wire/scripts/acquire_fenced.lua");
        let alone = |source: &str| Script { plain: source.to_owned(), fenced: None };
        Self {
            acquire: Script::new(include_str!("../../../../src/wire/scripts/acquire.lua")),
            extend: Script::new(include_str!("../../../../src/wire/scripts/extend.lua")),
            release: Script::new(include_str!("../../../../src/wire/scripts/release.lua")),
            acquire_fenced: alone(acquire_fenced),
            look: alone(look),
        }
    }

    /// A call that sets one key and draws from the counter beside it; value and ttl are to be added.
    pub fn draw(&self, by_source: bool, key: &str, follow: &Follow) -> Words {
        let keys = [key.to_owned(), companion(key)];
        let mut words = self.acquire_fenced.call(by_source, &keys, None);
        words.extend([follow.least.clone(), follow.ttl.clone()]);
        words
    }

    /// The sources, in the order in which nodes are told them.
    pub fn sources(&self) -> impl Iterator<Item = &String> {
        let all = [&self.acquire, &self.acquire_fenced, &self.extend, &self.release, &self.look];
        all.into_iter().flat_map(|script| [Some(&script.plain), script.fenced.as_ref()]).flatten()
    }
}

/// The key of the counter beside a lock.
pub fn companion(key: &str) -> String {
    format!("{key}#quorlock:token:{{{key}}}")
}
