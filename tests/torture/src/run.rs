//! A complete run: its parts, its verdict and its records.

use crate::args::{Mode, RunOptions};
use crate::keep;
use crate::part::{CLIENTS, Part};
use crate::plan::Setup;
use harness::{Report, boot};
use std::process::ExitCode;
use std::time::Duration;

/// The number of nodes in each part, unless the option `--nodes` is given.
const SIZES: [u16; 3] = [1, 3, 5];

/// Runs all parts and writes the records. The run fails on a finding within the guarantee, or on a
/// fencing violation in any mode.
pub(crate) fn run(options: &RunOptions) -> ExitCode {
    let seed = options.seed.unwrap_or_else(|| rand::random_range(0..1_000_000));
    let sizes = options.nodes.map_or_else(|| SIZES.to_vec(), |nodes| vec![nodes]);
    let parts = u32::try_from(sizes.len()).expect("a handful");
    let command = command(options, seed);
    println!("{command}");
    let origin = boot::now();
    let since = || Duration::from_nanos(boot::now() - origin);
    let is_inside = options.mode == Mode::Inside;
    let failed = keep::directory(&options.out, &format!("{}-{seed}", options.mode));
    let mut report = Report::new(&command, seed, is_inside, CLIENTS);
    for (number, nodes) in (0..).zip(&sizes) {
        let lasts = Duration::from_secs(options.seconds) / parts;
        // A run with several parts covers some of the variants, and the next seed covers the
        // others.
        let variant = seed + u64::from(number);
        let setup = Setup { nodes: *nodes, clients: CLIENTS, lasts, is_inside, variant };
        let (program, sabotage) = (options.server.clone(), options.sabotage);
        let from = since();
        let kept = failed.join(format!("{nodes}-nodes"));
        let part = Part { number, seed, setup, program, origin, sabotage, kept };
        report.add(*nodes, from, part.run());
    }
    let out = if report.is_bad() { &failed } else { &options.out };
    if let Err(error) = report.finish(since(), out) {
        eprintln!("the records cannot be written to {}: {error}", out.display());
        return ExitCode::FAILURE;
    }
    if report.is_bad() {
        println!("files of the failed run: {}", failed.display());
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn command(options: &RunOptions, seed: u64) -> String {
    let mut command = format!(
        "cargo run --release -p quorlock-torture -- --seconds {} --seed {seed} --mode {}",
        options.seconds, options.mode
    );
    if let Some(nodes) = options.nodes {
        command = format!("{command} --nodes {nodes}");
    }
    if let Some(server) = &options.server {
        command = format!("{command} --server {}", server.display());
    }
    if let Some(sabotage) = options.sabotage {
        command = format!("{command} --sabotage {sabotage}");
    }
    command
}
