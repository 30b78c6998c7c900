//! A worker process of the comparison. It runs this program's own executable, and reads one command per line.
//!
//! The first line is a [`Setup`], to which the worker replies with [`READY`]. Every other line is a [`Slice`], to which
//! the worker replies with its [`Measured`](crate::tally::Measured). The worker exits when its stdin ends.

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

/// The worker's reply when its clients have connected.
pub(crate) const READY: &str = "ready";

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) library: Library,
    pub(crate) clients: usize,
    pub(crate) urls: Vec<String>,
}

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
