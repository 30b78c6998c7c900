//! What a torture of quorlock is made of, whoever makes the faults: client processes that fight for locks and tell
//! all they do, counters and cells that only a holder may write to, an exact check of the books, and the page of a
//! run.
//!
//! Two programs use it: the project's own torture (tests/torture) on servers that it starts, hangs, kills and lies to,
//! and `quorlock torture` on nodes that its user names, with faults that the user gives.
//!
//! - A [`Session`] starts the clients, which are processes of the same program: it calls [`client::run`] in them.
//! - Whoever makes the faults notes them as [`record::Fault`]s, on the clock of [`boot`].
//! - At its end a session is judged, and its [`Outcome`] goes into a [`Report`].

#[cfg(not(unix))]
compile_error!("the harness is for Unix: its processes lead groups of their own");

pub mod boot;
mod cells;
mod check;
pub mod choice;
pub mod client;
mod date;
mod fence;
pub mod fleet;
pub mod keys;
mod ledger;
mod line;
mod page;
pub mod process;
pub mod record;
mod report;
mod robbed;
pub mod service;
mod session;
mod sight;
pub mod steps;
mod store;
mod task;
mod tenure;
mod verdict;

pub use line::{Nodes, Sabotage};
pub use report::Report;
pub use session::{Circumstances, Crew, Ended, GONE, Outcome, RESOURCES, Session, Who};

/// Prints a line, if there is anybody to read it: a torture goes on to its end, where what it did is undone.
macro_rules! say {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($words)*);
    }};
}
pub(crate) use say;
