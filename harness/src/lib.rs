//! The shared parts of quorlock's torture programs. Client processes compete for locks and record
//! every call. Only a lock's holder may write to its counter and its fenced cell. The records are
//! then checked exactly, and a report shows the results.
//!
//! Two programs use this crate. The project's own torture test (`tests/torture`) injects faults
//! into servers that it starts. The user of `quorlock torture` supplies the nodes and faults.
//!
//! - A [`Session`] starts the clients. Each client is a process of the same program that calls
//!   [`client::run`].
//! - The torture program records its faults as [`record::Fault`]s, with times of the [`boot`]
//!   clock.
//! - An ended session is checked, and its [`Outcome`] becomes a part of a [`Report`].

#[cfg(not(unix))]
compile_error!("the harness supports only Unix, because it uses process groups");

pub mod boot;
mod cells;
mod check;
pub mod choice;
pub mod client;
mod date;
mod early_losses;
mod fence;
pub mod fleet;
pub mod keys;
mod ledger;
mod line;
mod page;
pub mod process;
mod readiness;
pub mod record;
mod report;
pub mod service;
mod session;
pub mod steps;
mod store;
mod task;
mod tenure;
mod verdict;

pub use line::{Nodes, Sabotage};
pub use report::Report;
pub use session::{
    ClientPlan, Ended, KEYS_EXPIRE_AFTER, Outcome, RESOURCES, RunContext, RunPart, Session,
};

/// Prints a line and ignores errors, because the torture program must still remove its faults if
/// standard output is closed.
macro_rules! say {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($words)*);
    }};
}
pub(crate) use say;
