//! This program as a process of its own that works for another: it is told what to do line by line.
//!
//! The first line says who it is (a [`Setup`]), each other one is a [`Slice`]; it answers with [`READY`],
//! then with what it has [`Seen`](crate::tally::Seen). It ends when nothing more is to be read.

use std::fmt::Display;
use std::io::{Lines, StdinLock, stdin};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;

use crate::contender::{Contender, EagerRslock, Library, Quorlock, Rslock};
use crate::floor::Floor;
use crate::measure::{self, Slice};

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
    match setup.library {
        Library::Rslock => serve::<Rslock>(&setup, lines),
        Library::EagerRslock => serve::<EagerRslock>(&setup, lines),
        Library::Quorlock => serve::<Quorlock>(&setup, lines),
        Library::Floor => serve::<Floor>(&setup, lines),
    }
}

fn serve<C: Contender>(setup: &Setup, lines: Lines<StdinLock<'static>>) -> Result<(), String> {
    let runtime = Runtime::new().map_err(text)?;
    let connect = || runtime.block_on(C::connect(&setup.urls)).map(Arc::new);
    let clients = (0..setup.clients).map(|_| connect()).collect::<Result<Vec<_>, _>>()?;
    println!("{READY}");
    for line in lines {
        let slice: Slice = serde_json::from_str(&line.map_err(text)?).map_err(text)?;
        let seen = runtime.block_on(measure::run(&slice, &clients));
        println!("{}", serde_json::to_string(&seen).map_err(text)?);
    }
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(())
}

fn text(error: impl Display) -> String {
    error.to_string()
}
