//! A whole run: its parts, its verdict and what it leaves behind.

use crate::args::{Mode, Wish};
use crate::keep;
use crate::part::{CLIENTS, Part};
use crate::plan::Field;
use harness::{Report, boot};
use std::process::ExitCode;
use std::time::Duration;

/// The numbers of nodes of a run that is not told how many.
const SIZES: [u16; 3] = [1, 3, 5];

/// Makes a run as wished; fails if something was found inside the promise, or if fencing failed.
pub(crate) fn run(wish: &Wish) -> ExitCode {
    let seed = wish.seed.unwrap_or_else(|| rand::random_range(0..1_000_000));
    let sizes = wish.nodes.map_or_else(|| SIZES.to_vec(), |nodes| vec![nodes]);
    let parts = u32::try_from(sizes.len()).expect("a handful");
    let command = command(wish, seed);
    println!("{command}");
    let origin = boot::now();
    let since = || Duration::from_nanos(boot::now() - origin);
    let is_inside = wish.mode == Mode::Inside;
    let failed = keep::directory(&wish.out, &format!("{}-{seed}", wish.mode));
    let mut report = Report::new(&command, seed, is_inside, CLIENTS);
    for (number, nodes) in (0..).zip(&sizes) {
        let lasts = Duration::from_secs(wish.seconds) / parts;
        // So a run of several parts has all ways of what comes in turns, and the next seed the others.
        let turn = seed + u64::from(number);
        let field = Field { nodes: *nodes, clients: CLIENTS, lasts, is_inside, turn };
        let (program, sabotage) = (wish.server.clone(), wish.sabotage);
        let from = since();
        let kept = failed.join(format!("{nodes}-nodes"));
        let part = Part { number, seed, field, program, origin, sabotage, kept };
        report.add(*nodes, from, part.run());
    }
    let out = if report.is_bad() { &failed } else { &wish.out };
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

fn command(wish: &Wish, seed: u64) -> String {
    let mut command = format!(
        "cargo run --release -p quorlock-torture -- --seconds {} --seed {seed} --mode {}",
        wish.seconds, wish.mode
    );
    if let Some(nodes) = wish.nodes {
        command = format!("{command} --nodes {nodes}");
    }
    if let Some(server) = &wish.server {
        command = format!("{command} --server {}", server.display());
    }
    if let Some(sabotage) = wish.sabotage {
        command = format!("{command} --sabotage {sabotage}");
    }
    command
}
