//! quorlock on real Redis processes, with faults, under load, and an exact check.
//!
//! `quorlock-torture --seconds 120 --seed 7` starts servers, proxies before them, and client
//! processes that fight for locks; it breaks them as its seed says, and looks for what must not be.

mod ailment;
mod args;
mod era;
mod inflict;
mod keep;
mod log;
mod nemesis;
mod part;
mod plan;
mod rolling;
mod room;
mod run;
mod storm;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = args::Arguments::parse();
    match arguments.command {
        Some(args::Command::Client) => harness::client::run().into(),
        None => run::run(&arguments.wish),
    }
}
