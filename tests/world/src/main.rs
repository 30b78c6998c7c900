//! Plays seeds.

use clap::Parser;
use std::process::ExitCode;
use std::time::Instant;
use world::{Mode, run};

/// Simulates whole quorlock clients, from seeds.
#[derive(Parser)]
struct Arguments {
    /// How many seeds to play
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Plays this seed only
    #[arg(long)]
    seed: Option<u64>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(seed) = arguments.seed {
        let outcome = run(Mode::Promise, seed, None, true);
        print!("{}", outcome.trace);
        println!("hash {:016x} {:?}", outcome.hash, outcome.violation);
        return ExitCode::SUCCESS;
    }
    let start = Instant::now();
    let (mut grants, mut calls, mut bad) = (0, 0, 0);
    for seed in arguments.from..arguments.from + arguments.seeds {
        let outcome = run(Mode::Promise, seed, None, false);
        grants += outcome.grants;
        calls += outcome.calls;
        if let Some((rule, how)) = outcome.violation {
            bad += 1;
            println!("seed {seed}: {rule:?}: {how}");
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("{bad} bad, {calls} calls, {grants} grants, {seconds:.1} s");
    ExitCode::SUCCESS
}
