//! What happened in a run, as text and as a number.

use crate::clock::Instant;
use std::fmt;
use std::hash::{Hash, Hasher};

/// Every event goes into the hash; the text is only written where it is asked for.
#[derive(Default)]
pub(crate) struct Trace {
    mixer: Mixer,
    lines: Option<String>,
}

#[derive(Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u8(*byte);
        }
    }

    fn write_u8(&mut self, word: u8) {
        self.write_u64(u64::from(word));
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_isize(&mut self, word: isize) {
        self.write_u64(u64::from_ne_bytes((word as i64).to_ne_bytes()));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

impl Trace {
    pub(crate) fn new(is_written: bool) -> Self {
        Self { mixer: Mixer::default(), lines: is_written.then(String::new) }
    }

    /// Takes something into the hash.
    pub(crate) fn mix(&mut self, what: &impl Hash) {
        what.hash(&mut self.mixer);
    }

    pub(crate) fn is_written(&self) -> bool {
        self.lines.is_some()
    }

    pub(crate) fn write(&mut self, now: Instant, line: fmt::Arguments<'_>) {
        use fmt::Write;
        if let Some(lines) = &mut self.lines {
            let (ms, ns) = (now / 1_000_000, now % 1_000_000);
            writeln!(lines, "{ms:>7}.{ns:06} {line}").expect("a string takes all");
        }
    }

    pub(crate) fn finish(self) -> (u64, String) {
        (self.mixer.finish(), self.lines.unwrap_or_default())
    }
}

/// Writes a line into the trace of a world, if it is written.
macro_rules! note {
    ($world:expr, $($line:tt)*) => {
        if $world.trace.is_written() {
            $world.trace.write($world.now, format_args!($($line)*));
        }
    };
}

pub(crate) use note;
