//! The tiers of tests that detect defects: their builds and their runs.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A tier of tests, as described in `tests/README.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// Unit tests in `src/`.
    Unit,
    /// The simulation of complete clients.
    Sim,
    /// Tests with in-process nodes.
    Double,
    /// Tests on real servers.
    It,
}

impl Tier {
    /// All tiers, the fastest first.
    pub const ALL: [Self; 4] = [Self::Unit, Self::Sim, Self::Double, Self::It];

    /// Returns the directories of the tests, relative to the root of the tree.
    pub fn directories(self) -> &'static [&'static str] {
        match self {
            Self::Unit => &["src"],
            Self::Sim => &["tests/sim/src", "testing/src"],
            Self::Double => &["tests/double"],
            Self::It => &["tests/it"],
        }
    }

    /// Returns the cargo arguments that build one program with all tests of the tier.
    pub fn build(self) -> Vec<&'static str> {
        let target: &[_] = match self {
            Self::Unit => &["test", "--no-run", "--all-features", "--lib"],
            Self::Sim => &["build", "--profile", "mutant", "--package", "quorlock-sim"],
            Self::Double => &["test", "--no-run", "--all-features", "--test", "double"],
            Self::It => &["test", "--no-run", "--all-features", "--test", "it"],
        };
        [target, &["--message-format", "json-render-diagnostics"]].concat()
    }

    /// Returns the arguments with which the program runs `test`, as in the header of a patch. A simulation ends at the
    /// first finding or after `seeds` seeds.
    pub fn run(self, test: &str, seeds: u64) -> Vec<String> {
        if self != Self::Sim {
            return test.split_whitespace().map(str::to_owned).collect();
        }
        let mode = if test.is_empty() { "all" } else { test };
        let seeds = seeds.to_string();
        ["--hunt", "--mode", mode, "--seeds", &seeds].map(str::to_owned).into()
    }

    /// Returns the time limit of one run.
    pub fn timeout(self) -> Duration {
        Duration::from_mins(if self == Self::Sim { 15 } else { 5 })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Unit => "unit",
            Self::Sim => "sim",
            Self::Double => "double",
            Self::It => "it",
        }
    }
}

impl FromStr for Tier {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let mut tiers = Self::ALL.into_iter();
        tiers.find(|tier| tier.name() == word).ok_or_else(|| format!("unknown tier: {word}"))
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
