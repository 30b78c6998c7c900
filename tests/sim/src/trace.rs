//! The trace of a run, as text and as a hash.

use crate::clock::Instant;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The trace of a run. The hash covers all events. The text is only written on request.
pub(crate) struct Trace {
    hasher: DefaultHasher,
    lines: Option<String>,
    count: u32,
}

impl Trace {
    pub(crate) fn new(is_written: bool) -> Self {
        Self { hasher: DefaultHasher::new(), lines: is_written.then(String::new), count: 0 }
    }

    pub(crate) fn mix(&mut self, what: &impl Hash) {
        what.hash(&mut self.hasher);
    }

    pub(crate) fn is_written(&self) -> bool {
        self.lines.is_some()
    }

    pub(crate) fn write(&mut self, now: Instant, line: fmt::Arguments<'_>) {
        use fmt::Write;
        if let Some(lines) = &mut self.lines {
            self.count += 1;
            let (ms, us) = (now / 1_000_000, now / 1_000 % 1_000);
            writeln!(lines, "{:>5}. {ms:>7}.{us:03} ms  {line}", self.count)
                .expect("writing to a string succeeds");
        }
    }

    pub(crate) fn finish(&mut self) -> (u64, String) {
        (self.hasher.finish(), self.lines.take().unwrap_or_default())
    }
}

macro_rules! note {
    ($core:expr, $($line:tt)*) => {
        if $core.trace.is_written() {
            let now = $core.now;
            $core.trace.write(now, format_args!($($line)*));
        }
    };
}

pub(crate) use note;

/// A packet in readable form, with shortened scripts and random values.
pub(crate) struct Shown<'a>(pub(crate) &'a [u8]);

/// The maximum number of characters that are shown of a word.
const MOST_OF_A_WORD: usize = 40;
/// The maximum number of words that are shown of a packet.
const MOST_WORDS: usize = 48;

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = String::from_utf8_lossy(self.0);
        let words = text.split("\r\n").filter(|word| !word.is_empty());
        // Lengths of strings and arrays are omitted.
        let words = words.filter(|word| !word.starts_with(['$', '*', '%', '~']));
        for (place, word) in words.enumerate() {
            if place == MOST_WORDS {
                return f.write_str(" …");
            }
            if place > 0 {
                f.write_str(" ")?;
            }
            let word = word.lines().next().unwrap_or_default();
            if word.len() >= 32 && word.bytes().take(32).all(|byte| byte.is_ascii_hexdigit()) {
                write!(f, "<{}>{}", &word[..6], word.get(32..).unwrap_or_default())?;
            } else {
                let end = word.char_indices().nth(MOST_OF_A_WORD).map_or(word.len(), |(at, _)| at);
                f.write_str(&word[..end])?;
                if end < word.len() {
                    f.write_str("…")?;
                }
            }
        }
        Ok(())
    }
}
