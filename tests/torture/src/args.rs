//! What can be said on the command line.

use clap::{Args, Parser, Subcommand, ValueEnum};
use harness::Sabotage;
use std::fmt;
use std::path::PathBuf;

/// quorlock on real Redis processes, with faults, under load, and an exact check.
///
/// The same seed gives the same schedule of faults and the same choices of every task; it does not
/// give the same interleaving, which is the machine's.
#[derive(Debug, Parser)]
#[command(name = "quorlock-torture")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) wish: Wish,
}

/// What else it can be.
#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum Command {
    /// A client process of a run.
    #[command(hide = true)]
    Client,
}

/// How a run is to be made.
#[derive(Args, Clone, Debug)]
pub(crate) struct Wish {
    /// How long faults are made
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u64).range(3..=86_400))]
    pub(crate) seconds: u64,
    /// Of all choices; drawn if it is not given
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Whether faults stay inside what Redlock promises exclusion under
    #[arg(long, value_enum, default_value_t = Mode::Inside)]
    pub(crate) mode: Mode,
    /// How many nodes; 1, 3 and 5, one after the other, if it is not given
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=9))]
    pub(crate) nodes: Option<u16>,
    /// The redis-server to run
    #[arg(long)]
    pub(crate) server: Option<PathBuf>,
    /// Where to leave the records
    #[arg(long, default_value = "target/torture")]
    pub(crate) out: PathBuf,
    /// What one client does wrong, to see that it is caught: it works without the lock, or it makes
    /// tokens up
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "lock")]
    pub(crate) sabotage: Option<Sabotage>,
}

/// Which faults are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// A minority of nodes at a time; clocks step for those who know them, and nodes forget while one
    /// that does not is in reach: nothing may be found
    Inside,
    /// Any: overlaps are counted, but fencing must hold
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
