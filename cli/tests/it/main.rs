//! The command `quorlock`: its help, its messages and its exit codes, on real servers where it needs some.
//!
//! What it prints stands in `snapshots/`; `SNAPSHOTS=overwrite cargo test -p quorlock-cli` writes it anew.

#![allow(
    clippy::incompatible_msrv,
    reason = "the command is for older toolchains; its tests run with a newer one"
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
