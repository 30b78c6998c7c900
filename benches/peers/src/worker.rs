//! This program as a process of its own that works for another: it is told what to do line by line.
//!
//! The first line says who it is (a [`Setup`]), each other one is a [`Slice`]; it answers with [`READY`],
//! then with what it has [`Seen`](crate::tally::Seen). It ends when nothing more is to be read.

use std::fmt::Display;
use std::io::stdin;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;

use crate::contender::Library;
use crate::measure::Slice;
use crate::runner::runner;

/// The argument that makes this program a worker.
pub(crate) const ARGUMENT: &str = "as-a-worker";

/// What it answers when its clients are made.
pub(crate) const READY: &str = "ready";

/// Who a worker is.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    /// What it measures.
    pub(crate) library: Library,
    /// How many clients it has.
    pub(crate) clients: usize,
    /// Where the nodes are.
    pub(crate) urls: Vec<String>,
}

/// Does what it is told, to the end.
pub(crate) fn work() -> Result<(), String> {
    let mut lines = stdin().lines();
    let Some(line) = lines.next() else { return Ok(()) };
    let setup: Setup = serde_json::from_str(&line.map_err(text)?).map_err(text)?;
    let runtime = Runtime::new().map_err(text)?;
    let mut runner = runner(setup.library, setup.clients, &setup.urls, &runtime)?;
    println!("{READY}");
    for line in lines {
        let slice: Slice = serde_json::from_str(&line.map_err(text)?).map_err(text)?;
        println!("{}", serde_json::to_string(&runner.run(&slice)).map_err(text)?);
    }
    drop(runner);
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(())
}

fn text(error: impl Display) -> String {
    error.to_string()
}
