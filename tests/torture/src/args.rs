//! Command-line arguments of the torture test.

use clap::{Args, Parser, Subcommand, ValueEnum};
use harness::Sabotage;
use std::fmt;
use std::path::PathBuf;

/// Runs quorlock on real Redis processes, with faults and under load, and checks the results
/// exactly
///
/// The same seed gives the same schedule of faults and the same choices of every task. The
/// interleaving differs, because it depends on the operating system.
#[derive(Debug, Parser)]
#[command(name = "quorlock-torture")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) options: RunOptions,
}

/// Modes of the program other than a run.
#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs a client process; started by the program itself
    #[command(hide = true)]
    Client,
}

/// Options of a run.
#[derive(Args, Clone, Debug)]
pub(crate) struct RunOptions {
    /// Duration of the faults in seconds
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u64).range(3..=86_400))]
    pub(crate) seconds: u64,
    /// Seed of all choices [default: random]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Whether the faults are limited to those under which Redlock guarantees mutual exclusion
    #[arg(long, value_enum, default_value_t = Mode::Inside)]
    pub(crate) mode: Mode,
    /// Number of nodes [default: three parts with 1, 3 and 5 nodes]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=9))]
    pub(crate) nodes: Option<u16>,
    /// Path of the `redis-server` program
    #[arg(long)]
    pub(crate) server: Option<PathBuf>,
    /// Directory for the records
    #[arg(long, default_value = "target/torture")]
    pub(crate) out: PathBuf,
    /// Intentional defect of one client, to test the checks: it works without the lock, forges
    /// tokens, uses too many permits of semaphores, or uses other keys than the other clients
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "lock")]
    pub(crate) sabotage: Option<Sabotage>,
}

/// The faults of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Faults of a minority of nodes at a time, clock steps that clients can detect, and data loss
    /// while an old node is reachable: no findings are allowed
    Inside,
    /// All faults: overlaps are only counted, but fencing must hold
    Outside,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inside => "inside",
            Self::Outside => "outside",
        })
    }
}
