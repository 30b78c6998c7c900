//! The tiers of tests, and how each is played.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// How the simulator is built and told to hunt for a first finding: **the one place to change it**. It prints
/// `seed N: what it found` and `found after N seeds`, and ends with 1; or with 0 if it found nothing.
const SIM_BUILD: &[&str] = &["build", "--profile", "mutant", "-p", "quorlock-sim"];
const SIM_HUNT: &[&str] =
    &["run", "--profile", "mutant", "--quiet", "-p", "quorlock-sim", "--", "--hunt", "--seeds"];

/// Builds the workspace with the primitives of loom.
const LOOM: &str = "build.rustc-workspace-wrapper='scripts/rustc-loom.sh'";

/// How long it may take.
const HUNT_BOUND: Duration = Duration::from_mins(15);
const TEST_BOUND: Duration = Duration::from_mins(5);

/// A tier of tests; see `tests/README.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tier {
    /// The simulator of the whole client.
    Sim,
    /// Tests beside the code.
    Unit,
    /// Unit tests under loom.
    Loom,
    /// Tests on servers.
    It,
    /// Tests under strain.
    Strain,
    /// Tests in time that is moved by hand.
    Paused,
    /// Tests on nodes in the process.
    Double,
    /// Tests that count system calls and allocations.
    Counts,
    /// The model, searched exhaustively.
    Model,
}

/// What is to be played to catch a patch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Job {
    /// Where.
    pub tier: Tier,
    /// The tests, by words that are in their names; all words are looked for.
    pub tests: String,
}

impl FromStr for Tier {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "sim" => Ok(Self::Sim),
            "unit" => Ok(Self::Unit),
            "loom" => Ok(Self::Loom),
            "it" => Ok(Self::It),
            "strain" => Ok(Self::Strain),
            "paused" => Ok(Self::Paused),
            "double" => Ok(Self::Double),
            "counts" => Ok(Self::Counts),
            "model" => Ok(Self::Model),
            other => Err(format!("no such tier: {other}")),
        }
    }
}

impl Tier {
    /// True if it is made of tests that cargo runs, of which those are to be named that catch a patch.
    pub(crate) fn is_tests(self) -> bool {
        !matches!(self, Self::Sim | Self::Model)
    }

    fn target(self) -> &'static [&'static str] {
        match self {
            Self::Unit => &["--lib"],
            Self::Loom => &["--config", LOOM, "--lib"],
            Self::It => &["--test", "it"],
            Self::Strain => &["--test", "strain"],
            Self::Paused => &["--test", "paused"],
            Self::Double => &["--test", "double"],
            Self::Counts => &["-p", "quorlock-counts", "--test", "counts"],
            Self::Sim | Self::Model => &[],
        }
    }
}

impl Job {
    /// What cargo is told to build it.
    pub fn build(&self) -> Vec<String> {
        match self.tier {
            Tier::Sim => words(SIM_BUILD),
            Tier::Model => words(&["build", "--release", "-p", "quorlock-model"]),
            _ => {
                let target = self.tier.target();
                words(&[&["test", "--all-features", "--no-run"], target].concat())
            }
        }
    }

    /// What cargo is told to play it; the simulator plays so many seeds at most.
    pub fn play(&self, seeds: u64) -> Vec<String> {
        match self.tier {
            Tier::Sim => [words(SIM_HUNT), vec![seeds.to_string()]].concat(),
            Tier::Model => words(&["run", "--release", "--quiet", "-p", "quorlock-model"]),
            _ => {
                let target = [&["test", "--all-features"], self.tier.target(), &["--"]].concat();
                let tests = self.tests.split_whitespace().map(str::to_owned);
                words(&target).into_iter().chain(tests).collect()
            }
        }
    }

    /// How long it may take.
    pub fn bound(&self) -> Duration {
        if self.tier.is_tests() { TEST_BOUND } else { HUNT_BOUND }
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().copied().map(str::to_owned).collect()
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Sim => "sim",
            Self::Unit => "unit",
            Self::Loom => "loom",
            Self::It => "it",
            Self::Strain => "strain",
            Self::Paused => "paused",
            Self::Double => "double",
            Self::Counts => "counts",
            Self::Model => "model",
        })
    }
}
