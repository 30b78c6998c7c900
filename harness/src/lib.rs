//! The shared parts of quorlock's torture programs. Client processes compete for locks and record
//! every call. Only the holder of a lock may write to the lock's counter and fenced cell. After the
//! run, the records are checked for violations, and a report shows the results.
//!
//! Two programs use this crate. The project's own torture test (`tests/torture`) starts servers and
//! injects faults into them. `quorlock torture` tests the nodes of its user, with the user's
//! faults.
//!
//! - A [`Session`] starts the clients. Each client runs the torture program's own executable, which
//!   must call [`client::run`].
//! - The torture program records its faults as [`record::Fault`]s. All times are from the [`boot`]
//!   clock.
//! - When a session has ended, its records are checked. The [`Outcome`] becomes a part of a
//!   [`Report`].

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
mod grant;
pub mod keys;
mod ledger;
mod line;
mod page;
pub mod process;
mod readiness;
pub mod record;
mod report;
mod resources;
pub mod service;
mod session;
pub mod steps;
mod store;
mod target;
mod task;
mod tenure;
mod verdict;

pub use line::{Nodes, Sabotage};
pub use report::Report;
pub use resources::RESOURCES;
pub use session::{ClientPlan, Ended, KEYS_EXPIRE_AFTER, Outcome, RunContext, RunPart, Session};

/// Prints a line and ignores errors. If standard output is closed, the torture program must still
/// remove its faults.
macro_rules! say {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($words)*);
    }};
}
pub(crate) use say;
