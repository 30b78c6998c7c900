//! Torture test of quorlock on real Redis processes, with faults, load, and exact checks.
//!
//! `quorlock-torture --seconds 120 --seed 7` starts servers, a proxy in front of each server, and
//! client processes that compete for locks. The program applies faults according to the seed and
//! checks the results.

mod admission;
mod apply;
mod args;
mod executor;
mod keep;
mod log;
mod nemesis;
mod outage;
mod part;
mod phase;
mod plan;
mod rolling;
mod run;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = args::Arguments::parse();
    match arguments.command {
        Some(args::Command::Client) => harness::client::run().into(),
        None => run::run(&arguments.options),
    }
}
