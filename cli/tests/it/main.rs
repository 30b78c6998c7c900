//! Tests of the `quorlock` command: its help, messages and exit codes, with real servers where necessary.
//!
//! `snapshots/` contains the expected output. `SNAPSHOTS=overwrite cargo test -p quorlock-cli` updates the snapshots.

#![allow(
    clippy::incompatible_msrv,
    reason = "the command supports older toolchains than its tests"
)]

mod check;
mod completions;
mod ending;
mod help;
mod holding;
mod nested;
mod nodes;
mod notify;
mod orphans;
mod outage;
mod output;
mod release;
mod restarts;
mod run;
mod running;
mod scheduled;
mod semaphore;
mod settings;
mod shared;
mod shell_session;
mod signals;
mod status;
mod terminal;
mod tls;
mod torture;
mod usage;
