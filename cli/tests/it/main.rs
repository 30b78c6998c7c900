//! The command `quorlock`: its help, its messages and its exit codes, on real servers where it needs some.
//!
//! `snapshots/` has the expected output; `SNAPSHOTS=overwrite cargo test -p quorlock-cli` updates it.

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
mod output;
mod release;
mod restarts;
mod run;
mod running;
mod scene;
mod settings;
mod signals;
mod status;
mod terminal;
mod tls;
mod torture;
mod usage;
