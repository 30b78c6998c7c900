//! quorlock on real Redis processes, with faults, under load, and an exact check.
//!
//! `quorlock-torture --seconds 120 --seed 7` starts servers, proxies before them, and client
//! processes that fight for locks; it breaks them as its seed says, and looks for what must not be.

mod args;
mod boot;
mod cell;
mod check;
mod choice;
mod client;
mod date;
mod era;
mod fence;
mod fenced_cell;
mod fleet;
mod inflict;
mod ledger;
mod line;
mod log;
mod nemesis;
mod page;
mod part;
mod plan;
pub mod record;
mod robbed;
mod rolling;
mod room;
mod run;
mod service;
mod sight;
mod steps;
mod storm;
mod task;
mod tenure;
mod verdict;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = args::Arguments::parse();
    match arguments.command {
        Some(args::Command::Client) => client::run(),
        None => run::run(&arguments.wish),
    }
}
