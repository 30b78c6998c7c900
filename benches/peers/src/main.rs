//! Compares quorlock with rslock on the same five redis-server processes.
//!
//! The contenders alternate in short measurements, called slices, so the noise of a shared machine affects all of them.
//! A ratio compares the slices of the same round. `--help` lists the arguments.

mod args;
mod bare_loop;
mod comparison;
mod contender;
mod contender_setup;
mod counts;
mod digits;
mod figures;
mod instructions;
mod measure;
mod node_usage;
mod nodes;
mod plot;
mod ratio;
mod raw_fan_out;
mod report;
mod runner;
mod scenario;
mod table;
mod tally;
mod usage;
mod versions;
mod waiting;
mod worker;
mod worker_pool;

use std::process::ExitCode;

use kit::Cluster;
use serde_json::json;

use crate::args::{Args, HELP};

const NOTES: &str = "\
A cycle is one acquire and one release, or one extension. Latencies are of whole cycles; with one shared key,
of the wait for the lock. The base is the first row of a scenario: rslock, or quorlock with simpler work (plain) or
without a fault (no fault). Rates and rate ratios are medians over the slices, with the minimum and maximum ratio in
brackets; percentiles are over all slices; CPU is user and system time of the client process, node us that of one server.
Failed cycles are not in the rates. The raw fan-out is not a lock: it only sends commands and returns at the quorum. The
bare loop does the same on one thread without a runtime and a client library: the minimum cost of five connections.
Settings: ttl 10 s; quorlock with a node timeout of 50 ms and, for one shared key, a wait of 5 s; rslock with its
defaults, which are 500 ms for a reply, 1 s to connect, and retries after up to 200 ms.";

const COST_NOTES: &str = "\
Cost of a cycle, including failed attempts. Allocations, their bytes and system calls are counted in a separate slice,
by a library that is preloaded into the process: calls of C library functions that enter the kernel. Switches are
voluntary context switches. Instructions are outside of the kernel. A dash means that a value could not be counted.
Commands are per node, and a script is one command; server us is their duration (INFO commandstats), which a busy
machine may increase.";

const WAIT_NOTES: &str = "\
Another client holds the locks for the whole time. The measurement starts once all tasks wait; cores are of the
waiting process, and of one node. A task that acquires a lock or fails is missing under \"still waiting\".";

fn main() -> ExitCode {
    // Threads that exist before this call are not counted.
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
        outcomes.push(comparison::run_scenario(scenario, args, counter.as_deref())?);
    }
    let mut waits = Vec::new();
    for scenario in args.waiting_scenarios() {
        eprintln!("{} ...", scenario.name);
        waits.extend(waiting::wait(scenario, args));
    }
    println!(
        "{versions}\nall nodes on loopback, five unless stated otherwise; repeat with:\n    {command}\n"
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
