//! The test tiers and the cargo commands that run them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The cargo arguments that build the simulator. All commands of the simulator are in this file.
const SIM_BUILD: &[&str] = &["build", "--profile", "mutant", "-p", "quorlock-sim"];
/// The cargo arguments that run the simulator until a seed fails. For a failed seed, the simulator prints `seed N:
/// finding` and `found after N seeds`, and exits with code 1. If no seed fails, the simulator exits with code 0.
const SIM_HUNT_ARGS: &[&str] =
    &["run", "--profile", "mutant", "--quiet", "-p", "quorlock-sim", "--", "--hunt", "--seeds"];

/// The cargo option that builds the workspace with loom's replacements for synchronization primitives.
const LOOM: &str = "build.rustc-workspace-wrapper='scripts/rustc-loom.sh'";

/// The time limit of the simulator and of the model.
const HUNT_TIMEOUT: Duration = Duration::from_mins(15);
const TEST_TIMEOUT: Duration = Duration::from_mins(5);

/// A tier of tests, as described in `tests/README.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tier {
    /// The simulation of complete clients.
    Sim,
    /// Unit tests in `src/`.
    Unit,
    /// Unit tests under loom.
    Loom,
    /// Tests on real servers.
    It,
    /// Tests under load and with blocked runtimes.
    Strain,
    /// Tests with a paused clock.
    Paused,
    /// Tests with in-process nodes.
    Double,
    /// Tests that count system calls and allocations.
    Counts,
    /// The exhaustive search of the model.
    Model,
}

/// The tests that must detect the defect of a patch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Job {
    /// The tier of the tests.
    pub tier: Tier,
    /// Test filters, separated by spaces. A filter selects the tests whose names contain it.
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
            other => Err(format!("unknown tier: {other}")),
        }
    }
}

impl Tier {
    /// Returns true if cargo's test harness runs the tier. A patch for such a tier must name the tests that detect its
    /// defect.
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
    /// Returns the cargo arguments that build the tests.
    pub fn build_args(&self) -> Vec<String> {
        match self.tier {
            Tier::Sim => words(SIM_BUILD),
            Tier::Model => words(&["build", "--release", "-p", "quorlock-model"]),
            _ => {
                let target = self.tier.target();
                words(&[&["test", "--all-features", "--no-run"], target].concat())
            }
        }
    }

    /// Returns the cargo arguments that run the tests. `seeds` is the maximum number of seeds for the simulator.
    pub fn run_args(&self, seeds: u64) -> Vec<String> {
        match self.tier {
            Tier::Sim => [words(SIM_HUNT_ARGS), vec![seeds.to_string()]].concat(),
            Tier::Model => words(&["run", "--release", "--quiet", "-p", "quorlock-model"]),
            _ => {
                let target = [&["test", "--all-features"], self.tier.target(), &["--"]].concat();
                let tests = self.tests.split_whitespace().map(str::to_owned);
                words(&target).into_iter().chain(tests).collect()
            }
        }
    }

    /// Returns the time limit of the run.
    pub fn timeout(&self) -> Duration {
        if self.tier.is_tests() { TEST_TIMEOUT } else { HUNT_TIMEOUT }
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
