//! Measures quorlock beside rslock on the same five redis-server processes.
//!
//! The contenders take turns in short slices, so that the noise of a shared machine hits both; the
//! ratios are those of neighbouring slices. `--help` lists the arguments.

mod args;
mod contender;
mod duel;
mod floor;
mod measure;
mod plot;
mod report;
mod scenario;
mod table;
mod versions;

use std::process::ExitCode;

use kit::Cluster;
use serde_json::json;

use crate::args::{Args, HELP};

/// What the reader of the table must know.
const NOTES: &str = "\
A cycle is one acquire and one release, or one extension. Latencies are those of whole cycles; with one
key, of the wait for the lock. The base is the first row of a scenario: rslock, or quorlock doing what
is simpler (plain) or with nothing happening to its nodes (all well). Rates and rate ratios are medians over the slices, in brackets the least and the greatest
ratio; percentiles are of all slices together; CPU is user and system time of the client process, node us that of one server.
Failed cycles are not in the rates. The raw fan-out is no lock: it only sends and returns at the quorum.
Settings: ttl 10 s; quorlock with a node timeout of 50 ms and, for one key, a wait bound of 5 s; rslock
with its defaults, which are fixed 500 ms for a reply, 1 s to connect, retries after up to 200 ms.";

fn main() -> ExitCode {
    let args = match Args::from_env() {
        Ok(args) => args,
        Err(error) => {
            eprintln!("{error}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    if args.help {
        println!("{HELP}");
        return ExitCode::SUCCESS;
    }
    match compare(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs all scenarios and prints the report.
fn compare(args: &Args) -> Result<(), String> {
    let versions = versions::describe(&Cluster::start(1));
    let command = format!("cargo run --release --manifest-path benches/peers/Cargo.toml -- {args}");
    let mut outcomes = Vec::new();
    for scenario in args.scenarios() {
        eprintln!("{} ...", scenario.name);
        outcomes.push(duel::fight(scenario, args)?);
    }
    println!(
        "{versions}\nall nodes on loopback, five where nothing is said; again with:\n    {command}\n"
    );
    println!("{}\n{NOTES}", report::table(&outcomes));
    for line in report::failures(&outcomes) {
        println!("failed: {line}");
    }
    if let Some(path) = &args.svg {
        plot::rates(&outcomes, path)?;
    }
    if let Some(path) = &args.json {
        let value = json!({
            "versions": versions,
            "command": command,
            "rows": report::json(&outcomes),
        });
        std::fs::write(path, format!("{value:#}\n"))
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}
