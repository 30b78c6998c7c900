//! Shared parts of quorlock's torture programs: client processes that compete for locks and record
//! every call, counters and cells that only a holder may write to, an exact check of the records,
//! and the report.
//!
//! Two programs use it: the project's own torture (`tests/torture`), which injects faults into
//! servers that it starts, and `quorlock torture`, with nodes and faults of its user.
//!
//! - A [`Session`] starts the clients, which are processes of the same program that call
//!   [`client::run`].
//! - The torture program records its faults as [`record::Fault`]s, with times of the [`boot`]
//!   clock.
//! - At its end a session is judged, and its [`Outcome`] becomes a part of a [`Report`].

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

/// Prints a line and ignores errors: with a closed standard output, the torture still has to remove
/// its faults.
macro_rules! say {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($words)*);
    }};
}
pub(crate) use say;
