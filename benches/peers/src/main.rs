//! Measures quorlock beside rslock on the same five redis-server processes.
//!
//! The contenders take turns in short slices, so that the noise of a shared machine hits both; the
//! ratios are those of neighbouring slices. `--help` lists the arguments.

mod args;
mod bare_loop;
mod contender;
mod counts;
mod crew;
mod digits;
mod duel;
mod figures;
mod floor;
mod instructions;
mod measure;
mod node_usage;
mod nodes;
mod plot;
mod ratio;
mod report;
mod runner;
mod scenario;
mod seat;
mod table;
mod tally;
mod usage;
mod versions;
mod waiting;
mod worker;

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
Failed cycles are not in the rates. The raw fan-out is no lock: it only sends and returns at the quorum. Nor is the bare
loop, which does so on one thread without a runtime and a client library: the least that five connections cost.
Settings: ttl 10 s; quorlock with a node timeout of 50 ms and, for one key, a wait bound of 5 s; rslock
with its defaults, which are fixed 500 ms for a reply, 1 s to connect, retries after up to 200 ms.";

/// What the reader of the table of costs must know.
const COST_NOTES: &str = "\
What a cycle takes; failed attempts are in it. Allocations, the bytes asked for and system calls are counted in a slice
of their own, in a process into which a small library is preloaded: calls of the C library that enter the
kernel. Switches are voluntary context switches: how often a thread goes to sleep. Instructions are those outside
of the kernel. A dash is what could not be counted here. Commands are those that one node is sent, a script being one; server
us is the time that it took for them (INFO commandstats), in which a busy machine may have held it up.";

/// What the reader of the table of those who wait must know.
const WAIT_NOTES: &str = "\
The locks are held all the time by another client. The figures begin when all have asked; cores are those of
the waiting process, and of one node. Nobody should get a lock or give up: whoever does is not among those still waiting.";

fn main() -> ExitCode {
    // Threads that exist already would not be counted.
    instructions::begin();
    if std::env::args().nth(1).is_some_and(|argument| argument == worker::ARGUMENT) {
        return exit_code(worker::work());
    }
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
    exit_code(compare(&args))
}

fn exit_code(result: Result<(), String>) -> ExitCode {
    match result {
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
    let counter = args.counts.then(counts::library).transpose().unwrap_or_else(|why| {
        eprintln!("allocations and system calls are not counted: {why}");
        None
    });
    let mut outcomes = Vec::new();
    for scenario in args.scenarios() {
        eprintln!("{} ...", scenario.name);
        outcomes.push(duel::fight(scenario, args, counter.as_deref())?);
    }
    let mut waits = Vec::new();
    for crowd in args.crowds() {
        eprintln!("{} ...", crowd.name);
        waits.extend(waiting::wait(crowd, args));
    }
    println!(
        "{versions}\nall nodes on loopback, five where nothing is said; again with:\n    {command}\n"
    );
    if !outcomes.is_empty() {
        println!("{}\n{NOTES}\n", report::rates(&outcomes));
        println!("{}\n{COST_NOTES}\n", report::costs(&outcomes));
    }
    if !waits.is_empty() {
        println!("{}\n{WAIT_NOTES}\n", report::waits(&waits));
    }
    for line in report::failures(&outcomes, &waits) {
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
            "waiting": report::waits_json(&waits),
        });
        std::fs::write(path, format!("{value:#}\n"))
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}
